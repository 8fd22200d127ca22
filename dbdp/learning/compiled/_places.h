/* Rows in places (placed.py): of each block one float t, which stands for 1 - f of cell k and f of cell k + 1, k + f = t.
 *
 * As packed rows they have `stride` floats, the label last. Place 0 is a factor of all parts, above 0 and at most 1, or
 * 0 in a zero row, which so has no part of any cell. From place `split` on no row is between two cells. `first` and
 * `last`, for each of the stride's places, are the number of a block's first cell, and the number within the block of
 * the last cell that may be k: whatever the bytes are, no cell outside the block is read.
 */
#include "_sgd.h"

typedef struct {
  long places, stride, cells, split;
  const int *first, *last;
} placed_layout;

typedef int int_lanes __attribute__((vector_size(LANES * sizeof(int))));

INLINED pair load_pair(const double *place) {
  pair two;
  memcpy(&two, place, sizeof two);
  return two;
}

/* max(0, min(value, most)) of whole numbers, and of floats by their bits: without a sign these have the same order. */
INLINED int_lanes at_most_whole(int_lanes value, int_lanes most) {
  int_lanes raised = value & ~(value >> 31), above = raised - most;
  return most + (above & (above >> 31));
}

/* The cells k of a row, and for places below `split`, after each other, its parts 1 - f and f of them, times its factor;
 * return whether it is no zero row. The parts are exact, as the factor and f have 24 bits. */
INLINED int cells_of(const placed_layout *of, const float *row, int *cell, double *parts, double *factor) {
  int bits;
  float own;
  memcpy(&bits, row, sizeof bits);
  const int valid = (unsigned)bits - 1u < 0x3f800000u; /* above 0 and at most 1: no branch depends on it */
  bits &= -valid;
  memcpy(&own, &bits, sizeof own);
  const float_lanes ones = (float_lanes){0} + 1.0f;
  const lanes times = __builtin_convertvector((float_lanes){0} + own, lanes);
  long i = 0;
  for (; i < of->split; i += LANES) {
    float_lanes t;
    int_lanes first, last;
    memcpy(&t, row + i, sizeof t), memcpy(&first, of->first + i, sizeof first), memcpy(&last, of->last + i, sizeof last);
    int_lanes k = at_most_whole(__builtin_convertvector(t, int_lanes), last);
    float_lanes f = (float_lanes)at_most_whole((int_lanes)(t - __builtin_convertvector(k, float_lanes)), (int_lanes)ones);
    float_lanes here = ones - f, next = f;
    k += first;
    memcpy(cell + i, &k, sizeof k);
    store(parts + 2 * i, times * __builtin_convertvector(__builtin_shuffle(here, next, (int_lanes){0, 8, 1, 9, 2, 10, 3, 11}), lanes));
    store(parts + 2 * i + LANES, times * __builtin_convertvector(__builtin_shuffle(here, next, (int_lanes){4, 12, 5, 13, 6, 14, 7, 15}), lanes));
  }
  for (; i < of->stride; i += LANES) {
    float_lanes t;
    int_lanes first, last;
    memcpy(&t, row + i, sizeof t), memcpy(&first, of->first + i, sizeof first), memcpy(&last, of->last + i, sizeof last);
    int_lanes k = at_most_whole(__builtin_convertvector(t, int_lanes), last) + first;
    memcpy(cell + i, &k, sizeof k);
  }
  const pair constant = {0.0, own};
  memcpy(parts, &constant, sizeof constant);
  *factor = own;
  return valid;
}

/* The score of a row by a table of its cells. */
INLINED double score_at(const placed_layout *of, const double *table, const int *cell, const double *parts, double factor) {
  pair sums[4] = {{0}};
  double whole[4] = {0};
  long j = 0;
  for (; j + 4 <= of->split; j += 4)
    for (int i = 0; i < 4; i++) sums[i] += load_pair(table + cell[j + i]) * load_pair(parts + 2 * (j + i));
  for (; j < of->split; j++) sums[0] += load_pair(table + cell[j]) * load_pair(parts + 2 * j);
  for (; j + 4 <= of->places; j += 4)
    for (int i = 0; i < 4; i++) whole[i] += table[cell[j + i]];
  for (; j < of->places; j++) whole[0] += table[cell[j]];
  pair sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return (sum[0] + sum[1]) + factor * ((whole[0] + whole[1]) + (whole[2] + whole[3]));
}

/* Add a row's parts of its cells, times its slope. */
INLINED void add_parts(const placed_layout *of, double *sums, double slope, const int *cell, const double *parts, double factor) {
  const pair times = every(slope);
  const double moved = slope * factor;
  long j = 0;
  for (; j < of->split; j++) {
    double *sum = sums + 2 * (long)cell[j];
    pair added = load_pair(sum) + times * load_pair(parts + 2 * j);
    memcpy(sum, &added, sizeof added);
  }
  for (; j < of->places; j++) sums[2 * (long)cell[j]] += moved;
}

/* Add the gradients of `count` rows of these lengths, by which they are clipped, for each cell k to sums[2k] as the lower
 * one, and to sums[2k - 1] as the upper one. `cell` and `parts` have room for ROWS rows. */
CLONED void placed_gradients(const placed_layout *of, const sgd_training *t, const float *row, const float *lengths, long count, const double *table, double *sums, int *cell, double *parts) {
  const long stride = of->stride;
  while (count > 0) {
    const int rows = count < ROWS ? (int)count : ROWS;
    pair score[ROWS / 2] = {{0}}, norm2[ROWS / 2], length[ROWS / 2], label[ROWS / 2] = {{0}};
    double factor[ROWS];
    for (int p = 0; p < ROWS / 2; p++) norm2[p] = every(2.0), length[p] = every(1.0);
    for (int r = 0; r < rows; r++)
      norm2[r / 2][r % 2] = 2.0 - 2.0 * cells_of(of, row + r * stride, cell + r * stride, parts + 2 * r * stride, factor + r);
    for (int r = 0; r < rows; r++) {
      score[r / 2][r % 2] = score_at(of, table, cell + r * stride, parts + 2 * r * stride, factor[r]);
      length[r / 2][r % 2] = lengths[r];
      label[r / 2][r % 2] = row[(r + 1) * stride - 1];
    }
    for (int p = 0; p < ROWS / 2; p++) score[p] = slopes_of(t, score[p], norm2[p], length[p], label[p]);
    for (int r = 0; r < rows; r++) add_parts(of, sums, score[r / 2][r % 2], cell + r * stride, parts + 2 * r * stride, factor[r]);
    row += rows * stride, lengths += rows, count -= rows;
  }
}

/* Add the parts of `count` rows, times their slopes (count × several), to sums (several × cells × 2) as above. */
CLONED void placed_sums(const placed_layout *of, const float *row, long count, const double *slopes, long several, double *sums, int *cell, double *parts) {
  for (; count > 0; count--, row += of->stride, slopes += several) {
    double factor;
    cells_of(of, row, cell, parts, &factor);
    for (long m = 0; m < several; m++) add_parts(of, sums + 2 * m * of->cells, slopes[m], cell, parts, factor);
  }
}

/* The scores of `count` rows by tables of cells (several × cells), as (count × several). */
CLONED void placed_scores(const placed_layout *of, const float *row, long count, const double *tables, long several, double *scores, int *cell, double *parts) {
  for (; count > 0; count--, row += of->stride, scores += several) {
    double factor;
    cells_of(of, row, cell, parts, &factor);
    for (long m = 0; m < several; m++) scores[m] = score_at(of, tables + m * of->cells, cell, parts, factor);
  }
}

/* For each cell k the sums over `count` rows of a², b² and ab, in sums[3k …], where the whole numbers a and b are their
 * parts of cell k and of cell k + 1 in 1/grid, rounded down. */
CLONED void placed_moments(const placed_layout *of, const float *row, long count, double grid, long *sums, int *cell, double *parts) {
  for (; count > 0; count--, row += of->stride) {
    double factor;
    cells_of(of, row, cell, parts, &factor);
    const long whole = (long)(factor * grid);
    long j = 0;
    for (; j < of->split; j++) {
      long a = (long)(parts[2 * j] * grid), b = (long)(parts[2 * j + 1] * grid), *sum = sums + 3 * cell[j];
      sum[0] += a * a, sum[1] += b * b, sum[2] += a * b;
    }
    for (; j < of->places; j++) sums[3 * cell[j]] += whole * whole;
  }
}

/* Coordinates of cells: a table (cells × width), width a multiple of LANES, which is 0 for a block outside from … to. */
typedef struct {
  const double *table;
  long width;
  const int *from, *to;
} cell_coordinates;

/* The coordinates of a row. */
INLINED void coordinates_at(const placed_layout *of, const cell_coordinates *in, const int *cell, const double *parts, double factor, double *moved) {
  long j = 0;
  memset(moved, 0, in->width * sizeof(double));
  for (; j < of->split; j++) {
    const double *here = in->table + cell[j] * in->width, *next = here + in->width;
    for (long i = in->from[j]; i < in->to[j]; i += LANES)
      store(moved + i, load(moved + i) + parts[2 * j] * load(here + i) + parts[2 * j + 1] * load(next + i));
  }
  for (; j < of->places; j++)
    for (long i = in->from[j]; i < in->to[j]; i += LANES)
      store(moved + i, load(moved + i) + factor * load(in->table + cell[j] * in->width + i));
}

INLINED double square_of(const double *moved, long width) {
  lanes squares = {0};
  for (long i = 0; i < width; i += LANES) squares += load(moved + i) * load(moved + i);
  return total(squares);
}

/* The squared lengths of `count` rows in other coordinates. */
CLONED void placed_squares(const placed_layout *of, const float *row, long count, const cell_coordinates *in, double *squares, int *cell, double *parts, double *moved) {
  for (; count > 0; count--, row += of->stride, squares++) {
    double factor;
    cells_of(of, row, cell, parts, &factor);
    coordinates_at(of, in, cell, parts, factor, moved);
    *squares = square_of(moved, in->width);
  }
}

/* `count` rows in other coordinates, (count × width), each cut to the length `most` and rounded to whole numbers. */
CLONED void placed_steps(const placed_layout *of, const float *row, long count, const cell_coordinates *in, double most, float *steps, int *cell, double *parts, double *moved) {
  for (; count > 0; count--, row += of->stride, steps += in->width) {
    double factor;
    cells_of(of, row, cell, parts, &factor);
    coordinates_at(of, in, cell, parts, factor, moved);
    double shrink = most / larger(sqrt(square_of(moved, in->width)), most);
    for (long i = 0; i < in->width; i += LANES) {
      float_lanes whole = __builtin_convertvector((load(moved + i) * shrink + 0x1.8p52) - 0x1.8p52, float_lanes);
      memcpy(steps + i, &whole, sizeof whole);
    }
  }
}

/* Where the cells have coordinates: of each cell one, and its size there. Between two cells a row has one coordinate,
 * or two if `two`, for each place, is 1; in all `entries`, and `dimension` is above all of them. */
typedef struct {
  const int *coordinate, *two;
  const double *size;
  long dimension, entries;
} cell_places;

/* The coordinates of a row that may differ from 0: as many for every row. */
INLINED void entries_of(const placed_layout *of, const cell_places *at, const int *cell, const double *parts, double factor, int *index, double *value) {
  long e = 0, j = 0;
  for (; j < of->split; j++) {
    const long k = cell[j];
    const double here = at->size[k] * parts[2 * j], next = at->size[k + 1] * parts[2 * j + 1];
    index[e] = at->coordinate[k], value[e] = at->two[j] ? here : here + next, e++;
    if (at->two[j]) index[e] = at->coordinate[k + 1], value[e] = next, e++;
  }
  for (; j < of->places; j++, e++) index[e] = at->coordinate[cell[j]], value[e] = factor * at->size[cell[j]];
}

/* Coordinates of rows are read by PLACED_ROWS rows at a time, for one place after the other: what a place is added to, or is
 * multiplied by, then stays in the processor's cache. `index` and `value` have room for PLACED_ROWS rows. */
enum { PLACED_ROWS = 512 };

INLINED long read_piece(const placed_layout *of, const cell_places *at, const float *row, long count, int *cell, double *parts, int *index, double *value) {
  const long rows = count < PLACED_ROWS ? count : PLACED_ROWS;
  for (long r = 0; r < rows; r++) {
    double factor;
    cells_of(of, row + r * of->stride, cell, parts, &factor);
    entries_of(of, at, cell, parts, factor, index + r * at->entries, value + r * at->entries);
  }
  return rows;
}

/* Add the products of all pairs of a row's coordinates, in whole numbers of 1/grid rounded to 0, to sums (dimension ×
 * dimension): each pair once, in the order of the places. `whole` has as much room as `value`. */
CLONED void placed_products(const placed_layout *of, const cell_places *at, const float *row, long count, double grid, long *sums, int *cell, double *parts, int *index, double *value, int *whole) {
  const long entries = at->entries;
  while (count > 0) {
    const long rows = read_piece(of, at, row, count, cell, parts, index, value);
    for (long i = 0; i < rows * entries; i++) whole[i] = (int)(value[i] * grid);
    for (long e = 0; e < entries; e++)
      for (long r = 0; r < rows; r++) {
        const int *own = index + r * entries, *times = whole + r * entries;
        long *sum = sums + own[e] * at->dimension;
        for (long f = e; f < entries; f++) sum[own[f]] += (long)times[e] * times[f];
      }
    row += rows * of->stride, count -= rows;
  }
}

/* xᵀGx of `count` rows x, for a symmetric G = `matrix` (dimension × dimension). */
CLONED void placed_forms(const placed_layout *of, const cell_places *at, const float *row, long count, const double *matrix, double *forms, int *cell, double *parts, int *index, double *value) {
  const long entries = at->entries;
  while (count > 0) {
    const long rows = read_piece(of, at, row, count, cell, parts, index, value);
    memset(forms, 0, rows * sizeof(double));
    for (long e = 0; e < entries; e++)
      for (long r = 0; r < rows; r++) {
        const int *own = index + r * entries;
        const double *times = value + r * entries, *of_row = matrix + own[e] * at->dimension;
        double sum = 0.5 * times[e] * of_row[own[e]];
        for (long f = e + 1; f < entries; f++) sum += times[f] * of_row[own[f]];
        forms[r] += 2.0 * times[e] * sum;
      }
    row += rows * of->stride, forms += rows, count -= rows;
  }
}
