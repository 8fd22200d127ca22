/* Vectors of eight numbers: what the compiled kernels share. */
#ifndef DBDP_LANES_H
#define DBDP_LANES_H
#include <math.h>
#include <string.h>

#define LANES 8

/* One copy for each level of x86-64 that matters, chosen when the library is loaded: a wheel built
 * anywhere runs everywhere. */
#ifdef CLONED /* by whoever tests one copy alone */
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define WIDEST __attribute__((target("arch=x86-64-v4"))) /* to be called where HAS_WIDEST alone */
#define HAS_WIDEST __builtin_cpu_supports("x86-64-v4")
#else
#define CLONED
#endif
#define INLINED static inline __attribute__((always_inline))

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef double half_lanes __attribute__((vector_size(LANES / 2 * sizeof(double))));
typedef double quarter_lanes __attribute__((vector_size(LANES / 4 * sizeof(double))));
typedef float float_lanes __attribute__((vector_size(LANES * sizeof(float))));

INLINED lanes load_floats(const void *place) {
  float_lanes narrow;
  memcpy(&narrow, place, sizeof narrow);
  return __builtin_convertvector(narrow, lanes);
}

INLINED lanes load(const void *place) {
  lanes wide;
  memcpy(&wide, place, sizeof wide);
  return wide;
}

INLINED void store(double *place, lanes wide) { memcpy(place, &wide, sizeof wide); }

/* The sum of the eight, halves upon halves: one addition of vectors each. */
INLINED double total(lanes v) {
  half_lanes halves[2];
  memcpy(halves, &v, sizeof v);
  half_lanes half = halves[0] + halves[1];
  quarter_lanes quarters[2];
  memcpy(quarters, &half, sizeof half);
  quarter_lanes quarter = quarters[0] + quarters[1];
  return quarter[0] + quarter[1];
}

#endif
