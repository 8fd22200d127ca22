/* Vectors of eight numbers: what the compiled kernels share. */
#ifndef DBDP_LANES_H
#define DBDP_LANES_H
#include <math.h>
#include <string.h>

#define LANES 8

/* One copy for each level of x86-64 that matters, chosen when the library is loaded: a wheel built
 * anywhere runs everywhere. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONED
#endif
#define INLINED static inline __attribute__((always_inline))

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
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

INLINED double total(lanes v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

#endif
