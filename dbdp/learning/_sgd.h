/* The SGD step over packed rows: float32 storage, float64 arithmetic (privacy.md §14).
 *
 * A row has `stride` floats, a multiple of LANES: features, zeros, the label last. The model, the
 * gradient and the sum of iterates have `stride` doubles; the model's place of the label is 0, the
 * caller ignores the others'. Sums may be taken in any order: the rounding margin holds for every one.
 */
#include "../_lanes.h"

#define MAX_NORM2 (1.0 - 0x1p-30) /* packed rows have ‖x‖² ≤ (1 - 2⁻²³)²; anything above is no such row */

enum { LOGISTIC = 1, HUBER_SVM, HUBER_REGRESSION, SQUARED }; /* the codes of losses.py */

typedef struct {
  long loss, target;                 /* target > 0: that class is +1, every other -1 */
  double width, limit, weight;       /* of a smoothed hinge; what |derivative| is clamped to; of positive rows */
  double clip;                       /* what the norm of a row's gradient is clipped to, or infinity */
  double batch_size, regularisation; /* b, λ */
  double radius;                     /* of the ball that the model is projected onto, or infinity */
} sgd_training;

typedef struct {
  double decay1, decay2, floor; /* of the moments of Adam, and what is added to the root of the second */
} adam;

/* The label as the training takes it, NaN where it cannot: see kernels.labelled. */
INLINED double taken(const sgd_training *t, double label) {
  if (t->target) return label >= 1.0 && label == floor(label) ? (label == t->target ? 1.0 : -1.0) : NAN;
  double size = fabs(label);
  return size == 1.0 || (t->loss >= HUBER_REGRESSION && size < 1.0) ? label : NAN;
}

INLINED double clamped(double value, double low, double high) {
  return value < low ? low : value > high ? high : value;
}

/* dℓ/dscore, |·| ≤ limit as computed. exp may overflow: the quotient is then the right 0. */
INLINED double derivative(const sgd_training *t, double score, double label) {
  double slope;
  if (t->loss == LOGISTIC)
    slope = -label / (1.0 + exp(label * score));
  else if (t->loss == HUBER_SVM)
    slope = -label * (clamped((1.0 + t->width) - label * score, 0.0, 2.0 * t->width) / (2.0 * t->width));
  else
    slope = clamped(score - label, -t->limit, t->limit);
  return label > 0.0 ? t->weight * slope : slope;
}

/* The slope of a row's gradient: its derivative, clipped so that its product with ‖x‖ is ≤ clip; 0 for what
 * is no packed row with a label of this training. NaN compares false. */
INLINED double coefficient(const sgd_training *t, double score, double norm2, double packed_label) {
  double label = taken(t, packed_label);
  if (!(label == label && norm2 <= MAX_NORM2)) return 0.0;
  double slope = derivative(t, score, label);
  if (t->clip < INFINITY) {
    double most = t->clip / sqrt(norm2);
    slope = clamped(slope, -most, most);
  }
  return slope;
}

/* ‖x‖² of a row whose squares add up to `squares`, the label's among them. Taking that one away leaves
 * an error of a few 2⁻⁵³ while it is at most 1: nothing, unless little else is left. Then, and for the number
 * of a class, which would drown the others, they are summed again without it: what a gradient is clipped to
 * has to be right for short rows too. NaN for a label that is not finite. */
INLINED double norm2_of(const float *row, long stride, double squares) {
  double label = row[stride - 1], others = squares - label * label;
  if (fabs(label) <= 1.0 && others > 0x1p-12) return others;
  lanes sums = {0}, x;
  for (long i = 0; i < stride - LANES; i += LANES) {
    x = load_floats(row + i);
    sums += x * x;
  }
  x = load_floats(row + stride - LANES) * (lanes){1, 1, 1, 1, 1, 1, 1, 0};
  return total(sums + x * x);
}

/* Scores and ‖x‖² of up to four rows. The model's place of the label is 0. */
INLINED void dots(const float *row, const double *model, long stride, int rows, double *dot, double *norm2) {
  lanes d[4] = {{0}}, n[4] = {{0}};
  for (long i = 0; i < stride; i += LANES) {
    lanes w = load(model + i);
    for (int r = 0; r < rows; r++) {
      lanes x = load_floats(row + r * stride + i);
      d[r] += x * w;
      n[r] += x * x;
    }
  }
  for (int r = 0; r < rows; r++) {
    dot[r] = total(d[r]);
    norm2[r] = norm2_of(row + r * stride, stride, total(n[r]));
  }
}

/* gradient += Σ c_r x_r over up to four rows. A row with c = 0 is skipped: 0·NaN is NaN. */
INLINED void add_rows(const float *row, double *gradient, long stride, int rows, const double *c) {
  for (int r = 0; r < rows; r++)
    if (c[r] == 0.0) {
      for (int q = 0; q < rows; q++)
        if (c[q] != 0.0)
          for (long i = 0; i < stride; i += LANES)
            store(gradient + i, load(gradient + i) + c[q] * load_floats(row + q * stride + i));
      return;
    }
  for (long i = 0; i < stride; i += LANES) {
    lanes g = load(gradient + i);
    for (int r = 0; r < rows; r++) g += c[r] * load_floats(row + r * stride + i);
    store(gradient + i, g);
  }
}

INLINED void add_group(const sgd_training *t, const float *row, const double *model, double *gradient, long stride, int rows) {
  double dot[4], norm2[4], c[4];
  dots(row, model, stride, rows, dot, norm2);
  for (int r = 0; r < rows; r++) c[r] = coefficient(t, dot[r], norm2[r], row[(r + 1) * stride - 1]);
  add_rows(row, gradient, stride, rows, c);
}

/* Add the gradients of `count` rows at the model. */
CLONED void sgd_add_gradients(const sgd_training *t, const float *row, long count, const double *model, double *gradient, long stride) {
  for (; count >= 4; count -= 4, row += 4 * stride) add_group(t, row, model, gradient, stride, 4);
  for (; count > 0; count--, row += stride) add_group(t, row, model, gradient, stride, 1);
}

/* What follows the step of an update: the projection, and the sum of iterates. */
INLINED void end_update(double radius, double *model, double *sum, long stride, int averaged) {
  if (radius < INFINITY) {
    lanes squares = {0};
    for (long i = 0; i < stride; i += LANES) squares += load(model + i) * load(model + i);
    double norm = sqrt(total(squares));
    if (norm > radius)
      for (long i = 0; i < stride; i += LANES) store(model + i, (radius / norm) * load(model + i));
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

/* gradient ← the multiple of the grid next to it, plus noise, a whole number of steps of the grid: exact in
 * doubles, since both are below 2⁵² steps and the grid is a power of two. */
INLINED void add_noise(double *gradient, const long *noise, long parameters, double grid) {
  for (long i = 0; i < parameters; i++) gradient[i] = (nearbyint(gradient[i] / grid) + (double)noise[i]) * grid;
}

/* One noisy update: model ← Π(model - step (gradient / b + λ model)); gradient ← 0. */
CLONED void noisy_update(const sgd_training *t, double *model, double *gradient, long stride, double step, const long *noise, long parameters, double grid) {
  add_noise(gradient, noise, parameters, grid);
  sgd_update(t, model, gradient, gradient, stride, step, 0);
}

/* One noisy update of Adam (Kingma & Ba 2015): moments of the noisy gradient, each divided by its correction. */
CLONED void noisy_adam(const sgd_training *t, const adam *how, double *model, double *gradient, double *first, double *second, long stride, double step, const long *noise, long parameters, double grid, double correction1, double correction2) {
  add_noise(gradient, noise, parameters, grid);
  for (long i = 0; i < parameters; i++) {
    double g = gradient[i] / t->batch_size + t->regularisation * model[i];
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
    double dot, norm2;
    dots(row, model, stride, 1, &dot, &norm2);
    double c = coefficient(t, dot, norm2, row[stride - 1]);
    double keep = 1.0 - steps[u] * t->regularisation, scale = steps[u] * c;
    if (c == 0.0)
      for (long i = 0; i < stride; i += LANES) store(model + i, keep * load(model + i));
    else
      for (long i = 0; i < stride; i += LANES) store(model + i, keep * load(model + i) - scale * load_floats(row + i));
    model[stride - 1] = 0.0;
    end_update(t->radius, model, sum, stride, u >= first);
  }
}

/* Packed rows from features (count × dimension, changed in place) and labels: see encoding.pack_reference. */
CLONED void pack_rows(double *features, const double *labels, float *rows, long count, long dimension, long stride, double shrink) {
  for (long r = 0; r < count; r++, features += dimension, rows += stride) {
    double largest = 1.0, norm2 = 0.0;
    for (long i = 0; i < dimension; i++) {
      double size = fabs(features[i]);
      largest = size > largest ? size : largest; /* NaN is not larger, and makes norm2 NaN */
    }
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
    double norm = sqrt(norm2), scale = shrink / (norm > 1.0 ? norm : 1.0);
    float label = (float)labels[r];
    int valid = label - label == 0.0f && norm - norm == 0.0; /* false for NaN and infinity */
    for (i = 0; i < dimension; i++) rows[i] = valid ? (float)(features[i] * scale) : 0.0f;
    for (; i < stride - 1; i++) rows[i] = 0.0f;
    rows[stride - 1] = valid ? label : 0.0f;
  }
}
