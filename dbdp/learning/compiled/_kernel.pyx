# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled kernels: the same functions as the NumPy references, over packed rows."""

import numpy as np
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport INFINITY

LOSSES = (1, 2, 3, 4)  # the codes of losses in _sgd.h

cdef extern from "_places.h" nogil:
    ctypedef struct sgd_training:
        long loss, target
        double width, limit, weight, clip, batch_size, regularisation, radius
    ctypedef struct adam:
        double decay1, decay2, floor
    void sgd_add_gradients(const sgd_training *t, const float *row, long count, const double *model, double *gradient,
                           long stride)
    const long MANY, PIECE, SHORT, LEVELS, PLACED_ROWS
    void sgd_add_part(const sgd_training *t, const float *row, long count, const double *model, double *gradient,
                      double *rest, double *tree, long stride, int begins, int ends)
    void sgd_add_part_of_each(const sgd_training *t, const float *row, long count, long several, double *features,
                              const double *models, double *gradients, double *rests, double *tree, long stride,
                              int begins, int ends)
    void sgd_sum_gradients(const sgd_training *t, const float *row, const float *lengths, long count,
                           const double *model, double *tree, long stride)
    void sgd_sum_losses(const sgd_training *t, const float *row, long count, const double *models, long candidates,
                        long stride, double most, double *tree, double *columns)
    void unpack_rows(const float *row, long count, long dimension, long stride, double *features, double *labels,
                     unsigned char *valid)
    void sgd_update(const sgd_training *t, double *model, double *gradient, double *sum, long stride, double step,
                    int averaged)
    void noisy_update(const sgd_training *t, double *model, double *gradient, long stride, double step,
                      const long *noise, long parameters, double grid)
    void noisy_adam(const sgd_training *t, const adam *how, double *model, double *gradient, double *first,
                    double *second, long stride, double step, const long *noise, long parameters, double grid,
                    double correction1, double correction2)
    void sgd_single_rows(const sgd_training *t, const float *row, long count, double *model, double *sum, long stride,
                         const double *steps, long first)
    void recursive_rows(const sgd_training *t, const float *row, long count, double *model, double *direction,
                        long stride, double step)
    unsigned long flush()
    void unflush(unsigned long former)
    void exponentials(const double *exponents, double *out, long count)
    void log1p_exponentials(const double *exponents, double *out, long count)
    ctypedef struct vector_records:
        long bytes, length, dimension
        double factor, constant, shrink, least
    void pack_records(const vector_records *of, const char *record, const double *labels, const long *places, long count,
                      double *room, float *rows, long stride)
    void pack_rows(double *features, const double *labels, float *rows, long count, long dimension, long stride,
                   double shrink, double least)
    ctypedef struct placed_layout:
        long places, stride, cells, split
        const int *first
        const int *last
    void placed_gradients(const placed_layout *of, const sgd_training *t, const float *row, const float *lengths,
                          long count, const double *table, double *sums, int *cell, double *parts)
    void placed_sums(const placed_layout *of, const float *row, long count, const double *slopes, long several,
                     double *sums, int *cell, double *parts)
    void placed_scores(const placed_layout *of, const float *row, long count, const double *tables, long several,
                       double *scores, int *cell, double *parts)
    void placed_moments(const placed_layout *of, const float *row, long count, double grid, long *sums, int *cell,
                        double *parts)
    ctypedef struct cell_coordinates:
        const double *table
        long width
        const int *begin "from"
        const int *end "to"
    void placed_squares(const placed_layout *of, const float *row, long count, const cell_coordinates *into,
                        double *squares, int *cell, double *parts, double *moved)
    void placed_steps(const placed_layout *of, const float *row, long count, const cell_coordinates *into, double most,
                      float *steps, int *cell, double *parts, double *moved)
    ctypedef struct cell_places:
        const int *coordinate
        const int *two
        const double *size
        long dimension, entries
    void placed_products(const placed_layout *of, const cell_places *at, const float *row, long count, double grid,
                         long *sums, int *cell, double *parts, int *index, double *value, int *whole)
    void placed_forms(const placed_layout *of, const cell_places *at, const float *row, long count,
                      const double *matrix, double *forms, int *cell, double *parts, int *index, double *value)

PIECE_ROWS, SHORT_ROWS = PIECE, SHORT  # rows of a piece, and of a mini-batch that has no pieces: see _sgd.h


def add_rows(state, const float[:, ::1] rows, const double[::1] step_sizes, long averaged):
    """Add rows to the mini-batches, and update at the end of each."""
    cdef long count = rows.shape[0], stride = rows.shape[1], ended = step_sizes.shape[0]
    cdef long batch_size = state.batch_size, filled = state.filled
    cdef double[::1] model = state.model, gradient = state.gradient, rest = state.rest, total = state.total
    if model.shape[0] > stride - 1 or stride % 8 or not gradient.shape[0] == rest.shape[0] == model.shape[0]:
        raise ValueError(f"rows of {stride} places, a model of {len(model)} and a gradient of {len(gradient)} "
                         "coordinates do not fit each other")
    if batch_size < 1 or not 0 <= filled < batch_size or ended != (filled + count) // batch_size:
        raise ValueError("one step size is needed for each mini-batch that ends in these rows")
    if not 0 <= averaged <= ended or (averaged and total.shape[0] != model.shape[0]):
        raise ValueError(f"{averaged} of {ended} iterates cannot be averaged in a sum of {len(total)} coordinates")
    if count == 0:
        return
    cdef double[:, ::1] wide = _aligned(stride, 4 + _levels(count))
    wide[0, : model.shape[0]] = model
    wide[1, : model.shape[0]] = gradient
    wide[3, : model.shape[0]] = rest
    if averaged:
        wide[2, : model.shape[0]] = total
    _advance(_training(state), rows, step_sizes, wide, batch_size, filled, ended - averaged)
    model[:] = wide[0, : model.shape[0]]
    gradient[:] = wide[1, : model.shape[0]]
    rest[:] = wide[3, : model.shape[0]]
    if averaged:
        total[:] = wide[2, : model.shape[0]]


def add_rows_of_each(states, const float[:, ::1] rows, const double[:, ::1] step_sizes, const long[::1] averaged):
    """See `kernels.transition_of_each`: states that are alike."""
    cdef long stride = rows.shape[1], several = len(states), ended = step_sizes.shape[1], count = rows.shape[0]
    cdef long batch_size = states[0].batch_size, filled = states[0].filled, dimension = states[0].model.shape[0], m
    alike = {(len(s.model), len(s.gradient), len(s.rest), s.batch_size, s.filled, s.target > 0, s.loss.code)
             for s in states}
    same = (dimension, dimension, dimension, batch_size, filled, states[0].target > 0, states[0].loss.code)
    if alike != {same} or dimension > stride - 1 or stride % 8:
        raise ValueError(f"rows of {stride} places and {several} models do not fit each other")
    if batch_size < 1 or not 0 <= filled < batch_size or ended != (filled + count) // batch_size:
        raise ValueError("one step size is needed for each mini-batch that ends in these rows")
    if step_sizes.shape[0] != several or averaged.shape[0] != several:
        raise ValueError(f"{several} models need as many rows of step sizes, and numbers of averaged iterates")
    cdef long begin = 4 * several + MANY + MANY * several // stride + 1  # of the tree
    cdef double[:, ::1] wide = _aligned(stride, begin + several * _levels(count))
    padded = np.asarray(wide)
    for m, state in enumerate(states):
        if not 0 <= averaged[m] <= ended or (averaged[m] and len(state.total) != dimension):
            raise ValueError(f"{averaged[m]} of {ended} iterates cannot be averaged in {len(state.total)} coordinates")
        padded[m, :dimension], padded[several + m, :dimension] = state.model, state.gradient
        padded[3 * several + m, :dimension] = state.rest
        if averaged[m]:
            padded[2 * several + m, :dimension] = state.total
    _advance_each(states, rows, step_sizes, wide, averaged, &wide[begin, 0])
    for m, state in enumerate(states):
        state.model[:], state.gradient[:] = padded[m, :dimension], padded[several + m, :dimension]
        state.rest[:] = padded[3 * several + m, :dimension]
        if averaged[m]:
            state.total[:] = padded[2 * several + m, :dimension]


cdef _advance_each(states, const float[:, ::1] rows, const double[:, ::1] steps, double[:, ::1] wide,
                   const long[::1] averaged, double *tree):
    cdef long several = len(states), batch_size = states[0].batch_size, filled = states[0].filled
    cdef long count = rows.shape[0], stride = rows.shape[1], ended = steps.shape[1], done = 0, update = 0, take, m
    cdef double *models = &wide[0, 0]
    cdef double *gradients = &wide[several, 0]
    cdef double *totals = &wide[2 * several, 0]
    cdef double *rests = &wide[3 * several, 0]
    cdef double *features = &wide[4 * several, 0]
    cdef sgd_training *how = <sgd_training *>PyMem_Malloc(several * sizeof(sgd_training))
    if not how:
        raise MemoryError
    try:
        for m in range(several):
            how[m] = _training(states[m])
        with nogil:
            while done < count:
                take = min(batch_size - filled, count - done)
                sgd_add_part_of_each(how, &rows[done, 0], take, several, features, models, gradients, rests, tree,
                                     stride, filled == 0, filled + take == batch_size)
                done += take
                filled += take
                if filled == batch_size:
                    for m in range(several):
                        sgd_update(how + m, models + m * stride, gradients + m * stride, totals + m * stride, stride,
                                   steps[m, update], update >= ended - averaged[m])
                    update += 1
                    filled = 0
    finally:
        PyMem_Free(how)


cdef double[:, ::1] _aligned(long stride, long vectors=3):
    """Return zeros, shape (vectors, stride), that begin at a cache line: no vector of eight then lies across two."""
    memory = np.zeros(vectors * stride + 8)
    cdef double[::1] places = memory
    cdef size_t skipped = (64 - <size_t>&places[0] % 64) // 8
    return memory[skipped : skipped + vectors * stride].reshape(vectors, stride)


cdef long _levels(long count):
    """Return how many levels the tree over the pieces of some rows has."""
    cdef object pieces = (count + PIECE - 1) // PIECE
    return 1 + pieces.bit_length()


cdef sgd_training _training(state):
    return _of_loss(state.loss, state.target, INFINITY, state.batch_size, state.regularisation, state.radius)


cdef sgd_training _of_loss(loss, target, clip, batch_size, regularisation, radius):
    if loss.code not in LOSSES:
        raise ValueError(f"the compiled kernel has no loss {loss.name!r}")
    width, weight = loss.parameters
    return sgd_training(loss=loss.code, target=target, width=width, limit=loss.lipschitz, weight=weight, clip=clip,
                        batch_size=batch_size, regularisation=regularisation, radius=radius)


cdef void _advance(sgd_training how, const float[:, ::1] rows, const double[::1] steps, double[:, ::1] vectors,
                   long batch_size, long filled, long first):
    cdef long count = rows.shape[0], stride = rows.shape[1], done = 0, update = 0, take
    cdef double *model = &vectors[0, 0]
    cdef double *gradient = &vectors[1, 0]
    cdef double *total = &vectors[2, 0]
    cdef double *rest = &vectors[3, 0]
    cdef double *tree = &vectors[4, 0]
    with nogil:
        if batch_size == 1:
            sgd_single_rows(&how, &rows[0, 0], count, model, total, stride, &steps[0], first)
            return
        while done < count:
            take = min(batch_size - filled, count - done)
            sgd_add_part(&how, &rows[done, 0], take, model, gradient, rest, tree, stride, filled == 0,
                         filled + take == batch_size)
            done += take
            filled += take
            if filled == batch_size:
                sgd_update(&how, model, gradient, total, stride, steps[update], update >= first)
                update += 1
                filled = 0


def gradient_sum(loss, long target, const double[::1] model, const float[:, ::1] rows, double clip,
                 const float[::1] lengths=None):
    """Return the sum of the clipped gradients of one linear model, shape (d,); see `objectives.Linear`."""
    cdef long count = rows.shape[0], stride = rows.shape[1], dimension = model.shape[0]
    if dimension > stride - 1 or stride % 8:
        raise ValueError(f"rows of {stride} places and a model of {dimension} coordinates do not fit each other")
    if lengths is not None and lengths.shape[0] != count:
        raise ValueError(f"{len(lengths)} lengths do not fit {count} rows")
    cdef sgd_training how = _of_loss(loss, target, clip, 1, 0, INFINITY)
    cdef double[:, ::1] wide = _aligned(stride, 1 + LEVELS)
    cdef const float *measured = NULL
    wide[0, :dimension] = model
    if count:
        measured = NULL if lengths is None else &lengths[0]
        with nogil:
            sgd_sum_gradients(&how, &rows[0, 0], measured, count, &wide[0, 0], &wide[1, 0], stride)
    return np.array(wide[1, :dimension])


def loss_sums(loss, long target, const double[:, ::1] models, const float[:, ::1] rows, double most):
    """Return the sums of losses, each at most `most`, for each linear model, shape (C,); see `objectives.Linear`."""
    cdef long count = rows.shape[0], stride = rows.shape[1], dimension = models.shape[1], candidates = models.shape[0]
    if dimension > stride - 1 or stride % 8:
        raise ValueError(f"rows of {stride} places and models of {dimension} coordinates do not fit each other")
    cdef sgd_training how = _of_loss(loss, target, INFINITY, 1, 0, INFINITY)
    cdef double[:, ::1] wide = np.zeros((candidates, stride)), tree = np.zeros((LEVELS, candidates))
    cdef double[::1] columns = np.empty(8 * stride)
    wide[:, :dimension] = models
    if count and candidates:
        with nogil:
            sgd_sum_losses(&how, &rows[0, 0], count, &wide[0, 0], candidates, stride, most, &tree[0, 0], &columns[0])
    return np.array(tree[0])


def recursive_steps(loss, long target, double[::1] model, double[::1] direction, const float[:, ::1] rows, double step,
                    double regularisation):
    """See `kernels.recursive_steps`."""
    cdef long count = rows.shape[0], stride = rows.shape[1], dimension = model.shape[0]
    if dimension > stride - 1 or stride % 8 or direction.shape[0] != dimension:
        raise ValueError(f"rows of {stride} places, a model of {dimension} and a direction of {len(direction)} "
                         "coordinates do not fit each other")
    cdef sgd_training how = _of_loss(loss, target, INFINITY, 1, regularisation, INFINITY)
    cdef double[:, ::1] wide = _aligned(stride)
    wide[0, :dimension] = model
    wide[1, :dimension] = direction
    if count:
        with nogil:
            recursive_rows(&how, &rows[0, 0], count, &wide[0, 0], &wide[1, 0], stride, step)
    model[:] = wide[0, :dimension]
    direction[:] = wide[1, :dimension]


def noisy_updates(state, const float[:, ::1] rows, const long[::1] ends, const double[::1] step_sizes,
                  const long[:, ::1] noise):
    """See `noisy.updates_of_any`."""
    cdef long stride = rows.shape[1], parameters = state.model.shape[0]
    if parameters > stride - 1 or stride % 8 or noise.shape[1] != parameters:
        raise ValueError(f"rows of {stride} places, a model of {parameters} and noise of {noise.shape[1]} coordinates "
                         "do not fit each other")
    _check_ends(ends, step_sizes, noise, rows.shape[0])
    vectors = [state.model, state.gradient, state.rest, *state.averages]
    cdef double[:, ::1] wide = _aligned(stride, 5 + _levels(rows.shape[0]))
    padded = np.asarray(wide)
    for place, vector in enumerate(vectors):
        padded[place, :parameters] = vector
    _noisy(state.training, rows, ends, step_sizes, noise, wide, state.updates)
    for place, vector in enumerate(vectors):
        vector[:] = padded[place, :parameters]


cdef _check_ends(const long[::1] ends, const double[::1] step_sizes, const long[:, ::1] noise, long rows):
    cdef long begin = 0, end, update
    if step_sizes.shape[0] != ends.shape[0] or noise.shape[0] != ends.shape[0]:
        raise ValueError("one step size and one noise are needed for each mini-batch that ends in these rows")
    for update in range(ends.shape[0]):
        end = ends[update]
        if not begin <= end <= rows:
            raise ValueError(f"a mini-batch ends at row {end}, outside the {rows} rows of the block or out of order")
        begin = end


cdef _noisy(how, const float[:, ::1] rows, const long[::1] ends, const double[::1] step_sizes,
            const long[:, ::1] noise, double[:, ::1] wide, long former):
    cdef sgd_training linear = _of_loss(how.objective.loss, how.objective.target, how.limit, how.divisor,
                                        how.regularisation, how.radius)
    cdef bint adaptive = how.moments is not None
    decay1, decay2, floor = how.moments or (0.0, 0.0, 0.0)
    cdef adam decays = adam(decay1=decay1, decay2=decay2, floor=floor)
    cdef double grid = how.noise.grid
    cdef long stride = rows.shape[1], parameters = noise.shape[1], begin = 0, update
    cdef double *model = &wide[0, 0]
    cdef double *gradient = &wide[1, 0]
    cdef double *rest = &wide[2, 0]
    cdef double *first = &wide[3, 0]
    cdef double *second = &wide[4, 0]
    cdef double *tree = &wide[5, 0]
    cdef const float *row = &rows[0, 0] if rows.shape[0] else NULL
    with nogil:
        for update in range(ends.shape[0]):
            sgd_add_part(&linear, row + begin * stride, ends[update] - begin, model, gradient, rest, tree, stride,
                         update > 0, True)
            begin = ends[update]
            if adaptive:
                noisy_adam(&linear, &decays, model, gradient, first, second, stride, step_sizes[update],
                           &noise[update, 0], parameters, grid, 1.0 - decays.decay1 ** (former + update + 1),
                           1.0 - decays.decay2 ** (former + update + 1))
            else:
                noisy_update(&linear, model, gradient, stride, step_sizes[update], &noise[update, 0], parameters, grid)
        sgd_add_part(&linear, row + begin * stride, rows.shape[0] - begin, model, gradient, rest, tree, stride,
                     ends.shape[0] > 0, False)


def unpack(const float[:, ::1] rows, long dimension):
    """See `kernels.unpacked`."""
    cdef long count = rows.shape[0], stride = rows.shape[1]
    if not 0 <= dimension < stride:
        raise ValueError(f"rows of {stride} places do not have {dimension} coordinates and a label")
    features, labels, valid = np.empty((count, dimension)), np.empty(count), np.empty(count, np.uint8)
    cdef double[::1] places = features.reshape(-1), of_labels = labels
    cdef unsigned char[::1] of_valid = valid
    cdef double nowhere = 0
    if count:
        with nogil:
            unpack_rows(&rows[0, 0], count, dimension, stride, &places[0] if dimension else &nowhere, &of_labels[0],
                        &of_valid[0])
    return features, labels, valid.view(bool)


def pack(double[:, ::1] features, const double[::1] labels, float[:, ::1] rows, double shrink, double least):
    """See `encoding.pack`."""
    cdef long count = features.shape[0], dimension = features.shape[1], stride = rows.shape[1]
    if labels.shape[0] != count or rows.shape[0] != count or dimension > stride - 1 or dimension < 1:
        raise ValueError("features, labels and rows do not fit each other")
    if count:
        with nogil:
            pack_rows(&features[0, 0], &labels[0], &rows[0, 0], count, dimension, stride, shrink, least)


def pack_vectors(encoder, const unsigned char[::1] raw, const double[::1] labels, float[:, ::1] rows,
                 const long[::1] places, double shrink, double least):
    """See `encoding.VectorEncoder.pack`."""
    cdef long count = labels.shape[0], stride = rows.shape[1]
    cdef const double[::1] factors = encoder.scales
    cdef vector_records of = vector_records(bytes=encoder.record_bytes, length=encoder.length, dimension=factors.shape[0],
                                            factor=factors[0], constant=factors[factors.shape[0] - 1], shrink=shrink,
                                            least=least)
    if places.shape[0] != count or raw.shape[0] != count * of.bytes or of.dimension > stride - 1 or of.length < 1:
        raise ValueError("records, labels, places and rows do not fit each other")
    if count and not 0 <= np.min(places) <= np.max(places) < rows.shape[0]:
        raise ValueError(f"places of records must be from 0 to {len(rows) - 1}")
    cdef double[::1] room = np.empty(of.dimension)
    if count:
        with nogil:
            pack_records(&of, <const char *>&raw[0], &labels[0], &places[0], count, &room[0], &rows[0, 0], stride)


def begin_flushing():
    """Treat numbers below 2⁻¹⁰²² as 0 in this thread; return the former state, for `end_flushing`."""
    return flush()


def end_flushing(unsigned long former):
    """Restore the state before `begin_flushing`."""
    unflush(former)


def exponential(const double[::1] exponents):
    """See `arithmetic.exponential`."""
    out = np.empty(exponents.shape[0])
    cdef double[::1] place = out
    if exponents.shape[0]:
        exponentials(&exponents[0], &place[0], exponents.shape[0])
    return out


def log1p_exponential(const double[::1] exponents):
    """See `arithmetic.log1p_exponential`."""
    out = np.empty(exponents.shape[0])
    cdef double[::1] place = out
    if exponents.shape[0]:
        log1p_exponentials(&exponents[0], &place[0], exponents.shape[0])
    return out


include "_places.pxi"
