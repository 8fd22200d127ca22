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
    const long MANY
    const long PIECE
    void sgd_add_gradients_of_each(const sgd_training *t, const float *row, long count, long several, double *features,
                                   const double *models, double *gradients, long stride)
    void sgd_add_measured(const sgd_training *t, const float *row, const float *lengths, long count, const double *model,
                          double *gradient, long stride)
    void sgd_add_losses(const sgd_training *t, const float *row, long count, const double *models, long candidates,
                        long stride, double most, double *sums, double *columns)
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


def add_rows(state, const float[:, ::1] rows, const double[::1] step_sizes, long averaged):
    """Add rows to the mini-batches, and update at the end of each."""
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


def add_rows_of_each(states, const float[:, ::1] rows, const double[:, ::1] step_sizes, const long[::1] averaged):
    """See `kernels.transition_of_each`: states that are alike."""
    cdef long stride = rows.shape[1], several = len(states), ended = step_sizes.shape[1], count = rows.shape[0]
    cdef long batch_size = states[0].batch_size, filled = states[0].filled, dimension = states[0].model.shape[0], m
    alike = {(len(s.model), len(s.gradient), s.batch_size, s.filled, s.target > 0, s.loss.code) for s in states}
    same = (dimension, dimension, batch_size, filled, states[0].target > 0, states[0].loss.code)
    if alike != {same} or dimension > stride - 1 or stride % 8:
        raise ValueError(f"rows of {stride} places and {several} models do not fit each other")
    if batch_size < 1 or not 0 <= filled < batch_size or ended != (filled + count) // batch_size:
        raise ValueError("one step size is needed for each mini-batch that ends in these rows")
    if step_sizes.shape[0] != several or averaged.shape[0] != several:
        raise ValueError(f"{several} models need as many rows of step sizes, and numbers of averaged iterates")
    cdef double[:, ::1] wide = _aligned(stride, 3 * several + MANY + MANY * several // stride + 1)
    padded = np.asarray(wide)
    for m, state in enumerate(states):
        if not 0 <= averaged[m] <= ended or (averaged[m] and len(state.total) != dimension):
            raise ValueError(f"{averaged[m]} of {ended} iterates cannot be averaged in {len(state.total)} coordinates")
        padded[m, :dimension], padded[several + m, :dimension] = state.model, state.gradient
        if averaged[m]:
            padded[2 * several + m, :dimension] = state.total
    _advance_each(states, rows, step_sizes, wide, averaged)
    for m, state in enumerate(states):
        state.model[:], state.gradient[:] = padded[m, :dimension], padded[several + m, :dimension]
        if averaged[m]:
            state.total[:] = padded[2 * several + m, :dimension]


cdef _advance_each(states, const float[:, ::1] rows, const double[:, ::1] steps, double[:, ::1] wide,
                   const long[::1] averaged):
    cdef long several = len(states), batch_size = states[0].batch_size, filled = states[0].filled
    cdef long count = rows.shape[0], stride = rows.shape[1], ended = steps.shape[1], done = 0, update = 0, take, m
    cdef double *models = &wide[0, 0]
    cdef double *gradients = &wide[several, 0]
    cdef double *totals = &wide[2 * several, 0]
    cdef double *features = &wide[3 * several, 0]
    cdef sgd_training *how = <sgd_training *>PyMem_Malloc(several * sizeof(sgd_training))
    if not how:
        raise MemoryError
    try:
        for m in range(several):
            how[m] = _training(states[m])
        with nogil:
            while done < count:
                take = min(batch_size - filled, count - done)
                sgd_add_gradients_of_each(how, &rows[done, 0], take, several, features, models, gradients, stride)
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


def gradient_sum(loss, long target, const double[::1] model, const float[:, ::1] rows, double clip,
                 const float[::1] lengths=None):
    """Return the sum of the clipped gradients of one linear model, shape (d,); see `objectives.Linear`."""
    cdef long count = rows.shape[0], stride = rows.shape[1], dimension = model.shape[0]
    if dimension > stride - 1 or stride % 8:
        raise ValueError(f"rows of {stride} places and a model of {dimension} coordinates do not fit each other")
    if lengths is not None and lengths.shape[0] != count:
        raise ValueError(f"{len(lengths)} lengths do not fit {count} rows")
    cdef sgd_training how = _of_loss(loss, target, clip, 1, 0, INFINITY)
    cdef double[:, ::1] wide = _aligned(stride)
    wide[0, :dimension] = model
    if count and lengths is not None:
        with nogil:
            sgd_add_measured(&how, &rows[0, 0], &lengths[0], count, &wide[0, 0], &wide[1, 0], stride)
    elif count:
        with nogil:
            sgd_add_gradients(&how, &rows[0, 0], count, &wide[0, 0], &wide[1, 0], stride)
    return np.array(wide[1, :dimension])


def loss_sums(loss, long target, const double[:, ::1] models, const float[:, ::1] rows, double most):
    """Return the sums of losses, each at most `most`, for each linear model, shape (C,); see `objectives.Linear`."""
    cdef long count = rows.shape[0], stride = rows.shape[1], dimension = models.shape[1], candidates = models.shape[0]
    if dimension > stride - 1 or stride % 8:
        raise ValueError(f"rows of {stride} places and models of {dimension} coordinates do not fit each other")
    cdef sgd_training how = _of_loss(loss, target, INFINITY, 1, 0, INFINITY)
    cdef double[:, ::1] wide = np.zeros((candidates, stride))
    cdef double[::1] sums = np.zeros(candidates), columns = np.empty(8 * stride)
    wide[:, :dimension] = models
    if count and candidates:
        with nogil:
            sgd_add_losses(&how, &rows[0, 0], count, &wide[0, 0], candidates, stride, most, &sums[0],
                           &columns[0])
    return np.asarray(sums)


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
    vectors = [(0, 0, state.model), (0, stride, state.gradient)]
    if state.training.moments:
        vectors += [(1, 0, state.averages[0]), (1, stride, state.averages[1])]
    cdef double[:, ::1] wide = _aligned(2 * stride)
    padded = np.asarray(wide)
    for row, begin, vector in vectors:
        padded[row, begin : begin + parameters] = vector
    _noisy(state.training, rows, ends, step_sizes, noise, wide, state.updates)
    for row, begin, vector in vectors:
        vector[:] = padded[row, begin : begin + parameters]


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
    cdef double *gradient = &wide[0, stride]
    cdef double *first = &wide[1, 0]
    cdef double *second = &wide[1, stride]
    with nogil:
        for update in range(ends.shape[0]):
            if ends[update] > begin:
                sgd_add_gradients(&linear, &rows[begin, 0], ends[update] - begin, model, gradient, stride)
            begin = ends[update]
            if adaptive:
                noisy_adam(&linear, &decays, model, gradient, first, second, stride, step_sizes[update],
                           &noise[update, 0], parameters, grid, 1.0 - decays.decay1 ** (former + update + 1),
                           1.0 - decays.decay2 ** (former + update + 1))
            else:
                noisy_update(&linear, model, gradient, stride, step_sizes[update], &noise[update, 0], parameters, grid)
        if rows.shape[0] > begin:
            sgd_add_gradients(&linear, &rows[begin, 0], rows.shape[0] - begin, model, gradient, stride)


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


cdef class PlacedLayout:
    """Where the cells of each place are: see `placed`. `sizes` are the numbers of cells, 2 or more, of each place.

    From place `split` on a row is in one cell. Of each cell the one of `dimension` coordinates that it has, and its size
    there; and of each place whether a row has `two` coordinates between two cells, or one.
    """

    cdef placed_layout of
    cdef cell_places at
    cdef int[::1] first, last, coordinates, two
    cdef double[::1] heights

    def __init__(self, const long[::1] sizes, long stride, long split, long dimension, coordinates, heights, two):
        cdef long place, cells = 0
        if not 0 < split <= sizes.shape[0] < stride or stride % 8 or np.min(sizes) < 2:
            raise ValueError(f"{len(sizes)} places, {split} of them split, do not fit rows of {stride}, or one has no "
                             "two cells")
        self.first, self.last = np.zeros(stride, np.intc), np.zeros(stride, np.intc)
        for place in range(sizes.shape[0]):
            self.first[place], self.last[place] = cells, sizes[place] - (2 if place < split else 1)
            cells += sizes[place]
        self.of = placed_layout(places=sizes.shape[0], stride=stride, cells=cells, split=split,
                                first=&self.first[0], last=&self.last[0])
        self.coordinates, self.two = np.array(coordinates, np.intc), np.array(two, np.intc)
        self.heights = np.array(heights, np.float64)
        if len(self.coordinates) != cells or len(self.heights) != cells or len(self.two) != len(sizes):
            raise ValueError(f"{len(coordinates)} coordinates, {len(heights)} heights and {len(two)} kinds do not fit "
                             f"{cells} cells of {len(sizes)} places")
        if np.min(self.coordinates) < 0 or np.max(self.coordinates) >= dimension:
            raise ValueError(f"a coordinate of a cell is not one of {dimension}")
        self.at = cell_places(coordinate=&self.coordinates[0], two=&self.two[0], size=&self.heights[0],
                              dimension=dimension, entries=len(sizes) + np.count_nonzero(self.two))

    cdef long _count(self, const float[:, ::1] rows) except -1:
        if rows.shape[1] != self.of.stride:
            raise ValueError(f"rows of {rows.shape[1]} floats do not have the {self.of.stride} of their layout")
        return rows.shape[0]

    def gradient_sums(self, loss, const double[::1] table, const float[:, ::1] rows, double clip,
                      const float[::1] lengths):
        """Return the sums of the clipped slopes' parts of each cell and of the next one, shape (cells, 2)."""
        cdef long count = self._count(rows)
        cdef int[::1] cell = np.empty(4 * self.of.stride, np.intc)
        cdef double[::1] parts = np.empty(8 * self.of.stride)
        cdef sgd_training how = _of_loss(loss, 0, clip, 1, 0, INFINITY)
        if table.shape[0] != self.of.cells or lengths.shape[0] != count:
            raise ValueError(f"{len(table)} numbers do not fit {self.of.cells} cells, or {len(lengths)} lengths the "
                             f"{count} rows")
        sums = np.zeros((self.of.cells, 2))
        cdef double[:, ::1] of_cells = sums
        if count:
            with nogil:
                placed_gradients(&self.of, &how, &rows[0, 0], &lengths[0], count, &table[0], &of_cells[0, 0], &cell[0],
                                 &parts[0])
        return sums

    def sums(self, const double[:, ::1] slopes, const float[:, ::1] rows):
        """Return the sums of rows' parts, as `gradient_sums`, times slopes (n, several): (several, cells, 2)."""
        cdef long count = self._count(rows), several = slopes.shape[1]
        cdef int[::1] cell = np.empty(self.of.stride, np.intc)
        cdef double[::1] parts = np.empty(2 * self.of.stride)
        if slopes.shape[0] != count:
            raise ValueError(f"{len(slopes)} slopes do not fit {count} rows")
        sums = np.zeros((several, self.of.cells, 2))
        cdef double[:, :, ::1] of_cells = sums
        if count and several:
            with nogil:
                placed_sums(&self.of, &rows[0, 0], count, &slopes[0, 0], several, &of_cells[0, 0, 0], &cell[0],
                            &parts[0])
        return sums

    def scores(self, const double[:, ::1] tables, const float[:, ::1] rows):
        """Return the scores of rows by tables of cells (several, cells), shape (n, several)."""
        cdef long count = self._count(rows), several = tables.shape[0]
        cdef int[::1] cell = np.empty(self.of.stride, np.intc)
        cdef double[::1] parts = np.empty(2 * self.of.stride)
        if tables.shape[1] != self.of.cells:
            raise ValueError(f"{tables.shape[1]} numbers do not fit {self.of.cells} cells")
        scores = np.empty((count, several))
        cdef double[:, ::1] of_rows = scores
        if count and several:
            with nogil:
                placed_scores(&self.of, &rows[0, 0], count, &tables[0, 0], several, &of_rows[0, 0], &cell[0], &parts[0])
        return scores

    cdef cell_coordinates _coordinates(self, const double[:, ::1] table, const int[:, ::1] ranges) except *:
        cdef long width = table.shape[1]
        if table.shape[0] != self.of.cells or width < 8 or width % 8:
            raise ValueError(f"{len(table)} by {width} numbers do not fit {self.of.cells} cells")
        if ranges.shape[0] != 2 or ranges.shape[1] != self.of.places or np.any(np.asarray(ranges) % 8):
            raise ValueError(f"ranges of coordinates are not of {self.of.places} places, or not of eights")
        if np.min(ranges) < 0 or np.max(ranges) > width:
            raise ValueError(f"a range of coordinates is not in the {width}")
        return cell_coordinates(table=&table[0, 0], width=width, begin=&ranges[0, 0], end=&ranges[1, 0])

    def squares(self, const double[:, ::1] table, const int[:, ::1] ranges, const float[:, ::1] rows):
        """Return the squared lengths of rows in other coordinates, (n,): see `placed_squares`."""
        cdef long count = self._count(rows)
        cdef cell_coordinates into = self._coordinates(table, ranges)
        cdef int[::1] cell = np.empty(self.of.stride, np.intc)
        cdef double[::1] parts = np.empty(2 * self.of.stride), moved = np.empty(into.width)
        squares = np.empty(count)
        cdef double[::1] of_rows = squares
        if count:
            with nogil:
                placed_squares(&self.of, &rows[0, 0], count, &into, &of_rows[0], &cell[0], &parts[0], &moved[0])
        return squares

    def moments(self, const float[:, ::1] rows, long grid):
        """Return the sums of a², b² and ab, shape (cells, 3): see `placed_moments`."""
        cdef long count = self._count(rows)
        cdef int[::1] cell = np.empty(4 * self.of.stride, np.intc)
        cdef double[::1] parts = np.empty(8 * self.of.stride)
        sums = np.zeros((self.of.cells, 3), np.int64)
        cdef long[:, ::1] of_cells = sums
        if count:
            with nogil:
                placed_moments(&self.of, &rows[0, 0], count, grid, &of_cells[0, 0], &cell[0], &parts[0])
        return sums

    def steps(self, const double[:, ::1] table, const int[:, ::1] ranges, const float[:, ::1] rows, double most,
              float[:, ::1] steps):
        """Write rows in other coordinates, cut and rounded, to the first of `steps` (…, width): see `placed_steps`."""
        cdef long count = self._count(rows)
        cdef cell_coordinates into = self._coordinates(table, ranges)
        cdef int[::1] cell = np.empty(self.of.stride, np.intc)
        cdef double[::1] parts = np.empty(2 * self.of.stride), moved = np.empty(into.width)
        if steps.shape[0] < count or steps.shape[1] != into.width:
            raise ValueError(f"{len(steps)} by {steps.shape[1]} numbers do not hold {count} rows of {into.width}")
        if count:
            with nogil:
                placed_steps(&self.of, &rows[0, 0], count, &into, most, &steps[0, 0], &cell[0], &parts[0], &moved[0])

    def products(self, const float[:, ::1] rows, double grid):
        """Return the sums of products of coordinates, int64, (dimension, dimension): see `placed_products`."""
        cdef long count = self._count(rows), dimension = self.at.dimension
        cdef long room = PIECE * self.at.entries
        cdef int[::1] cell = np.empty(self.of.stride, np.intc), index = np.empty(room, np.intc)
        cdef int[::1] whole = np.empty(room, np.intc)
        cdef double[::1] parts = np.empty(2 * self.of.stride), value = np.empty(room)
        sums = np.zeros((dimension, dimension), np.int64)
        cdef long[:, ::1] of_pairs = sums
        if count:
            with nogil:
                placed_products(&self.of, &self.at, &rows[0, 0], count, grid, &of_pairs[0, 0], &cell[0], &parts[0],
                                &index[0], &value[0], &whole[0])
        return sums

    def forms(self, const float[:, ::1] rows, const double[:, ::1] matrix):
        """Return xᵀGx of the coordinates x of each row, (n,), for a symmetric matrix G: see `placed_forms`."""
        cdef long count = self._count(rows), room = PIECE * self.at.entries
        cdef int[::1] cell = np.empty(self.of.stride, np.intc), index = np.empty(room, np.intc)
        cdef double[::1] parts = np.empty(2 * self.of.stride), value = np.empty(room)
        if matrix.shape[0] != self.at.dimension or matrix.shape[1] != self.at.dimension:
            raise ValueError(f"a matrix of {len(matrix)} by {matrix.shape[1]} does not fit {self.at.dimension} "
                             "coordinates")
        forms = np.empty(count)
        cdef double[::1] of_rows = forms
        if count:
            with nogil:
                placed_forms(&self.of, &self.at, &rows[0, 0], count, &matrix[0, 0], &of_rows[0], &cell[0], &parts[0],
                             &index[0], &value[0])
        return forms
