# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled part of `streams`: a stream cipher, and rounded noise with marks where the rounding is in doubt.

Shapes: uniforms are words of 64 bits, (groups, 2, 8) for pairs of normal numbers: eight radii, eight angles.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "_stream.h" nogil:
    ctypedef struct spherical_row:
        long dimension, pairs, vectors, groups
        double *cosines
        double *radii
    void chacha_groups(const uint32_t *key, uint64_t first, uint64_t *out, long groups)
    long rounded_gaussian(const uint64_t *uniforms, long groups, double steps, int64_t *out, uint8_t *doubt)
    long gaussian_noise(const uint32_t *key, long groups, double steps, int64_t *out, uint8_t *doubt)
    long rounded_spherical(const spherical_row *row, const uint64_t *uniforms, long rows, double steps, int64_t *out,
                           uint8_t *doubt)
    void raw_normals(const uint64_t *uniforms, long groups, double *out, double *radius, double *sure)
    void raw_sums(const spherical_row *row, const uint64_t *uniforms, double *out)

GROUP = 64  # words of a group of blocks of the cipher


def keystream(bytes key, uint64_t first, uint64_t[::1] out):
    """Fill `out` with the cipher's words under a key of 32 bytes, from the group `first` on."""
    cdef uint32_t[8] words
    _read_key(key, words)
    if out.shape[0] % GROUP:
        raise ValueError(f"`out` has {out.shape[0]} words; give a multiple of {GROUP}")
    if out.shape[0]:
        with nogil:
            chacha_groups(words, first, &out[0], out.shape[0] // 64)


def noise(bytes key, long count, double steps):
    """Return what `gaussian` does of the words of a key, for `count` numbers rounded up to a multiple of GROUP."""
    cdef long groups = (count + 63) // 64, doubtful = 0
    cdef uint32_t[8] words
    _read_key(key, words)
    rounded, doubts = np.empty((4 * groups, 2, 8), np.int64), np.zeros((4 * groups, 8), np.uint8)
    cdef int64_t[:, :, ::1] out = rounded
    cdef uint8_t[:, ::1] doubt = doubts
    if groups > 0:
        with nogil:
            doubtful = gaussian_noise(words, groups, steps, &out[0, 0, 0], &doubt[0, 0])
    return rounded, doubts, doubtful


cdef int _read_key(bytes key, uint32_t *words) except -1:
    if len(key) != 32:
        raise ValueError(f"the key has {len(key)} bytes; give 32")
    memcpy(words, <const char *> key, 32)
    return 0


def gaussian(const uint64_t[:, :, ::1] uniforms, double steps):
    """Return round(steps·Z), shape (groups, 2, 8), which pairs are in doubt, (groups, 8), and how many."""
    cdef long groups = _groups_of(uniforms), count = 0
    rounded, doubts = np.empty((groups, 2, 8), np.int64), np.zeros((groups, 8), np.uint8)
    cdef int64_t[:, :, ::1] out = rounded
    cdef uint8_t[:, ::1] doubt = doubts
    if groups:
        with nogil:
            count = rounded_gaussian(&uniforms[0, 0, 0], groups, steps, &out[0, 0, 0], &doubt[0, 0])
    return rounded, doubts, count


def spherical_laplace(const uint64_t[:, :, ::1] uniforms, long dimension, double steps):
    """Return rounded rows with density ∝ exp(-‖z‖/steps), which coordinates are in doubt, and how many.

    Shapes: uniforms (rows, vectors, 8): first those of the norm, then pairs; the others (rows, 2, places).
    """
    cdef long rows = uniforms.shape[0], places = 8 * ((dimension + 15) // 16), count = 0
    cdef double[::1] scratch = np.empty(3 * places)
    cdef spherical_row row = _row_of(uniforms, dimension, scratch)
    rounded, doubts = np.empty((rows, 2, places), np.int64), np.zeros((rows, 2, places), np.uint8)
    cdef int64_t[:, :, ::1] out = rounded
    cdef uint8_t[:, :, ::1] doubt = doubts
    if rows:
        with nogil:
            count = rounded_spherical(&row, &uniforms[0, 0, 0], rows, steps, &out[0, 0, 0], &doubt[0, 0, 0])
    return rounded, doubts, count


def normals(const uint64_t[:, :, ::1] uniforms):
    """Return the normal numbers, (groups, 2, 8), their radii and which are sure, (groups, 8): for tests of the errors."""
    cdef long groups = _groups_of(uniforms)
    numbers, radii, certain = np.empty((groups, 2, 8)), np.empty((groups, 8)), np.empty((groups, 8))
    cdef double[:, :, ::1] out = numbers
    cdef double[:, ::1] radius = radii, sure = certain
    if groups:
        raw_normals(&uniforms[0, 0, 0], groups, &out[0, 0, 0], &radius[0, 0], &sure[0, 0])
    return numbers, radii, certain >= 0


def sums(const uint64_t[:, :, ::1] uniforms, long dimension):
    """Return the norm and the square of the normal vector of each row, each with its error: for tests of the errors."""
    cdef double[::1] scratch = np.empty(24 * ((dimension + 15) // 16))
    cdef spherical_row row = _row_of(uniforms, dimension, scratch)
    norms = np.empty((uniforms.shape[0], 4))
    cdef double[:, ::1] out = norms
    for i in range(uniforms.shape[0]):
        raw_sums(&row, &uniforms[i, 0, 0], &out[i, 0])
    return norms


cdef spherical_row _row_of(const uint64_t[:, :, ::1] uniforms, long dimension, double[::1] scratch) except *:
    cdef long vectors = (dimension + 7) // 8, groups = (dimension + 15) // 16
    if dimension < 1 or uniforms.shape[1] != vectors + 2 * groups or uniforms.shape[2] != 8:
        raise ValueError(f"rows of {uniforms.shape[1]} vectors do not fit a dimension of {dimension}")
    return spherical_row(dimension, (dimension + 1) // 2, vectors, groups, &scratch[0], &scratch[16 * groups])


cdef long _groups_of(const uint64_t[:, :, ::1] uniforms) except -1:
    if uniforms.shape[1] != 2 or uniforms.shape[2] != 8:
        raise ValueError("pairs of normal numbers come in groups of eight radii and eight angles")
    return uniforms.shape[0]
