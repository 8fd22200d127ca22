/* The SGD step over packed rows: float32 storage, float64 arithmetic (privacy.md §14).
 *
 * A row has `stride` floats, a multiple of LANES: features, zeros, the label last. The model and the
 * gradient have `stride` doubles; their places beyond the features meet only zeros and the label, and
 * the caller ignores them. Sums may be taken in any order: the rounding margin holds for every one.
 */
#include "../_lanes.h"

#define MAX_NORM2 (1.0 - 0x1p-30) /* packed rows have ‖x‖² ≤ (1 - 2⁻²³)²; anything above is no such row */

/* dℓ/dmargin, |·| ≤ 1 as computed. exp may overflow: the quotient is then the right -0. */
INLINED double logistic_derivative(double margin) { return -1.0 / (1.0 + exp(margin)); }

/* y·ℓ'(y·dot), or 0 for a row that is not a packed row (norm above 1, NaN, or a label other than ±1).
 * `norm2` is ‖x‖² + label²; for NaN every comparison is false. */
INLINED double coefficient(double dot, double norm2, double label) {
  if (!((label == 1.0 || label == -1.0) && norm2 - 1.0 <= MAX_NORM2)) return 0.0;
  return label * logistic_derivative(label * dot);
}

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
    norm2[r] = total(n[r]);
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

INLINED void add_group(const float *row, const double *model, double *gradient, long stride, int rows) {
  double dot[4], norm2[4], c[4];
  dots(row, model, stride, rows, dot, norm2);
  for (int r = 0; r < rows; r++) c[r] = coefficient(dot[r], norm2[r], row[(r + 1) * stride - 1]);
  add_rows(row, gradient, stride, rows, c);
}

/* Add the gradients of `count` rows at the model. The model's place of the label must be 0. */
CLONED void sgd_add_gradients(const float *row, long count, const double *model, double *gradient, long stride) {
  for (; count >= 4; count -= 4, row += 4 * stride) add_group(row, model, gradient, stride, 4);
  for (; count > 0; count--, row += stride) add_group(row, model, gradient, stride, 1);
}

/* model ← model - step (gradient / batch_size + λ model); gradient ← 0. */
CLONED void sgd_update(double *model, double *gradient, long stride, double step, double batch_size, double lambda) {
  double scale = step / batch_size, keep = 1.0 - step * lambda;
  for (long i = 0; i < stride; i += LANES) {
    store(model + i, keep * load(model + i) - scale * load(gradient + i));
    store(gradient + i, (lanes){0});
  }
  model[stride - 1] = 0.0;
}

/* Mini-batches of one row: the gradient need not be stored. */
CLONED void sgd_single_rows(const float *row, long count, double *model, long stride, const double *steps, double lambda) {
  for (long t = 0; t < count; t++, row += stride) {
    double dot, norm2;
    dots(row, model, stride, 1, &dot, &norm2);
    double c = coefficient(dot, norm2, row[stride - 1]);
    double keep = 1.0 - steps[t] * lambda, scale = steps[t] * c;
    if (c == 0.0)
      for (long i = 0; i < stride; i += LANES) store(model + i, keep * load(model + i));
    else
      for (long i = 0; i < stride; i += LANES)
        store(model + i, keep * load(model + i) - scale * load_floats(row + i));
    model[stride - 1] = 0.0;
  }
}

/* Packed rows from features (count × dimension, changed in place) and labels: see encoding.pack_reference. */
CLONED void pack_rows(double *features, const int *labels, float *rows, long count, long dimension, long stride, double shrink) {
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
    int valid = (labels[r] == 1 || labels[r] == -1) && norm - norm == 0.0;
    for (i = 0; i < dimension; i++) rows[i] = valid ? (float)(features[i] * scale) : 0.0f;
    for (; i < stride - 1; i++) rows[i] = 0.0f;
    rows[stride - 1] = valid ? (float)labels[r] : 0.0f;
  }
}
