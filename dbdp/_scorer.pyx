# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled scorers: the same functions as the classes of `scoring`, without NumPy."""

from array import array

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy


cdef extern from "_score.h" nogil:
    double score_array(const char *data, long length, const double *weights, bint narrow)


cdef class VectorScorer:
    """See `scoring.VectorScorer`."""

    cdef double[::1] _weights
    cdef double _intercept
    cdef int _element

    def __init__(self, weights, double intercept, str element):
        self._weights = array("d", weights)
        self._intercept = intercept
        self._element = 4 if element == "<f4" else 8

    def __call__(self, bytes features):
        cdef int header[5]
        cdef long length = self._weights.shape[0]
        cdef const char *data = PyBytes_AS_STRING(features)
        if PyBytes_GET_SIZE(features) != 20 + length * self._element:
            return None
        memcpy(header, data, 20)
        if header[0] != 1 or header[1] != 0 or header[3] != length:
            return None
        cdef double decision = self._intercept + score_array(data + 20, length, &self._weights[0], self._element == 4)
        return decision if decision - decision == 0.0 else None


cdef unsigned long long _big_endian(const unsigned char *data, int size) noexcept nogil:
    cdef unsigned long long value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | data[i]
    return value


cdef double _number(const unsigned char *data, int size, char kind) noexcept nogil:
    cdef unsigned long long bits = _big_endian(data, size)
    cdef unsigned int narrow = <unsigned int> bits
    cdef double wide
    cdef float single
    if kind == b"f" and size == 8:
        memcpy(&wide, &bits, 8)
        return wide
    if kind == b"f":
        memcpy(&single, &narrow, 4)
        return single
    if size == 8:
        return <double> <long long> bits
    if size == 4:
        return <double> <int> narrow
    return <double> <short> narrow if size == 2 else <double> bits


cdef class RecordScorer:
    """See `scoring.RecordScorer`."""

    cdef double _intercept
    cdef bytes _kinds
    cdef double[::1] _weights, _lower, _upper
    cdef list _categories

    def __init__(self, columns, double intercept):
        self._intercept = intercept
        self._kinds = "".join(column[0] for column in columns).encode()
        self._weights, self._lower, self._upper = (
            array("d", [column[1][part] for column in columns]) for part in range(3)
        )
        self._categories = [column[2] for column in columns]

    def __call__(self, bytes record):
        cdef const unsigned char *place = <const unsigned char *> PyBytes_AS_STRING(record)
        cdef const unsigned char *end = place + PyBytes_GET_SIZE(record)
        cdef const char *kinds = PyBytes_AS_STRING(self._kinds)
        cdef double decision = self._intercept, value
        cdef long column, size
        place += 4
        for column in range(len(self._kinds)):
            if place + 8 > end:
                return None
            size = <int> _big_endian(place + 4, 4)
            place += 8
            if size < 0:
                if kinds[column] != b"-":
                    return None
                continue
            if place + size > end:
                return None
            if kinds[column] == b"t":
                decision += <double> self._categories[column].get(place[:size], 0.0)
            elif kinds[column] == b"b":
                decision += <double> self._categories[column].get(place[:size].rstrip(b" "), 0.0)
            elif kinds[column] != b"-":
                if kinds[column] == b"c":
                    value = float(self._categories[column](place[:size]))
                else:
                    value = _number(place, size, kinds[column])
                if value - value != 0.0:
                    return None
                decision += self._weights[column] * min(max(value, self._lower[column]), self._upper[column])
            place += size
        return decision
