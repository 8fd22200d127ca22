# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled part of `coded_columns` and `unit_sums`: codes and positions of values, and their sums.

No value decides how many steps are taken: each search has as many as its table needs.
"""

import numpy as np

from libc.math cimport rint
from libc.stdint cimport int64_t


cdef inline long _reached(const double *edges, long count, double value) noexcept nogil:
    """Return how many of some increasing edges are up to a value; 0 for NaN."""
    cdef long first = 0, half
    while count > 1:
        half = count // 2
        first += half * (edges[first + half - 1] <= value)
        count -= half
    return first + (edges[first] <= value)


def cells(const double[:] values, const double[::1] edges, long least, long null):
    """Return the code of each number: `least` plus the number of edges up to it, or `null` for NaN."""
    cdef long count = values.shape[0], size = edges.shape[0], place
    cdef double value
    codes = np.empty(count, np.int64)
    cdef int64_t[::1] out = codes
    if not size:
        raise ValueError("edges has no entry; give one or more")
    with nogil:
        for place in range(count):
            value = values[place]
            out[place] = null if value != value else least + _reached(&edges[0], size, value)
    return codes


def positions(const double[:] values, double lower, double upper, double middle, double half):
    """Return where numbers lie between their bounds, which are at -1 and 1; 0 for NaN."""
    cdef long count = values.shape[0], place
    cdef double value, found
    clipped = np.empty(count)
    cdef double[::1] out = clipped
    with nogil:
        for place in range(count):
            value = values[place]
            found = lower if value < lower else value
            found = upper if found > upper else found
            found = (found - middle) / half
            found = -1.0 if found < -1.0 else found
            found = 1.0 if found > 1.0 else found
            out[place] = 0.0 if value != value else found
    return clipped


def matches(const double[:] values, const double[::1] known, const int64_t[::1] codes, long other):
    """Return the code of each value among some increasing known ones, or `other`."""
    cdef long count = values.shape[0], size = known.shape[0], place, reached
    found = np.empty(count, np.int64)
    cdef int64_t[::1] out = found
    if not size or codes.shape[0] != size:
        raise ValueError(f"{size} known values and {codes.shape[0]} codes; give as many of both, one or more")
    with nogil:
        for place in range(count):
            reached = _reached(&known[0], size, values[place])
            reached -= reached > 0
            out[place] = codes[reached] if known[reached] == values[place] else other
    return found


def add_counts(const int64_t[:] codes, const int64_t[::1] weights, int64_t[::1] counts):
    """Add the weight of each slot to the count of its code."""
    cdef long place, known = counts.shape[0], outside = 0
    for place in range(codes.shape[0]):
        outside += (codes[place] < 0) | (codes[place] >= known)
    if codes.shape[0] != weights.shape[0] or outside:
        raise ValueError(f"{codes.shape[0]} codes, {weights.shape[0]} weights and {known} counts do not fit")
    with nogil:
        for place in range(codes.shape[0]):
            counts[codes[place]] += weights[place]


def add_moments(const int64_t[:] codes, const double[:] positions, const int64_t[::1] weights, long unit_rows,
                long least, long bits, int64_t[::1] moments):
    """Add Σ wt and Σ wt² of each unit, rounded to whole steps of 2⁻ᵇⁱᵗˢ, for the codes from `least` on."""
    cdef long place, weight, steps, once = 0, twice = 0, row = 0, slots = codes.shape[0]
    cdef double scale = 1 << bits
    if positions.shape[0] != slots or weights.shape[0] != slots or moments.shape[0] != 2 or unit_rows < 1:
        raise ValueError(f"{slots} codes, {positions.shape[0]} positions and {weights.shape[0]} weights do not fit")
    with nogil:
        for place in range(slots):
            steps = <long> rint(positions[place] * scale)
            weight = weights[place] * (codes[place] >= least)
            once += weight * steps
            twice += weight * steps * steps
            row += 1
            if row == unit_rows:
                moments[0] += (once + (1L << (bits - 1))) >> bits
                moments[1] += (twice + (1L << (2 * bits - 1))) >> (2 * bits)
                once = twice = row = 0
