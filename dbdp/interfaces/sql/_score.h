#include "../../_lanes.h"

/* Σ weight × element over an array's own bytes, which need not be aligned; Σ element² in `square`. */
CLONED double score_array(const char *data, long length, const double *weights, int narrow, double *square) {
  lanes sum = {0}, squares = {0};
  long i = 0, bytes = narrow ? sizeof(float) : sizeof(double);
  for (; i + LANES <= length; i += LANES) {
    lanes x = narrow ? load_floats(data + i * bytes) : load(data + i * bytes);
    sum += x * load(weights + i);
    squares += x * x;
  }
  double score = total(sum), added = total(squares);
  for (; i < length; i++) {
    double wide;
    float single;
    if (narrow) {
      memcpy(&single, data + i * bytes, bytes);
      wide = single;
    } else
      memcpy(&wide, data + i * bytes, bytes);
    score += weights[i] * wide;
    added += wide * wide;
  }
  *square = added;
  return score;
}
