# The kernels of rows in places, see `learning.rows.placed`.


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
        cdef long room = PLACED_ROWS * self.at.entries
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
        cdef long count = self._count(rows), room = PLACED_ROWS * self.at.entries
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
