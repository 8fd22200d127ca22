# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled kernel: the same function as `kernels.add_rows_reference`, over packed rows."""

import numpy as np

cdef extern from "_sgd.h" nogil:
    void sgd_add_gradients(const float *row, long count, const double *model, double *gradient, long stride)
    void sgd_update(double *model, double *gradient, long stride, double step, double batch_size, double regularisation)
    void sgd_single_rows(const float *row, long count, double *model, long stride, const double *steps, double regularisation)


def add_rows(loss, const float[:, ::1] rows, double[::1] model, double[::1] gradient, long filled,
             const double[::1] step_sizes, long batch_size, double regularisation):
    """See `kernels.add_rows_reference`."""
    cdef long count = rows.shape[0], stride = rows.shape[1], done = 0, update = 0, take
    if model.shape[0] != gradient.shape[0] or model.shape[0] > stride - 1 or stride % 8:
        raise ValueError("rows, model and gradient do not fit each other")
    if batch_size < 1 or not 0 <= filled < batch_size or step_sizes.shape[0] != (filled + count) // batch_size:
        raise ValueError("one step size is needed for each mini-batch that ends in these rows")
    if loss.code != 1:
        raise ValueError(f"the compiled kernel has no loss {loss.name!r}; it knows 'logistic'")
    if count == 0:
        return filled
    cdef double[::1] wide_model = np.zeros(stride)
    cdef double[::1] wide_gradient = np.zeros(stride)
    wide_model[: model.shape[0]] = model
    wide_gradient[: model.shape[0]] = gradient
    with nogil:
        if batch_size == 1:
            sgd_single_rows(&rows[0, 0], count, &wide_model[0], stride, &step_sizes[0], regularisation)
        else:
            while done < count:
                take = min(batch_size - filled, count - done)
                sgd_add_gradients(&rows[done, 0], take, &wide_model[0], &wide_gradient[0], stride)
                done += take
                filled += take
                if filled == batch_size:
                    sgd_update(&wide_model[0], &wide_gradient[0], stride, step_sizes[update], batch_size, regularisation)
                    update += 1
                    filled = 0
    model[:] = wide_model[: model.shape[0]]
    gradient[:] = wide_gradient[: model.shape[0]]
    return filled


cdef extern from "_sgd.h" nogil:
    double score_array(const char *data, long length, const double *weights, bint narrow)

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy


cdef class VectorScorer:
    """See `scoring.VectorScorer`."""

    cdef double[::1] _weights
    cdef double _intercept
    cdef int _element

    def __init__(self, weights, double intercept, str element):
        self._weights = np.array(weights, np.float64)
        self._intercept = intercept
        self._element = 4 if element == "<f4" else 8

    def __call__(self, bytes array):
        cdef int header[5]
        cdef long length = self._weights.shape[0]
        cdef const char *data = PyBytes_AS_STRING(array)
        if PyBytes_GET_SIZE(array) != 20 + length * self._element:
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
    cdef double[:, ::1] _numeric
    cdef list _categories

    def __init__(self, columns, double intercept):
        self._intercept = intercept
        self._kinds = "".join(column[0] for column in columns).encode()
        self._numeric = np.array([column[1] for column in columns], np.float64).reshape(-1, 3)
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
                decision += self._numeric[column, 0] * min(max(value, self._numeric[column, 1]), self._numeric[column, 2])
            place += size
        return decision
