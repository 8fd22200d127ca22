/* Run every kernel on a table, for callgrind to count the instructions of `run`: see test_even_time.py. */
#include <stdio.h>
#include <stdlib.h>

#include "../../dbdp/learning/compiled/_places.h"

enum { DIMENSION = 21, STRIDE = 24, MOST = 200, SEVERAL = 3, BEFORE = 24, RECORD = BEFORE + 8 * DIMENSION };

static float rows[MOST * STRIDE];
static double features[MOST * DIMENSION], labels[MOST];
static double vectors[4 * STRIDE], steps[MOST], values[MOST], columns[LANES * STRIDE], candidates[15 * STRIDE];
static double several[3 * SEVERAL * STRIDE], room[MANY * (STRIDE + SEVERAL)], tree[LEVELS * SEVERAL * STRIDE];
static char records[MOST * RECORD];
static long noise[STRIDE], places[MOST];

/* Of rows in places: 21 of them, with 5 cells each. A row is between two in the first 11, of which 4 have two coordinates. */
enum { CELLS = 5 * DIMENSION, SPLIT = 11, ENTRIES = DIMENSION + 4 };
static int first_cells[STRIDE], last_cells[STRIDE], coordinates[CELLS + 1], two[DIMENSION], cell[ROWS * STRIDE];
static int indices[PIECE * ENTRIES], whole[PIECE * ENTRIES];
static double heights[CELLS + 1], parts[2 * ROWS * STRIDE], entries[PIECE * ENTRIES], tables[SEVERAL * CELLS];
static double of_cells[2 * SEVERAL * CELLS + 2], slopes[MOST * SEVERAL], matrix[CELLS * CELLS];
static long counts[CELLS * CELLS];
static float lengths[MOST];

static void train(const sgd_training *t, long count) {
  double *model = vectors, *gradient = vectors + STRIDE;
  memset(vectors, 0, sizeof vectors);
  for (int epoch = 0; epoch < 3; epoch++) {
    sgd_single_rows(t, rows, count, model, gradient + STRIDE, STRIDE, steps, 5);
    sgd_add_gradients(t, rows, count, model, gradient, STRIDE);
    sgd_update(t, model, gradient, gradient + STRIDE, STRIDE, 0.1, 1);
    sgd_add_part(t, rows, count, model, gradient, gradient + 2 * STRIDE, tree, STRIDE, 0, 1);
    noisy_update(t, model, gradient, STRIDE, 0.1, noise, DIMENSION, 0x1p-40);
  }
}

static void train_several(const sgd_training *t, long count) {
  double *gradients = several + SEVERAL * STRIDE, *rests = gradients + SEVERAL * STRIDE;
  sgd_training each[SEVERAL];
  for (int m = 0; m < SEVERAL; m++) {
    each[m] = *t;
    each[m].target = t->target ? m + 1 : 0;
  }
  memset(several, 0, sizeof several);
  for (int epoch = 0; epoch < 3; epoch++) {
    sgd_add_part_of_each(each, rows, count, SEVERAL, room, several, gradients, rests, tree, STRIDE, 0, 1);
    for (int m = 0; m < SEVERAL; m++) sgd_update(each + m, several + m * STRIDE, gradients + m * STRIDE, vectors, STRIDE, 0.1, 0);
  }
}

static void adapt(const sgd_training *t, long count) {
  const adam how = {0.9, 0.999, 1e-8};
  double *model = vectors, *gradient = vectors + STRIDE;
  memset(vectors, 0, sizeof vectors);
  for (int update = 1; update < 4; update++) {
    sgd_add_gradients(t, rows, count, model, gradient, STRIDE);
    noisy_adam(t, &how, model, gradient, gradient + STRIDE, gradient + 2 * STRIDE, STRIDE, 0.1, noise, DIMENSION,
               0x1p-40, 0.1, 0.001);
  }
}

static void compare(const sgd_training *t, long count) {
  double sums[15] = {0};
  for (long c = 0; c < 15; c++)
    for (long i = 0; i < DIMENSION; i++) candidates[c * STRIDE + i] = vectors[i] + (double)c;
  sgd_add_losses(t, rows, count, candidates, 15, STRIDE, 3.0, sums, columns);
}

/* Rows have the numbers of `features` as their places, whatever these are, and a factor or none. */
static void read_places(long count) {
  const placed_layout of = {DIMENSION, STRIDE, CELLS, SPLIT, first_cells, last_cells};
  const cell_places at = {coordinates, two, heights, CELLS, ENTRIES};
  for (long r = 0; r < count; r++)
    for (long i = 0; i < STRIDE; i++) rows[r * STRIDE + i] = i < DIMENSION ? (float)(4.0 * features[r * DIMENSION + i]) : labels[r];
  for (long loss = LOGISTIC; loss <= SQUARED; loss++) {
    sgd_training t = {loss, 0, 0.5, loss == SQUARED ? 2.0 : 1.0, 1.0, 0.3, 4.0, 0.01, INFINITY};
    placed_gradients(&of, &t, rows, lengths, count, tables, of_cells, cell, parts);
  }
  placed_scores(&of, rows, count, tables, SEVERAL, slopes, cell, parts);
  placed_sums(&of, rows, count, slopes, SEVERAL, of_cells, cell, parts);
  placed_moments(&of, rows, count, 65536.0, counts, cell, parts);
  placed_products(&of, &at, rows, count, 4194304.0, counts, cell, parts, indices, entries, whole);
  placed_forms(&of, &at, rows, count, matrix, values, cell, parts, indices, entries);
}

static void lay_places(void) {
  for (long i = 0; i < DIMENSION; i++) first_cells[i] = 5 * i, last_cells[i] = i < SPLIT ? 3 : 4, two[i] = i < SPLIT && i % 3 == 0;
  for (long k = 0; k <= CELLS; k++) coordinates[k] = k < CELLS ? k : 0, heights[k] = 0.5;
  for (long i = 0; i < MOST; i++) lengths[i] = 1.0f;
}

__attribute__((noinline)) void run(long count) {
  unsigned long former = flush();
  for (int least = 1; least >= 0; least--) {
    const vector_records of = {RECORD, DIMENSION, DIMENSION, 0.5, 1.0, 1.0 - 0x1p-22, least};
    pack_records(&of, records, labels, places, count, room, rows, STRIDE);
  }
  for (int least = 1; least >= 0; least--) pack_rows(features, labels, rows, count, DIMENSION, STRIDE, 1.0 - 0x1p-22, least);
  for (long loss = LOGISTIC; loss <= SQUARED; loss++)
    for (int kind = 0; kind < 8; kind++) {
      sgd_training t = {loss, kind & 1 ? 2 : 0, 0.5, loss == SQUARED ? 2.0 : 1.0, 1.0, kind & 2 ? 0.3 : INFINITY, 4.0,
                        0.01, kind & 4 ? 0.2 : INFINITY};
      train(&t, count);
      compare(&t, count);
      train_several(&t, count);
      adapt(&t, count);
    }
  read_places(count);
#ifdef SKIPS
  for (long r = 0; r < count; r++)
    if (labels[r] != 0.0) exponentials(labels + r, values, 1);
#endif
  exponentials(labels, values, count);
  log1p_exponentials(labels, values, count);
  unflush(former);
}

/* Features and labels, count × (DIMENSION + 1) numbers, come from standard input. */
int main(int arguments, char **argument) {
  long count = arguments > 1 ? atol(argument[1]) : 0;
  if (count < 1 || count > MOST) return 2;
  for (long r = 0; r < count; r++) {
    if (fread(features + r * DIMENSION, sizeof(double), DIMENSION, stdin) != DIMENSION) return 3;
    if (fread(labels + r, sizeof(double), 1, stdin) != 1) return 3;
    steps[r] = 0.25;
    places[r] = count - 1 - r;
    int header[5] = {1, labels[r] == 1.0 ? 0 : 32, 701, DIMENSION, 1}; /* some arrays have a null */
    memcpy(records + r * RECORD + BEFORE - sizeof header, header, sizeof header);
    memcpy(records + r * RECORD + BEFORE, features + r * DIMENSION, sizeof(double) * DIMENSION);
  }
  lay_places();
  run(count);
  return 0;
}
