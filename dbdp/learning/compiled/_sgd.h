/* The SGD step over packed rows: float32 storage, float64 arithmetic (privacy.md §14).
 *
 * A row has `stride` floats, a multiple of LANES: features, zeros, the label last. The model, the
 * gradient and the sum of iterates have `stride` doubles; the model is 0 in the label's place, where the
 * caller ignores the others. Sums may be computed in any order: the rounding margin holds for each.
 */
#include "../../_lanes.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ROWS 4 /* at a time */
#define MAX_NORM2 (1.0 - 0x1p-30) /* packed rows have ‖x‖² ≤ (1 - 2⁻²³)²; a row above it is invalid */

enum { LOGISTIC = 1, HUBER_SVM, HUBER_REGRESSION, SQUARED }; /* the codes of losses.py */

typedef struct {
  long loss, target;                 /* target > 0: that class is +1, every other -1 */
  double width, limit, weight;       /* of a smoothed hinge; largest |derivative|; of positive rows */
  double clip;                       /* largest norm of a row's gradient, or infinity */
  double batch_size, regularisation; /* b, λ */
  double radius;                     /* of the ball that the model is projected onto, or infinity */
} sgd_training;

typedef struct {
  double decay1, decay2, floor; /* of Adam's moments, and the constant added to the root of the second */
} adam;

/* Treat results and operands below 2^-1022 as 0 in this thread, since processors take much longer for them than for
 * others; return the former state, which `unflush` restores. 0 on other processors. */
#if defined(__x86_64__)
static unsigned long flush(void) {
  unsigned int former = _mm_getcsr();
  _mm_setcsr(former | 0x8040);
  return former;
}
static void unflush(unsigned long former) { _mm_setcsr((unsigned int)former); }
#elif defined(__aarch64__)
static unsigned long flush(void) {
  unsigned long former;
  __asm__ volatile("mrs %0, fpcr" : "=r"(former));
  __asm__ volatile("msr fpcr, %0" : : "r"(former | 1UL << 24));
  return former;
}
static void unflush(unsigned long former) { __asm__ volatile("msr fpcr, %0" : : "r"(former)); }
#else
static unsigned long flush(void) { return 0; }
static void unflush(unsigned long former) { (void)former; }
#endif

/* Two rows at a time: vectors that every processor has, since GCC compiles comparisons of longer ones to branches. */
typedef quarter_lanes pair;
typedef long long pair_mask __attribute__((vector_size(sizeof(pair)))); /* all bits where true */

INLINED pair every(double value) { return (pair){value, value}; }

INLINED pair where(pair_mask which, pair one, pair other) {
  return (pair)((which & (pair_mask)one) | (~which & (pair_mask)other));
}

/* NaN stays NaN. */
INLINED pair clamped(pair value, pair low, pair high) {
  pair raised = where(value < low, low, value);
  return where(raised > high, high, raised);
}

INLINED pair size_of(pair value) { return (pair)((pair_mask)value & 0x7fffffffffffffffLL); }

/* The same for eight rows at a time, by sign bits in place of comparisons, which GCC would compile to branches there. */
typedef long long lane_masks __attribute__((vector_size(sizeof(lanes))));
INLINED lane_masks negative(lanes value) { return (lane_masks)value >> 63; }
INLINED lanes size_of_each(lanes value) { return (lanes)((lane_masks)value & 0x7fffffffffffffffLL); }
INLINED lanes above_zero(lanes value) { return (lanes)(~negative(value) & (lane_masks)value); }
INLINED lanes at_most(lanes value, double most) {
  lane_masks above = negative(most - value);
  return (lanes)((above & (lane_masks)((lanes){0} + most)) | (~above & (lane_masks)value));
}

/* e^x, by the same instructions for all x: within 4u, relative, for |x| <= 708, u = 2^-53; beyond, 0 or infinity.
 *
 * Proof, |x| <= 708. k is x / ln 2 within 0.501 and |k| < 1023, so k HIGH is exact: HIGH ends in 21 zeros. So is
 * x - k HIGH, whose bits are no lower than x's and which is below 1/2. r, |r| <= 0.3473, then errs by u/4 and 2^-22 u. The
 * series to r^13 leaves e^|r| |r|^14 / 14! <= 0.06u. q < 0.58 is a sum of three numbers and much smaller ones: it errs by
 * 4u|q|, r^2 q <= 0.069 by 6u of itself, 0.42u, and t = r + r^2 q, |t| < 0.42, by u/4 more. s t is exact, s + s t rounds
 * by u. In all, as e^r >= 0.706: ((0.06 + 0.42 + 0.25) / 0.706 + 0.26 + 1)u < 2.4u. What is computed beyond is not used. */
#define FURTHEST 708.0
#define NEAR_EXP(NAME, VECTOR, MASKS)                                                                                     \
  INLINED VECTOR NAME(VECTOR x) {                                                                                         \
    const double MAGIC = 0x1.8p52, LOG2E = 0x1.71547652b82fep0, HIGH = 0x1.62e42fee00000p-1, LOW = 0x1.a39ef35793c76p-33; \
    VECTOR shifted = x * LOG2E + MAGIC, k = shifted - MAGIC;                                                              \
    VECTOR r = (x - k * HIGH) - k * LOW, r2 = r * r, r4 = r2 * r2;                                                        \
    VECTOR s = (VECTOR)(((MASKS)shifted + 1023) << 52);                                                                   \
    VECTOR q = ((1 / 2.0 + r * (1 / 6.0)) + r2 * (1 / 24.0 + r * (1 / 120.0))) +                                          \
               r4 * (((1 / 720.0 + r * (1 / 5040.0)) + r2 * (1 / 40320.0 + r * (1 / 362880.0))) +                         \
                     r4 * ((1 / 3628800.0 + r * (1 / 39916800.0)) + r2 * (1 / 479001600.0 + r * (1 / 6227020800.0))));    \
    return s + s * (r + r2 * q);                                                                                          \
  }
NEAR_EXP(near_exp, pair, pair_mask)
NEAR_EXP(near_exp_of_each, lanes, lane_masks)

INLINED pair exp_of(pair x) {
  pair value = where(x > every(FURTHEST), every(INFINITY), near_exp(x));
  return (pair)(~(x < every(-FURTHEST)) & (pair_mask)value);
}

/* The same of eight numbers, none of them NaN. */
INLINED lanes where_negative(lanes value, lanes one, lanes other) {
  lane_masks which = negative(value);
  return (lanes)((which & (lane_masks)one) | (~which & (lane_masks)other));
}
INLINED lanes exp_of_each(lanes x) {
  lanes value = where_negative(FURTHEST - x, (lanes){0} + INFINITY, near_exp_of_each(x));
  return (lanes)(~negative(x + FURTHEST) & (lane_masks)value);
}

/* log(1 + e^-|x|), within 10u, relative, for |x| <= 708; beyond, 0.
 *
 * Proof. With y = e^-|x| <= 1, z = y / (2 + y) <= 1/3: log(1 + y) = 2 artanh z = 2z(1 + q(1/3 + q/5 + ...)), q = z^2. The
 * terms from z^34/35 on are below 9^-17 / 35 * 9/8 < 0.02u. y errs by 4u, of which log(1 + y) takes no more, as
 * y / (1 + y) <= log(1 + y); z by 2u, which the series makes at most 2.3u. The sum behind q is of positive numbers, each
 * rounded at most 12 times, and q times it is at most 0.04: 0.5u; 1 + that rounds by 1.04u, the last product by u. */
INLINED lanes log1p_exp_of(lanes x) {
  lanes size = size_of_each(x), y = near_exp_of_each(-at_most(size, FURTHEST)), z = y / (2.0 + y);
  lanes q = z * z, q2 = q * q, q4 = q2 * q2, sum[8];
  for (int i = 0; i < 8; i++) sum[i] = 1.0 / (4 * i + 3) + q * (1.0 / (4 * i + 5));
  for (int i = 0; i < 4; i++) sum[i] = sum[2 * i] + q2 * sum[2 * i + 1];
  for (int i = 0; i < 2; i++) sum[i] = sum[2 * i] + q4 * sum[2 * i + 1];
  lanes value = 2.0 * z * (1.0 + q * (sum[0] + q4 * q4 * sum[1]));
  return (lanes)(~negative(FURTHEST - size) & (lane_masks)value);
}

/* Apply a function to every number of an array; the last ones are computed beside zeros. */
#define EACH(NAME, FUNCTION, VECTOR)                                            \
  CLONED void NAME(const double *values, double *out, long count) {             \
    for (long i = 0, width = sizeof(VECTOR) / sizeof(double); i < count; i += width) { \
      long here = count - i < width ? count - i : width;                        \
      VECTOR value = {0};                                                       \
      memcpy(&value, values + i, here * sizeof(double));                        \
      value = FUNCTION(value);                                                  \
      memcpy(out + i, &value, here * sizeof(double));                           \
    }                                                                           \
  }
EACH(exponentials, exp_of, pair)
EACH(log1p_exponentials, log1p_exp_of, lanes)

/* Return which labels are valid, and map them to those of the training: see kernels.labelled. A number of 24 bits is
 * an integer if adding and subtracting 2^52 leaves it unchanged. */
INLINED pair_mask taken(const sgd_training *t, pair *label) {
  pair size = size_of(*label);
  if (!t->target) return (size == every(1.0)) | (size < every(t->loss >= HUBER_REGRESSION ? 1.0 : 0.0));
  pair_mask valid = (*label >= every(1.0)) & (size < every(INFINITY)) & ((*label + 0x1p52) - 0x1p52 == *label);
  *label = where(*label == every((double)t->target), every(1.0), every(-1.0));
  return valid;
}

/* dl/dscore, |.| <= limit as computed. */
INLINED pair derivative(const sgd_training *t, pair score, pair label) {
  pair slope;
  if (t->loss == LOGISTIC)
    slope = -label / (1.0 + exp_of(label * score));
  else if (t->loss == HUBER_SVM)
    slope = -label * (clamped((1.0 + t->width) - label * score, every(0.0), every(2.0 * t->width)) / (2.0 * t->width));
  else
    slope = clamped(score - label, every(-t->limit), every(t->limit));
  return slope * where(label > every(0.0), every(t->weight), every(1.0));
}

/* The slopes of two rows' gradients: their derivatives, clipped so that the product with a row's length is <= clip; 0 for
 * a row without a valid label for this training. */
INLINED pair slopes_of(const sgd_training *t, pair score, pair norm2, pair length, pair label) {
  pair_mask valid = taken(t, &label) & (norm2 <= every(MAX_NORM2));
  pair slope = derivative(t, score, label);
  if (t->clip < INFINITY) {
    pair most = t->clip / length;
    slope = clamped(slope, -most, most);
  }
  return (pair)(valid & (pair_mask)slope);
}

/* Eight places of a row, as far as the mask has bits. */
typedef int float_masks __attribute__((vector_size(LANES * sizeof(int))));
INLINED lanes load_masked(const float *place, float_masks mask) {
  float_masks narrow;
  memcpy(&narrow, place, sizeof narrow);
  return __builtin_convertvector((float_lanes)(narrow & mask), lanes);
}

INLINED float masked(float value, int mask) {
  int bits;
  memcpy(&bits, &value, sizeof bits);
  bits &= mask;
  memcpy(&value, &bits, sizeof bits);
  return value;
}

/* Scores and squared norms of up to four rows, without their labels. */
INLINED void dots(const float *row, const double *model, long stride, int rows, pair *dot, pair *norm2) {
  const float_masks NO_LABEL = {-1, -1, -1, -1, -1, -1, -1, 0};
  lanes d[ROWS] = {{0}}, n[ROWS] = {{0}}, w;
  for (long i = 0; i < stride - LANES; i += LANES) {
    w = load(model + i);
    for (int r = 0; r < rows; r++) {
      lanes x = load_floats(row + r * stride + i);
      d[r] += x * w;
      n[r] += x * x;
    }
  }
  w = load(model + stride - LANES);
  for (int r = 0; r < rows; r++) {
    lanes x = load_masked(row + (r + 1) * stride - LANES, NO_LABEL);
    dot[r / 2][r % 2] = total(d[r] + x * w);
    norm2[r / 2][r % 2] = total(n[r] + x * x);
  }
}

/* The slopes of up to four rows, and for each all bits if it is valid: an invalid one may contain NaN. */
typedef struct {
  pair slope[ROWS / 2];
  pair_mask packed[ROWS / 2];
} row_slopes;

INLINED row_slopes slopes_at(const sgd_training *t, const float *row, const float *lengths, const double *model, long stride, int rows) {
  row_slopes slopes;
  pair dot[ROWS / 2] = {{0}}, norm2[ROWS / 2] = {{0}}, length[ROWS / 2] = {{0}}, label[ROWS / 2] = {{0}};
  dots(row, model, stride, rows, dot, norm2);
  for (int r = 0; r < rows; r++) {
    label[r / 2][r % 2] = row[(r + 1) * stride - 1];
    length[r / 2][r % 2] = lengths ? lengths[r] : sqrt(norm2[r / 2][r % 2]);
  }
  for (int p = 0; p < (rows + 1) / 2; p++) {
    slopes.slope[p] = slopes_of(t, dot[p], norm2[p], length[p], label[p]);
    slopes.packed[p] = norm2[p] <= every(MAX_NORM2);
  }
  return slopes;
}

/* Eight values of a valid row; zeros of an invalid one, since 0·NaN is NaN. */
INLINED lanes load_packed(const float *place, row_slopes of, int r) {
  int bits = (int)of.packed[r / 2][r % 2];
  return load_masked(place, (float_masks){bits, bits, bits, bits, bits, bits, bits, bits});
}

INLINED void add_group(const sgd_training *t, const float *row, const float *lengths, const double *model, double *gradient, long stride, int rows) {
  row_slopes of = slopes_at(t, row, lengths, model, stride, rows);
  for (long i = 0; i < stride; i += LANES) {
    lanes g = load(gradient + i);
    for (int r = 0; r < rows; r++) g += of.slope[r / 2][r % 2] * load_packed(row + r * stride + i, of, r);
    store(gradient + i, g);
  }
}

/* Add the gradients of `count` rows at the model. */
CLONED void sgd_add_gradients(const sgd_training *t, const float *row, long count, const double *model, double *gradient, long stride) {
  for (; count >= ROWS; count -= ROWS, row += ROWS * stride) add_group(t, row, NULL, model, gradient, stride, ROWS);
  for (; count > 0; count--, row += stride) add_group(t, row, NULL, model, gradient, stride, 1);
}

/* Add the gradients of `count` rows of these lengths, by which, and not by their norms, the gradients are clipped. */
CLONED void sgd_add_measured(const sgd_training *t, const float *row, const float *lengths, long count, const double *model, double *gradient, long stride) {
  for (; count >= ROWS; count -= ROWS, row += ROWS * stride, lengths += ROWS) add_group(t, row, lengths, model, gradient, stride, ROWS);
  for (; count > 0; count--, row += stride, lengths++) add_group(t, row, lengths, model, gradient, stride, 1);
}

/* Sums over rows as a tree: pieces of PIECE rows, pairs of these, pairs of pairs, … Level 0 of a tree (LEVELS × width) is the
 * sum of a piece, and level i that of 2^(i-1) pieces. So a term passes through at most PIECE + 2 log2(pieces) additions. */
#define PIECE 64
#define LEVELS 48
INLINED void add_level(double *sum, const double *level, long width) {
  for (long i = 0; i < width; i++) sum[i] += level[i];
}

/* Move the sum of a piece, of which so many came before, to the level that it completes. */
INLINED void end_piece(double *tree, long width, long before) {
  double *level = tree + width;
  for (; before & 1; before >>= 1, level += width) add_level(tree, level, width);
  memcpy(level, tree, width * sizeof(double));
  memset(tree, 0, width * sizeof(double));
}

/* Add the levels up in level 0. */
INLINED void end_tree(double *tree, long width, long pieces) {
  for (double *level = tree + width; pieces; pieces >>= 1, level += width)
    if (pieces & 1) add_level(tree, level, width);
}

/* The sum of the gradients of `count` rows, in level 0 of a tree of zeros; of rows of these lengths, if they are given. */
static void sgd_sum_gradients(const sgd_training *t, const float *row, const float *lengths, long count, const double *model, double *tree, long stride) {
  long pieces = 0;
  for (; count > 0; count -= PIECE, row += PIECE * stride, pieces++) {
    long here = count < PIECE ? count : PIECE;
    if (lengths)
      sgd_add_measured(t, row, lengths + pieces * PIECE, here, model, tree, stride);
    else
      sgd_add_gradients(t, row, here, model, tree, stride);
    end_piece(tree, stride, pieces);
  }
  end_tree(tree, stride, pieces);
}

/* Up to MANY rows as doubles, their labels' places 0, for several models: zeros of an invalid one. */
#define MANY 8
typedef struct {
  lanes label;
  lane_masks valid; /* for each of the models, which all have a target, or none, and one loss */
} unpacked_rows;

/* The sums of two vectors, each added as `total` adds it; by vectors of two alone, as wider ones are not shuffled at once
 * by every processor. */
INLINED pair totals_of_two(lanes one, lanes other) {
  half_lanes halves[4];
  memcpy(halves, &one, sizeof one), memcpy(halves + 2, &other, sizeof other);
  half_lanes half = halves[0] + halves[1], half_of_other = halves[2] + halves[3];
  pair quarters[4];
  memcpy(quarters, &half, sizeof half), memcpy(quarters + 2, &half_of_other, sizeof half);
  pair quarter = quarters[0] + quarters[1], quarter_of_other = quarters[2] + quarters[3];
  return __builtin_shuffle(quarter, quarter_of_other, (pair_mask){0, 2}) + __builtin_shuffle(quarter, quarter_of_other, (pair_mask){1, 3});
}

INLINED unpacked_rows unpacked(const sgd_training *t, const float *row, double *features, long stride, int rows) {
  const float_masks NO_LABEL = {-1, -1, -1, -1, -1, -1, -1, 0};
  unpacked_rows of = {{0}, {0}};
  lanes squares[MANY] = {{0}};
  for (long i = 0; i < stride - LANES; i += LANES)
    for (int r = 0; r < rows; r++) {
      lanes x = load_floats(row + r * stride + i);
      squares[r] += x * x;
    }
  for (int r = 0; r < rows; r++) {
    lanes last = load_masked(row + (r + 1) * stride - LANES, NO_LABEL);
    squares[r] += last * last;
    of.label[r] = row[(r + 1) * stride - 1];
  }
  pair label[MANY / 2], norm2[MANY / 2];
  pair_mask packed[MANY / 2], valid[MANY / 2];
  memcpy(label, &of.label, sizeof of.label);
  for (int p = 0; p < MANY / 2; p++) {
    norm2[p] = totals_of_two(squares[2 * p], squares[2 * p + 1]);
    packed[p] = norm2[p] <= every(MAX_NORM2);
    valid[p] = taken(t, &label[p]) & packed[p];
  }
  memcpy(&of.valid, valid, sizeof valid);
  for (int r = 0; r < rows; r++) {
    int bits = (int)packed[r / 2][r % 2];
    for (long i = 0; i < stride; i++) features[r * stride + i] = masked(row[r * stride + i], bits);
    features[(r + 1) * stride - 1] = 0.0;
  }
  return of;
}

/* +1 for the target's label, -1 for any other; labels are integers, or masked later. */
INLINED lanes label_of_each_row(const sgd_training *t, lanes label) {
  if (!t->target) return label;
  lane_masks equal = (lane_masks)(label - (double)t->target) - 1; /* negative for the difference 0, or one that is negative */
  lane_masks other = (lane_masks)((double)t->target - label) - 1;
  return where_negative((lanes)(equal & other), (lanes){0} + 1.0, (lanes){0} - 1.0);
}

/* The slopes of MANY rows' gradients, as `slopes_of` has them without a clip. */
INLINED lanes slopes_of_many(const sgd_training *t, const unpacked_rows *of, lanes score) {
  lanes label = label_of_each_row(t, of->label), slope = score;
  if (t->loss == LOGISTIC) {
    slope = -label / (1.0 + exp_of_each(label * score));
    slope *= where_negative(label, (lanes){0} + 1.0, (lanes){0} + t->weight);
  } else
    for (int r = 0; r < MANY; r++) slope[r] = derivative(t, every(score[r]), every(label[r]))[0];
  return (lanes)(of->valid & (lane_masks)slope);
}

/* The scores of up to MANY rows by one model or two: each row is loaded once for both. */
INLINED void scores_of(const double *features, const double *models, long stride, int several, int rows, lanes *scores) {
  pair sums[2][MANY / 2] = {{{0}}};
  for (int h = 0; h * ROWS < rows; h++, features += ROWS * stride) {
    lanes d[2][ROWS] = {{{0}}};
    for (long i = 0; i < stride; i += LANES)
      for (int r = 0; r < ROWS && h * ROWS + r < rows; r++) {
        lanes x = load(features + r * stride + i);
        for (int m = 0; m < several; m++) d[m][r] += x * load(models + m * stride + i);
      }
    for (int m = 0; m < several; m++)
      for (int p = 0; p < ROWS / 2; p++) sums[m][h * (ROWS / 2) + p] = totals_of_two(d[m][2 * p], d[m][2 * p + 1]);
  }
  memcpy(scores, sums, sizeof sums);
}

INLINED void store_slopes(const sgd_training *t, const unpacked_rows *of, const double *features, const double *models, long stride, int several, int rows, double *slopes) {
  lanes scores[2];
  scores_of(features, models, stride, several, rows, scores);
  for (int m = 0; m < several; m++) store(slopes + m * MANY, slopes_of_many(t + m, of, scores[m]));
}

INLINED void add_group_of_each(const sgd_training *t, const float *row, long several, double *features, const double *models, double *gradients, long stride, int rows) {
  unpacked_rows of = unpacked(t, row, features, stride, rows);
  double *slopes = features + MANY * stride;
  long m = 0;
  for (; m + 2 <= several; m += 2) store_slopes(t + m, &of, features, models + m * stride, stride, 2, rows, slopes + m * MANY);
  if (m < several) store_slopes(t + m, &of, features, models + m * stride, stride, 1, rows, slopes + m * MANY);
  for (long i = 0; i < stride; i += LANES) { /* of which the rows are loaded once for all gradients */
    lanes x[MANY];
    for (int r = 0; r < rows; r++) x[r] = load(features + r * stride + i);
    for (m = 0; m < several; m++) {
      lanes g = load(gradients + m * stride + i);
      for (int r = 0; r < rows; r++) g += slopes[m * MANY + r] * x[r];
      store(gradients + m * stride + i, g);
    }
  }
}

/* Add the gradients of `count` rows at each of several models (several × stride), in the order in which `sgd_add_gradients`
 * adds them; `features` has room for MANY rows, and for as many scores of each model. */
CLONED void sgd_add_gradients_of_each(const sgd_training *t, const float *row, long count, long several, double *features, const double *models, double *gradients, long stride) {
  for (; count >= MANY; count -= MANY, row += MANY * stride) add_group_of_each(t, row, several, features, models, gradients, stride, MANY);
  for (; count >= 2; count -= 2, row += 2 * stride) add_group_of_each(t, row, several, features, models, gradients, stride, 2);
  if (count) add_group_of_each(t, row, several, features, models, gradients, stride, 1);
}

/* The sum of the gradients of a mini-batch is kept as two parts, `gradient` and `rest`, the roundings of the additions to the
 * first (Knuth's TwoSum): a mini-batch of many rows is added up in many calls. */
CLONED void add_two_parts(double *gradient, double *rest, double *part, long width, int ends) {
  for (long i = 0; i < width; i += LANES) {
    lanes before = load(gradient + i), added = load(part + i), sum = before + added, of_added = sum - before;
    lanes lost = load(rest + i) + ((before - (sum - of_added)) + (added - of_added));
    store(gradient + i, ends ? sum + lost : sum);
    store(rest + i, ends ? (lanes){0} : lost);
    store(part + i, (lanes){0});
  }
}

/* Add the gradients of `count` rows of a mini-batch, which begins or ends with them, or neither; `tree` is zeros again. A short
 * mini-batch, of which these are all rows, needs no tree. */
#define SHORT 1024
static void sgd_add_part(const sgd_training *t, const float *row, long count, const double *model, double *gradient, double *rest, double *tree, long stride, int begins, int ends) {
  if (begins && ends && count <= SHORT) return sgd_add_gradients(t, row, count, model, gradient, stride);
  sgd_sum_gradients(t, row, NULL, count, model, tree, stride);
  add_two_parts(gradient, rest, tree, stride, ends);
}

/* The same at each of several models (several × stride); `tree` has LEVELS × several × stride places. */
static void sgd_add_part_of_each(const sgd_training *t, const float *row, long count, long several, double *features, const double *models, double *gradients, double *rests, double *tree, long stride, int begins, int ends) {
  long pieces = 0, width = several * stride;
  if (begins && ends && count <= SHORT) return sgd_add_gradients_of_each(t, row, count, several, features, models, gradients, stride);
  for (; count > 0; count -= PIECE, row += PIECE * stride, pieces++) {
    sgd_add_gradients_of_each(t, row, count < PIECE ? count : PIECE, several, features, models, tree, stride);
    end_piece(tree, width, pieces);
  }
  end_tree(tree, width, pieces);
  add_two_parts(gradients, rests, tree, width, ends);
}

/* Up to eight rows whose losses are computed together: coordinate i of each is in columns[LANES * i …], their labels last. */
typedef struct {
  const double *columns;
  lanes label, weight;
  lane_masks valid;
} row_group;

INLINED row_group transposed(const sgd_training *t, const float *row, long stride, long rows, double *columns) {
  row_group of = {columns};
  lanes squares = {0};
  for (long i = 0; i < stride; i++)
    for (long r = 0; r < LANES; r++) columns[LANES * i + r] = r < rows ? row[r * stride + i] : 0.0;
  for (long i = 0; i < stride - 1; i++) squares += load(columns + LANES * i) * load(columns + LANES * i);
  for (long r = 0; r < LANES; r += 2) {
    pair label = {columns[LANES * (stride - 1) + r], columns[LANES * (stride - 1) + r + 1]}, norm2 = {squares[r], squares[r + 1]};
    pair_mask valid = taken(t, &label) & (norm2 <= every(MAX_NORM2)) & (pair_mask){-(r < rows), -(r + 1 < rows)};
    pair weight = where(label > every(0.0), every(t->weight), every(1.0));
    for (long i = 0; i < 2; i++) of.label[r + i] = label[i], of.weight[r + i] = weight[i], of.valid[r + i] = valid[i];
  }
  return of;
}

/* The losses of eight rows, as losses.py writes them. */
INLINED lanes loss_of(const sgd_training *t, lanes score, const row_group *of) {
  lanes margin = of->label * score, value;
  if (t->loss == LOGISTIC)
    value = above_zero(-margin) + log1p_exp_of(margin);
  else if (t->loss == HUBER_SVM) {
    lanes within = at_most(above_zero((1.0 + t->width) - margin), 2.0 * t->width);
    value = within * within / (4.0 * t->width) + above_zero((1.0 - t->width) - margin);
  } else {
    lanes size = size_of_each(score - of->label), within = at_most(size, t->limit);
    value = within * within / 2.0 + t->limit * (size - within);
  }
  return value * of->weight;
}

#define TOGETHER 8 /* models at a time: more would not fit the registers, and one alone waits for its own sum */
INLINED void add_losses(const sgd_training *t, const row_group *of, const double *models, long stride, double most, double *sums, int count) {
  lanes score[TOGETHER] = {{0}};
  for (long i = 0; i < stride - 1; i++)
    for (int c = 0; c < count; c++) score[c] += load(of->columns + LANES * i) * models[c * stride + i];
  for (int c = 0; c < count; c++) {
    lanes loss = at_most(loss_of(t, score[c], of), most);
    sums[c] += total((lanes)(of->valid & (lane_masks)loss));
  }
}

INLINED void add_group_losses(const sgd_training *t, const float *row, const double *models, long candidates, long stride, double most, double *sums, double *columns, long rows) {
  row_group of = transposed(t, row, stride, rows, columns);
  for (; candidates >= TOGETHER; candidates -= TOGETHER, models += TOGETHER * stride, sums += TOGETHER) add_losses(t, &of, models, stride, most, sums, TOGETHER);
  if (candidates & 4) add_losses(t, &of, models, stride, most, sums, 4), models += 4 * stride, sums += 4;
  if (candidates & 2) add_losses(t, &of, models, stride, most, sums, 2), models += 2 * stride, sums += 2;
  if (candidates & 1) add_losses(t, &of, models, stride, most, sums, 1);
}

/* Add the losses of `count` rows, each at most `most`, for each of the models (candidates × stride); `columns` has room for
 * LANES rows. */
CLONED void sgd_add_losses(const sgd_training *t, const float *row, long count, const double *models, long candidates, long stride, double most, double *sums, double *columns) {
  for (; count >= LANES; count -= LANES, row += LANES * stride) add_group_losses(t, row, models, candidates, stride, most, sums, columns, LANES);
  if (count > 0) add_group_losses(t, row, models, candidates, stride, most, sums, columns, count);
}

/* The same sums, in level 0 of a tree of zeros (LEVELS × candidates). */
static void sgd_sum_losses(const sgd_training *t, const float *row, long count, const double *models, long candidates, long stride, double most, double *tree, double *columns) {
  long pieces = 0;
  for (; count > 0; count -= PIECE, row += PIECE * stride, pieces++) {
    sgd_add_losses(t, row, count < PIECE ? count : PIECE, models, candidates, stride, most, tree, columns);
    end_piece(tree, candidates, pieces);
  }
  end_tree(tree, candidates, pieces);
}

/* Features (count × dimension) and labels of packed rows as doubles; zeros, and 0 in `valid`, for an invalid row. */
CLONED void unpack_rows(const float *row, long count, long dimension, long stride, double *features, double *labels, unsigned char *valid) {
  for (; count > 0; count--, row += stride, features += dimension, labels++, valid++) {
    lanes squares = {0};
    double norm2 = 0, label = row[stride - 1];
    long i = 0;
    for (; i + LANES <= dimension; i += LANES) {
      lanes x = load_floats(row + i);
      squares += x * x;
    }
    for (long rest = i; rest < dimension; rest++) norm2 += (double)row[rest] * row[rest];
    int bits = -((total(squares) + norm2 <= MAX_NORM2) & (label - label == 0.0));
    for (i = 0; i + LANES <= dimension; i += LANES)
      store(features + i, load_masked(row + i, (float_masks){bits, bits, bits, bits, bits, bits, bits, bits}));
    for (; i < dimension; i++) features[i] = masked(row[i], bits);
    *labels = masked(row[stride - 1], bits);
    *valid = bits & 1;
  }
}

/* The larger of two numbers, without a branch; the second where the first is NaN. */
INLINED double larger(double one, double other) { return where(every(one) > every(other), every(one), every(other))[0]; }

/* What follows the step of an update: the projection, and the sum of iterates. */
INLINED void end_update(double radius, double *model, double *sum, long stride, int averaged) {
  if (radius < INFINITY) {
    lanes squares = {0};
    for (long i = 0; i < stride; i += LANES) squares += load(model + i) * load(model + i);
    double factor = radius / larger(sqrt(total(squares)), radius); /* 1 within the ball */
    for (long i = 0; i < stride; i += LANES) store(model + i, factor * load(model + i));
  }
  if (averaged)
    for (long i = 0; i < stride; i += LANES) store(sum + i, load(sum + i) + load(model + i));
}

/* model ← Π(model - step (gradient / b + λ model)); gradient ← 0; sum += model where averaged. */
CLONED void sgd_update(const sgd_training *t, double *model, double *gradient, double *sum, long stride, double step, int averaged) {
  double scale = step / t->batch_size, keep = 1.0 - step * t->regularisation;
  gradient[stride - 1] = 0.0;
  for (long i = 0; i < stride; i += LANES) {
    store(model + i, keep * load(model + i) - scale * load(gradient + i));
    store(gradient + i, (lanes){0});
  }
  end_update(t->radius, model, sum, stride, averaged);
}

/* The noisy sum: the nearest multiple of the grid, plus noise in steps of the grid. The grid, with its inverse, is a power of
 * two, and noise is below 2⁵² steps. Their sum is exact, or the exact one rounded to a double, which is a function of it. */
INLINED double noisy_sum(double gradient, long noise, double grid, double per_grid) {
  return (nearbyint(gradient * per_grid) + (double)noise) * grid;
}

/* One noisy update: model ← Π(model - step (gradient / b + λ model)); gradient ← 0. */
CLONED void noisy_update(const sgd_training *t, double *model, double *gradient, long stride, double step, const long *noise, long parameters, double grid) {
  double scale = step / t->batch_size, keep = 1.0 - step * t->regularisation, per_grid = 1.0 / grid;
  long i = 0;
  for (; i + LANES <= parameters; i += LANES) {
    double sum[LANES];
    for (int k = 0; k < LANES; k++) sum[k] = noisy_sum(gradient[i + k], noise[i + k], grid, per_grid);
    store(model + i, keep * load(model + i) - scale * load(sum));
    store(gradient + i, (lanes){0});
  }
  for (; i < parameters; i++) {
    model[i] = keep * model[i] - scale * noisy_sum(gradient[i], noise[i], grid, per_grid);
    gradient[i] = 0.0;
  }
  gradient[stride - 1] = 0.0;
  end_update(t->radius, model, model, stride, 0);
}

/* One noisy update of Adam (Kingma & Ba 2015): moments of the noisy gradient, each divided by its correction. */
CLONED void noisy_adam(const sgd_training *t, const adam *how, double *model, double *gradient, double *first, double *second, long stride, double step, const long *noise, long parameters, double grid, double correction1, double correction2) {
  double per_grid = 1.0 / grid;
  for (long i = 0; i < parameters; i++) {
    double g = noisy_sum(gradient[i], noise[i], grid, per_grid) / t->batch_size + t->regularisation * model[i];
    first[i] = how->decay1 * first[i] + (1.0 - how->decay1) * g;
    second[i] = how->decay2 * second[i] + (1.0 - how->decay2) * g * g;
    model[i] -= step * (first[i] / correction1) / (sqrt(second[i] / correction2) + how->floor);
    gradient[i] = 0.0;
  }
  end_update(t->radius, model, model, stride, 0);
}

/* Mini-batches of one row: the gradient need not be stored. Iterates are summed from update `first` on. */
CLONED void sgd_single_rows(const sgd_training *t, const float *row, long count, double *model, double *sum, long stride, const double *steps, long first) {
  for (long u = 0; u < count; u++, row += stride) {
    row_slopes of = slopes_at(t, row, NULL, model, stride, 1);
    double keep = 1.0 - steps[u] * t->regularisation, scale = steps[u] * of.slope[0][0];
    for (long i = 0; i < stride; i += LANES) store(model + i, keep * load(model + i) - scale * load_packed(row + i, of, 0));
    model[stride - 1] = 0.0;
    end_update(t->radius, model, sum, stride, u >= first);
  }
}

/* One step for each row: model -= step * direction, and the direction changes as the row's gradient did, of its loss and the
 * regulariser. The label's place of both vectors is 0. */
CLONED void recursive_rows(const sgd_training *t, const float *row, long count, double *model, double *direction, long stride, double step) {
  const float_masks NO_LABEL = {-1, -1, -1, -1, -1, -1, -1, 0};
  double keep = 1.0 - step * t->regularisation;
  for (; count > 0; count--, row += stride) {
    lanes before = {0}, after = {0}, squares = {0};
    for (long i = 0; i < stride; i += LANES) {
      lanes x = i < stride - LANES ? load_floats(row + i) : load_masked(row + i, NO_LABEL), w = load(model + i);
      before += x * w;
      w -= step * load(direction + i);
      store(model + i, w);
      after += x * w;
      squares += x * x;
    }
    pair norm2 = every(total(squares)), label = every(row[stride - 1]);
    pair slopes = slopes_of(t, (pair){total(after), total(before)}, norm2, every(1.0), label);
    row_slopes of = {.packed = {norm2 <= every(MAX_NORM2)}};
    double change = slopes[0] - slopes[1];
    for (long i = 0; i < stride; i += LANES)
      store(direction + i, keep * load(direction + i) + change * load_packed(row + i, of, 0));
    direction[stride - 1] = 0.0;
  }
}

/* max(least, the largest absolute value of the numbers, 2⁻¹⁰²²), so that no row divides by 0; NaN is ignored. */
INLINED double largest_size(const double *features, long dimension, double least) {
  pair most = every(least), size;
  for (long i = 0; i + 2 <= dimension; i += 2) {
    memcpy(&size, features + i, sizeof size);
    size = size_of(size);
    most = where(size > most, size, most);
  }
  return larger(larger(fabs(features[dimension - 1]), larger(most[0], most[1])), 0x1p-1022);
}

/* A packed row from features (dimension, changed in place) and a label: see encoding.pack. */
INLINED void pack_row(double *features, double of_label, float *row, long dimension, long stride, double shrink, double least) {
  double largest = largest_size(features, dimension, least), norm2;
  lanes sums = {0};
  long i = 0;
  for (; i + LANES <= dimension; i += LANES) {
    lanes u = load(features + i) / largest;
    store(features + i, u);
    sums += u * u;
  }
  norm2 = total(sums);
  for (; i < dimension; i++) {
    features[i] /= largest;
    norm2 += features[i] * features[i];
  }
  double norm = sqrt(norm2), scale = shrink / larger(norm, 1.0);
  float label = (float)of_label;
  int valid = -((label - label == 0.0f) & (norm - norm == 0.0)); /* no bits for NaN and infinity */
  for (i = 0; i < dimension; i++) row[i] = masked((float)(features[i] * scale), valid);
  for (; i < stride - 1; i++) row[i] = 0.0f;
  row[stride - 1] = masked(label, valid);
}

/* Packed rows from features (count × dimension, changed in place) and labels. */
CLONED void pack_rows(double *features, const double *labels, float *rows, long count, long dimension, long stride, double shrink, double least) {
  for (; count > 0; count--, features += dimension, labels++, rows += stride) pack_row(features, *labels, rows, dimension, stride, shrink, least);
}

/* Records of vectors: `bytes` each, with `length` doubles at their end and the header of an array before them. */
typedef struct {
  long bytes, length, dimension;
  double factor, constant, shrink, least; /* of each element; of the intercept, where dimension > length */
} vector_records;

/* Packed rows, each at its place, from records and labels; `room` has `dimension` doubles. An array that has another length
 * or a null, which its header shows, gives the zero row. */
CLONED void pack_records(const vector_records *of, const char *record, const double *labels, const long *places, long count, double *room, float *rows, long stride) {
  const long AHEAD = 8, ELEMENTS = of->bytes - of->length * (long)sizeof(double);
  for (long r = 0; r < count; r++, record += of->bytes) {
    const float *later = rows + places[r + AHEAD < count ? r + AHEAD : count - 1] * stride;
    for (long i = 0; i < stride; i += 2 * LANES) __builtin_prefetch(later + i, 1);
    int header[5]; /* dimensions, offset of the data or 0, type, length, lower bound */
    memcpy(header, record + ELEMENTS - sizeof header, sizeof header);
    int complete = (header[0] == 1) & (header[1] == 0) & (header[3] == of->length);
    long i = 0;
    for (; i + LANES <= of->length; i += LANES) store(room + i, load(record + ELEMENTS + i * sizeof(double)) * of->factor);
    for (; i < of->length; i++) {
      memcpy(room + i, record + ELEMENTS + i * sizeof(double), sizeof(double));
      room[i] *= of->factor;
    }
    for (; i < of->dimension; i++) room[i] = of->constant;
    pack_row(room, where((pair_mask){-complete, 0}, every(labels[r]), every(NAN))[0], rows + places[r] * stride, of->dimension, stride, of->shrink, of->least);
  }
}
