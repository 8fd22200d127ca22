# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled scorers: the same functions as the classes of `scoring`, without NumPy."""

from array import array

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy


cdef extern from "_score.h" nogil:
    double score_array(const char *data, long length, const double *weights, bint narrow)

cdef int FLOAT4 = 700  # PostgreSQL's number of the type


cdef double NOTHING = float("nan")  # no decision: a null, another shape, a value that is not finite


cdef class Scorer:
    """A scorer of one model."""

    cdef double decision(self, bytes features):
        return NOTHING

    def __call__(self, bytes features):
        cdef double decision = self.decision(features)
        return decision if decision == decision else None


cdef class Scorers:
    """See `scoring.Scorers`."""

    cdef dict _known
    cdef Scorer _last
    cdef long long _last_model, _last_row_type

    def __init__(self):
        self._known = {}
        self._last = None

    def add(self, long long model, long long row_type, Scorer scorer):
        """Keep the scorer of a model for rows of a type."""
        self._known[model, row_type] = scorer

    cdef double _decision(self, long long model, long long row_type, bytes features):
        if self._last is None or model != self._last_model or row_type != self._last_row_type:
            scorer = self._known.get((model, row_type))
            if scorer is None:
                return NOTHING
            self._last, self._last_model, self._last_row_type = scorer, model, row_type
        return self._last.decision(features)

    def decide(self, long long model, long long row_type, bytes features):
        """Return the decision value, or None."""
        cdef double decision = self._decision(model, row_type, features)
        return decision if decision == decision else None

    def predict(self, long long model, long long row_type, bytes features):
        """Return whether the decision is above 0, or None."""
        cdef double decision = self._decision(model, row_type, features)
        return decision > 0 if decision == decision else None


cdef class VectorScorer(Scorer):
    """See `scoring.VectorScorer`."""

    cdef double[::1] _weights
    cdef double _intercept

    def __init__(self, weights, double intercept):
        self._weights = array("d", weights)
        self._intercept = intercept

    cdef double decision(self, bytes features):
        cdef int header[5]
        cdef long length = self._weights.shape[0], size = PyBytes_GET_SIZE(features)
        cdef const char *data = PyBytes_AS_STRING(features)
        if size < 20:
            return NOTHING
        memcpy(header, data, 20)
        cdef bint narrow = header[2] == FLOAT4
        if header[0] != 1 or header[1] != 0 or header[3] != length or size != 20 + length * (4 if narrow else 8):
            return NOTHING
        cdef double decision = self._intercept + score_array(data + 20, length, &self._weights[0], narrow)
        return decision if decision - decision == 0.0 else NOTHING


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


cdef class RecordScorer(Scorer):
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

    cdef double decision(self, bytes record):
        cdef const unsigned char *place = <const unsigned char *> PyBytes_AS_STRING(record)
        cdef const unsigned char *end = place + PyBytes_GET_SIZE(record)
        cdef const char *kinds = PyBytes_AS_STRING(self._kinds)
        cdef double decision = self._intercept, value
        cdef long column, size
        cdef dict lookup
        place += 4
        for column in range(len(self._kinds)):
            if place + 8 > end:
                return NOTHING
            size = <int> _big_endian(place + 4, 4)
            place += 8
            if size < 0:
                if kinds[column] != b"-":
                    return NOTHING
                continue
            if place + size > end:
                return NOTHING
            if kinds[column] == b"t":
                lookup = <dict> self._categories[column]
                found = lookup.get(place[:size])
                if found is not None:
                    decision += <double> found
            elif kinds[column] == b"b":
                decision += <double> self._categories[column].get(place[:size].rstrip(b" "), 0.0)
            elif kinds[column] != b"-":
                if kinds[column] == b"c":
                    value = float(self._categories[column](place[:size]))
                else:
                    value = _number(place, size, kinds[column])
                if value - value != 0.0:
                    return NOTHING
                decision += self._weights[column] * min(max(value, self._lower[column]), self._upper[column])
            place += size
        return decision
