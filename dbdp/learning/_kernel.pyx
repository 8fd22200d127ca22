# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled kernel: the same function as `kernels.add_rows_reference`, over packed rows."""

import numpy as np

LOSSES = (1, 2, 3, 4)  # the codes that _sgd.h knows

cdef extern from "_sgd.h" nogil:
    ctypedef struct sgd_training:
        long loss, target
        double width, limit, weight, batch_size, regularisation, radius
    void sgd_add_gradients(const sgd_training *t, const float *row, long count, const double *model, double *gradient,
                           long stride)
    void sgd_update(const sgd_training *t, double *model, double *gradient, double *sum, long stride, double step,
                    int averaged)
    void sgd_single_rows(const sgd_training *t, const float *row, long count, double *model, double *sum, long stride,
                         const double *steps, long first)
    void pack_rows(double *features, const double *labels, float *rows, long count, long dimension, long stride,
                   double shrink)


def add_rows(state, const float[:, ::1] rows, const double[::1] step_sizes, long averaged):
    """See `kernels.add_rows_reference`."""
    cdef long count = rows.shape[0], stride = rows.shape[1], ended = step_sizes.shape[0]
    cdef long batch_size = state.batch_size, filled = state.filled
    cdef double[::1] model = state.model, gradient = state.gradient, total = state.total
    if model.shape[0] > stride - 1 or stride % 8 or gradient.shape[0] != model.shape[0]:
        raise ValueError(f"rows of {stride} places, a model of {len(model)} and a gradient of {len(gradient)} "
                         "coordinates do not fit each other")
    if batch_size < 1 or not 0 <= filled < batch_size or ended != (filled + count) // batch_size:
        raise ValueError("one step size is needed for each mini-batch that ends in these rows")
    if not 0 <= averaged <= ended or (averaged and total.shape[0] != model.shape[0]):
        raise ValueError(f"{averaged} of {ended} iterates cannot be averaged in a sum of {len(total)} coordinates")
    if state.loss.code not in LOSSES:
        raise ValueError(f"the compiled kernel has no loss {state.loss.name!r}")
    if count == 0:
        return
    cdef double[:, ::1] wide = _aligned(stride)
    wide[0, : model.shape[0]] = model
    wide[1, : model.shape[0]] = gradient
    if averaged:
        wide[2, : model.shape[0]] = total
    _advance(_training(state), rows, step_sizes, wide, batch_size, filled, ended - averaged)
    model[:] = wide[0, : model.shape[0]]
    gradient[:] = wide[1, : model.shape[0]]
    if averaged:
        total[:] = wide[2, : model.shape[0]]


cdef double[:, ::1] _aligned(long stride):
    """Return zeros, shape (3, stride), that begin at a cache line: no vector of eight then lies across two."""
    memory = np.zeros(3 * stride + 8)
    cdef double[::1] places = memory
    cdef size_t skipped = (64 - <size_t>&places[0] % 64) // 8
    return memory[skipped : skipped + 3 * stride].reshape(3, stride)


cdef sgd_training _training(state):
    width, weight = state.loss.parameters
    return sgd_training(loss=state.loss.code, target=state.target, width=width, limit=state.loss.lipschitz,
                        weight=weight, batch_size=state.batch_size, regularisation=state.regularisation,
                        radius=state.radius)


cdef void _advance(sgd_training how, const float[:, ::1] rows, const double[::1] steps, double[:, ::1] vectors,
                   long batch_size, long filled, long first):
    cdef long count = rows.shape[0], stride = rows.shape[1], done = 0, update = 0, take
    cdef double *model = &vectors[0, 0]
    cdef double *gradient = &vectors[1, 0]
    cdef double *total = &vectors[2, 0]
    with nogil:
        if batch_size == 1:
            sgd_single_rows(&how, &rows[0, 0], count, model, total, stride, &steps[0], first)
            return
        while done < count:
            take = min(batch_size - filled, count - done)
            sgd_add_gradients(&how, &rows[done, 0], take, model, gradient, stride)
            done += take
            filled += take
            if filled == batch_size:
                sgd_update(&how, model, gradient, total, stride, steps[update], update >= first)
                update += 1
                filled = 0


def pack(double[:, ::1] features, const double[::1] labels, float[:, ::1] rows, double shrink):
    """See `encoding.pack_reference`."""
    cdef long count = features.shape[0], dimension = features.shape[1], stride = rows.shape[1]
    if labels.shape[0] != count or rows.shape[0] != count or dimension > stride - 1 or dimension < 1:
        raise ValueError("features, labels and rows do not fit each other")
    if count:
        with nogil:
            pack_rows(&features[0, 0], &labels[0], &rows[0, 0], count, dimension, stride, shrink)
