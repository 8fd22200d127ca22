# Scorers of linear models: of arrays, of rows in their binary form, and of rows as they are stored.

cdef tuple _PLAIN = (NOTHING, 1.0, -INFINITY, INFINITY)
cdef tuple _NO_PAIRS = ((), (), 0.0)


cdef class _Linear(Scorer):
    """A linear scorer; the base class, with the intercept and the ending of the sum; see `row_columns.Ending`."""

    cdef double _intercept, _square, _norm_bound, _least, _most

    cdef _end_by(self, double intercept, ending):
        self._intercept = intercept
        self._square, self._norm_bound, self._least, self._most = ending

    cdef double _ended(self, double decision, double square):
        """Return the decision from the sum and the squared norm of the features."""
        if self._square == self._square:
            square += self._square
            decision = decision / sqrt(square) if square > 0.0 else 0.0 * decision
        return min(max(decision, self._least), self._most)


cdef class VectorScorer(_Linear):
    """Computes intercept + ⟨weights, array⟩ from the bytes of a float8[] or float4[].

    It returns None for an array of another shape, with a null, or with a value that is not finite.
    """

    cdef double[::1] _weights

    def __init__(self, weights, double intercept, ending=_PLAIN):
        self._weights = array("d", weights)
        self._end_by(intercept, ending)

    cdef double decision(self, bytes features):
        cdef int header[5]
        cdef long length = self._weights.shape[0], size = PyBytes_Size(features)
        cdef const char *data = PyBytes_AsString(features)
        if size < 20:
            return NOTHING
        memcpy(header, data, 20)
        cdef bint narrow = header[2] == FLOAT4
        if header[0] != 1 or header[1] != 0 or header[3] != length or size != 20 + length * (4 if narrow else 8):
            return NOTHING
        cdef double square = 0.0
        cdef double decision = self._intercept + score_array(data + 20, length, &self._weights[0], narrow, &square)
        if self._square != self._square:
            return self._ended(decision, 0.0) if decision - decision == 0.0 else NOTHING
        square /= self._norm_bound * self._norm_bound
        if decision - decision == 0.0 and LEAST_SQUARE < square + self._square < MOST_SQUARE:
            return self._ended(decision, square)
        return self._of_extremes(data + 20, length, narrow)

    cdef double _of_extremes(self, const char *data, long length, bint narrow):
        """Return the decision if a square overflows or underflows: its largest number is divided out first."""
        cdef double largest = self._norm_bound if self._square else 0.0, decision, share, square
        cdef long i
        for i in range(length):
            share = _element(data, i, narrow)
            if share - share != 0.0:
                return NOTHING
            largest = max(largest, fabs(share))
        if largest == 0.0:
            return 0.0
        decision = self._intercept / largest
        square = self._square * (self._norm_bound / largest) ** 2 if self._square else 0.0
        for i in range(length):
            share = _element(data, i, narrow) / largest
            decision += self._weights[i] * share
            square += share * share
        return decision * (self._norm_bound / sqrt(square))


cdef double LEAST_SQUARE = 1e-280, MOST_SQUARE = 1e280  # between them a sum of squares has neither overflowed nor underflowed


cdef double _element(const char *data, long place, bint narrow) noexcept nogil:
    cdef double wide
    cdef float single
    if narrow:
        memcpy(&single, data + 4 * place, 4)
        return single
    memcpy(&wide, data + 8 * place, 8)
    return wide


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


cdef class _Columns(_Linear):
    """A scorer of rows; the base class, which computes the contribution of a column; see `row_columns.Column`.

    Factors are 0 if the scale is linear. The intervals of all columns, bins or between knots, are stored one after the
    other, and the first one of each column begins at -∞. The groups of a column for pairs of columns follow one
    another, and so do their edges and the weights of the pairs; see `row_columns.Crossing`.
    """

    cdef bytes _kinds
    cdef double[::1] _weights, _lower, _upper, _origins, _lengths, _centres, _factors
    cdef double[::1] _begins, _interval_weights, _rises, _starts, _interval_lengths
    cdef long long[::1] _first, _intervals
    cdef list _lookups
    cdef double _squares  # of the row that is scored, so far
    cdef long long[::1] _first_group, _first_edge, _counts, _first_cell, _ones, _others
    cdef double[::1] _edges, _cells
    cdef list _group_lookups
    cdef double _cell_square
    cdef long long[::1] _groups  # of the row that is scored; -1 for an unknown category
    cdef double[::1] _missing, _indicators  # what NULL counts as, and its indicator's weight, NaN without one

    def __init__(self, columns, double intercept, ending=_PLAIN, crossing=_NO_PAIRS):
        self._end_by(intercept, ending)
        self._kinds = "".join(column.kind for column in columns).encode()
        self._weights, self._lower, self._upper = _transposed([column.numbers for column in columns], 3)
        self._origins, self._lengths = _transposed([column.affine for column in columns], 2)
        self._centres, self._factors = _transposed([column.bend or (0.0, 0.0) for column in columns], 2)
        self._lookups = [column.lookup for column in columns]
        self._missing = array("d", [column.missing for column in columns])
        self._indicators = array("d", [NOTHING if column.indicator is None else column.indicator for column in columns])
        intervals = [column.intervals for column in columns]
        self._intervals = array("q", [len(each) for each in intervals])
        self._first = _begins([len(each) for each in intervals])
        each = [interval for of_column in intervals for interval in of_column] or [(0.0,) * 5]
        self._begins, self._interval_weights, self._rises, self._starts, self._interval_lengths = _transposed(each, 5)
        self._cross(crossing)

    cdef _cross(self, crossing):
        """Store the pairs of columns; raise ValueError unless every group and every cell exists."""
        groups, pairs, self._cell_square = crossing
        order = sorted(range(len(groups)), key=lambda number: groups[number].place)
        self._group_lookups = [groups[number].lookup for number in order]
        for group, lookup in [(groups[number], groups[number].lookup) for number in order]:
            kinds = (b"i", b"f", b"c") if lookup is None else (b"t", b"b")
            has_place = 0 <= group.place < len(self._kinds) and self._kinds[group.place : group.place + 1] in kinds
            fits = len(group.edges) + 1 == group.groups if lookup is None else _are_below(lookup, group.groups)
            if not has_place or not fits:
                raise ValueError("a column of a pair is not one of the row, or has other groups")
        for one, other, weights in pairs:
            if not (0 <= one < len(groups) and 0 <= other < len(groups)):
                raise ValueError("a pair needs two columns")
            if len(weights) != groups[one].groups * groups[other].groups:
                raise ValueError("a pair of columns needs one weight for each cell")
        edges = [groups[number].edges for number in order]
        self._first_group = _begins([sum(group.place == place for group in groups) for place in range(len(self._kinds))])
        self._first_edge, self._edges = _begins([len(each) for each in edges]), _joined(edges)
        self._counts = array("q", [groups[number].groups for number in order] or [0])
        self._groups = array("q", [-1] * len(groups) or [0])
        self._ones = array("q", [order.index(one) for one, _, _ in pairs] or [0])
        self._others = array("q", [order.index(other) for _, other, _ in pairs] or [0])
        cells = [weights for _, _, weights in pairs]
        self._first_cell, self._cells = _begins([len(each) for each in cells]), _joined(cells)

    cdef double _of_cells(self):
        """Return the summands of the pairs in the decision; add their squares to the row's."""
        cdef double added = 0.0
        cdef long long one, other
        cdef long pair
        for pair in range(self._first_cell.shape[0] - 1):
            one, other = self._groups[self._ones[pair]], self._groups[self._others[pair]]
            if one >= 0 and other >= 0:
                added += self._cells[self._first_cell[pair] + one * self._counts[self._others[pair]] + other]
                self._squares += self._cell_square
        return added

    cdef _group_category(self, long column, bytes value):
        cdef long group
        for group in range(self._first_group[column], self._first_group[column + 1]):
            self._groups[group] = (<dict> self._group_lookups[group]).get(value, -1)

    cdef void _group_number(self, long column, double value):
        cdef long group
        cdef long long place
        for group in range(self._first_group[column], self._first_group[column + 1]):
            place = self._first_edge[group]
            while place < self._first_edge[group + 1] and self._edges[place] <= value:
                place += 1
            self._groups[group] = place - self._first_edge[group]

    cdef double _category(self, long column, bytes value):
        if self._kinds[column] == b"b" and value is not None:
            value = value.rstrip(b" ")
        self._group_category(column, value)
        weight = (<dict> self._lookups[column]).get(value)
        if weight is None:
            return 0.0
        self._squares += 1.0
        return <double> weight

    cdef double _weighted(self, long column, double value):
        """Return a number's summand in the decision; add its square to the row's."""
        cdef double position
        if value - value != 0.0:
            return self._absent(column)
        self._group_number(column, value)
        if self._intervals[column]:
            return self._of_interval(column, value)
        position = (self._position(column, value) - self._origins[column]) / self._lengths[column]
        self._squares += position * position
        return self._weights[column] * position

    cdef double _absent(self, long column):
        """Return the summand of NULL, or of a number that is not finite; NaN if the column requires a value."""
        cdef double added = 0.0
        if self._missing[column] != self._missing[column]:
            return NOTHING
        if self._kinds[column] == b"t" or self._kinds[column] == b"b":
            return self._category(column, None)
        if self._indicators[column] == self._indicators[column]:
            self._squares += 1.0
            added = self._indicators[column]
        return added + self._weighted(column, self._missing[column])

    cdef double _position(self, long column, double value):
        """Return a number's position on the scale of its column."""
        cdef double clipped = min(max(value, self._lower[column]), self._upper[column])
        if self._factors[column] == 0.0:
            return clipped
        return asinh((clipped - self._centres[column]) * self._factors[column])

    cdef double _of_interval(self, long column, double value):
        cdef double part
        cdef long long place = self._first[column], last = place + self._intervals[column] - 1
        while place < last and self._begins[place + 1] <= value:
            place += 1
        if self._interval_lengths[place] == INFINITY:
            self._squares += 1.0
            return self._interval_weights[place]
        part = (self._position(column, value) - self._starts[place]) / self._interval_lengths[place]
        part = min(max(part, 0.0), 1.0)
        self._squares += part * part + (1.0 - part) * (1.0 - part)
        return self._interval_weights[place] + self._rises[place] * part


def _are_below(lookup, long long groups):
    """Return whether a lookup has groups from 0 to below a number."""
    return all(0 <= group < groups for group in lookup.values())


cdef _begins(sizes):
    """Return where each of some parts begins that follow one another, and where the last one ends."""
    return array("q", [sum(sizes[:place]) for place in range(len(sizes) + 1)])


cdef _joined(parts):
    """Return the numbers of all parts; one 0 if there are none."""
    return array("d", [number for part in parts for number in part] or [0])


cdef _transposed(rows, long parts):
    """Return the columns of a list of tuples."""
    return [array("d", [row[part] for row in rows]) for part in range(parts)]


cdef class RecordScorer(_Columns):
    """Computes intercept + Σ contribution of each column from the binary form of a row (`record_send`).

    Columns are in the row's order. It returns None if a feature that requires a value is null or not finite; numbers
    are clipped to their bounds.
    """

    cdef double decision(self, bytes record):
        cdef const unsigned char *place = <const unsigned char *> PyBytes_AsString(record)
        cdef const unsigned char *end = place + PyBytes_Size(record)
        cdef const char *kinds = PyBytes_AsString(self._kinds)
        cdef double decision = self._intercept
        cdef long column, size
        self._squares = 0.0
        if end - place < 4 or <int> _big_endian(place, 4) != <long> len(self._kinds):
            return NOTHING
        place += 4
        for column in range(len(self._kinds)):
            if end - place < 8:
                return NOTHING
            size = <int> _big_endian(place + 4, 4)
            place += 8
            if size > end - place:
                return NOTHING
            if size >= 0:
                decision += self._contribution(column, kinds[column], place, size)
                place += size
            elif kinds[column] != b"-":
                decision += self._absent(column)
        if decision == decision:
            decision += self._of_cells()
        return self._ended(decision, self._squares)

    cdef double _contribution(self, long column, char kind, const unsigned char *data, long size):
        if kind == b"-":
            return 0.0
        if kind == b"t" or kind == b"b":
            return self._category(column, data[:size])
        if kind == b"c":
            return self._weighted(column, float(self._lookups[column](data[:size])))
        return self._weighted(column, _number(data, size, kind))


STORED_LENGTHS = {"i": (1, 2, 4, 8), "f": (4, 8), "-": range(-2, 2**15)}  # of PostgreSQL's types, by kind
STORED_LENGTHS |= {"t": range(-1, 2**15), "b": (-1,)}


cdef class StoredRowScorer(_Columns):
    """Computes intercept + Σ contribution of each column from a row's stored bytes (`dbdp_internal.row_bytes`).

    The bytes are PostgreSQL's heap tuple without its length word: type modifier, row type, 6 bytes,
    number of columns and flags (uint16 each), offset of the data, bitmap of the columns that are not null, the data.
    A compressed value, a null where a value is required, another number of columns or another length yields no
    decision; the caller then passes the binary form. Columns have their length (-1: varying) and alignment.
    """

    cdef bytes _aligns
    cdef long long[::1] _sizes

    def __init__(self, columns, double intercept, lengths, str aligns, ending=_PLAIN, crossing=_NO_PAIRS):
        _Columns.__init__(self, columns, intercept, ending, crossing)
        if not len(self._kinds) == len(lengths) == len(aligns):
            raise ValueError(f"{len(self._kinds)} columns need as many lengths and alignments")
        for kind, length in zip(self._kinds.decode(), lengths):
            if length not in STORED_LENGTHS[kind]:
                raise ValueError(f"a stored column of the kind {kind!r} has no length {length}")
        self._sizes = array("q", lengths)
        self._aligns = aligns.encode()
        if not len(self._sizes) == len(self._aligns) == len(self._kinds) or not all(map(_is_stored, columns, lengths)):
            raise ValueError("the lengths and alignments of a row's columns are not those of their types")

    cdef double decision(self, bytes row):
        cdef const unsigned char *start = <const unsigned char *> PyBytes_AsString(row)
        cdef const char *kinds = PyBytes_AsString(self._kinds)
        cdef const char *aligns = PyBytes_AsString(self._aligns)
        cdef long total = PyBytes_Size(row), columns = len(self._kinds), place, column, size, head
        cdef double decision = self._intercept
        self._squares = 0.0
        if total < 19 or ((start[15] << 8 | start[14]) & 0x07FF) != columns:
            return NOTHING
        cdef bint has_null = start[16] & 1
        if start[18] < 23 or has_null and total < 19 + (columns + 7) // 8:
            return NOTHING
        place = start[18]  # counted from the length word, 4 bytes before `start`
        for column in range(columns):
            if has_null and not start[19 + column // 8] >> column % 8 & 1:
                if kinds[column] != b"-":
                    decision += self._absent(column)
                continue
            size, head = self._sizes[column], 0
            if size >= 0 or (place - 4 < total and start[place - 4] == 0):
                place = _aligned(place, aligns[column])
            if size < 0:
                head, size = _varying(start, place - 4, total)
                if size < 0:
                    return NOTHING
            if place - 4 < 0 or place - 4 + head + size > total:
                return NOTHING
            decision += self._contribution(column, kinds[column], start + place - 4 + head, size)
            place += head + size
        if decision == decision:
            decision += self._of_cells()
        return self._ended(decision, self._squares) if place - 4 == total else NOTHING

    cdef double _contribution(self, long column, char kind, const unsigned char *data, long size):
        if kind == b"-":
            return 0.0
        if kind == b"t" or kind == b"b":
            return self._category(column, data[:size])
        return self._weighted(column, _native(data, size, kind))


def _is_stored(column, long long length):
    """Return whether stored values of a column of this kind may have this length; -1 is a varying length."""
    return length in {"f": (4, 8), "i": (1, 2, 4, 8)}.get(column[0], range(-1, 1 << 15))


cdef long _aligned(long place, char align) noexcept nogil:
    cdef long to = 8 if align == b"d" else 4 if align == b"i" else 2 if align == b"s" else 1
    return (place + to - 1) // to * to


cdef (long, long) _varying(const unsigned char *start, long place, long total) noexcept nogil:
    """Return the numbers of bytes of a varying value's header and data; -1 for data that are compressed or external."""
    cdef unsigned int word
    if place >= total or place < 0:
        return 0, -1
    if start[place] & 1:
        return (1, (start[place] >> 1) - 1) if start[place] != 1 else (0, -1)
    if place + 4 > total:
        return 0, -1
    memcpy(&word, start + place, 4)
    return (4, <long> (word >> 2) - 4) if word & 3 == 0 else (0, -1)


cdef double _native(const unsigned char *data, long size, char kind) noexcept nogil:
    cdef double wide
    cdef float single
    cdef long long eight
    cdef int four
    cdef short two
    if kind == b"f" and size == 8:
        memcpy(&wide, data, 8)
        return wide
    if kind == b"f":
        memcpy(&single, data, 4)
        return single
    if size == 8:
        memcpy(&eight, data, 8)
        return <double> eight
    if size == 4:
        memcpy(&four, data, 4)
        return four
    if size == 2:
        memcpy(&two, data, 2)
        return two
    return data[0]
