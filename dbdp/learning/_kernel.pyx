# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled kernel: the same function as `kernels.add_rows_reference`, over packed rows."""

import numpy as np

cdef extern from "_sgd.h" nogil:
    void sgd_add_gradients(const float *row, long count, const double *model, double *gradient, long stride)
    void sgd_update(double *model, double *gradient, long stride, double step, double batch_size, double regularisation)
    void pack_rows(double *features, const int *labels, float *rows, long count, long dimension, long stride, double shrink)
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


def pack(double[:, ::1] features, const int[::1] labels, float[:, ::1] rows, double shrink):
    """See `encoding.pack_reference`."""
    cdef long count = features.shape[0], dimension = features.shape[1], stride = rows.shape[1]
    if labels.shape[0] != count or rows.shape[0] != count or dimension > stride - 1 or dimension < 1:
        raise ValueError("features, labels and rows do not fit each other")
    if count:
        with nogil:
            pack_rows(&features[0, 0], &labels[0], &rows[0, 0], count, dimension, stride, shrink)
