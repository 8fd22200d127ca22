/* Noise from a stream of random words: ChaCha20, and arithmetic of bounded error (see streams.py).
 *
 * A word is the first 64 bits of a uniform real number. Eight numbers are computed at once, to the
 * nearest, with ε = 2⁻⁵³: comments give each function's error as nε. Only +, -, ×, / and √ are used, which IEEE 754
 * rounds correctly; where the compiler contracts a product and a sum, there is one rounding less.
 */
#include <stdint.h>
#include "../../_lanes.h"

typedef int64_t integers __attribute__((vector_size(LANES * sizeof(int64_t))));
typedef uint64_t words __attribute__((vector_size(LANES * sizeof(uint64_t))));
typedef uint64_t half_words __attribute__((vector_size(LANES / 2 * sizeof(uint64_t))));
typedef uint32_t short_words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint32_t pair_words __attribute__((vector_size(2 * LANES * sizeof(uint32_t)))); /* of two groups */

/* ---- ChaCha20 (RFC 8439), a block in each lane ---- */

#define GROUP_WORDS (8 * LANES) /* words of 64 bits in the LANES blocks of a group */

/* The key stream of a vector's lanes, a block in each: the first block's words in x, from the counter `first` of each lane. */
#define CIPHER(NAME, VECTOR)                                                                                 \
  INLINED VECTOR NAME##_rotated(VECTOR x, int by) { return x << by | x >> (32 - by); }                       \
  INLINED void NAME##_quarter_round(VECTOR *a, VECTOR *b, VECTOR *c, VECTOR *d) {                            \
    *a += *b, *d = NAME##_rotated(*d ^ *a, 16);                                                              \
    *c += *d, *b = NAME##_rotated(*b ^ *c, 12);                                                              \
    *a += *b, *d = NAME##_rotated(*d ^ *a, 8);                                                               \
    *c += *d, *b = NAME##_rotated(*b ^ *c, 7);                                                               \
  }                                                                                                          \
  INLINED void NAME(const uint32_t *key, VECTOR lower, uint32_t upper, VECTOR *x) {                          \
    static const uint32_t constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};                   \
    VECTOR begin[16], none = {0};                                                                            \
    for (int i = 0; i < 4; i++) begin[i] = none + constants[i];                                              \
    for (int i = 0; i < 8; i++) begin[4 + i] = none + key[i];                                                \
    begin[12] = lower, begin[13] = none + upper, begin[14] = begin[15] = none;                               \
    memcpy(x, begin, sizeof begin);                                                                          \
    for (int round = 0; round < 10; round++) {                                                               \
      for (int i = 0; i < 4; i++) NAME##_quarter_round(x + i, x + 4 + i, x + 8 + i, x + 12 + i);             \
      for (int i = 0; i < 4; i++)                                                                            \
        NAME##_quarter_round(x + i, x + 4 + (i + 1) % 4, x + 8 + (i + 2) % 4, x + 12 + (i + 3) % 4);         \
    }                                                                                                        \
    for (int i = 0; i < 16; i++) x[i] += begin[i];                                                           \
  }
CIPHER(eight_blocks, short_words)
CIPHER(sixteen_blocks, pair_words)

/* Groups of blocks, from the group `first` on: word 0 of all blocks of a group, then word 1, …, as 32 bits.
 * The counter of blocks has 64 bits: the upper half is the first word of the nonce, the others are 0. */
CLONED void chacha_single(const uint32_t *key, uint64_t first, uint64_t *out, long groups) {
  const short_words LANE = {0, 1, 2, 3, 4, 5, 6, 7};
  for (long g = 0; g < groups; g++, out += GROUP_WORDS) {
    uint64_t counter = (first + g) * LANES; /* the lower half does not overflow within a group */
    short_words x[16];
    eight_blocks(key, LANE + (uint32_t)counter, counter >> 32, x);
    memcpy(out, x, sizeof x);
  }
}

#ifdef WIDEST
/* The same of pairs of groups, from an even one on: twice as fast where vectors have 16 lanes, slower elsewhere. */
WIDEST static void chacha_pairs(const uint32_t *key, uint64_t first, uint64_t *out, long pairs) {
  const pair_words LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (long p = 0; p < pairs; p++, out += 2 * GROUP_WORDS) {
    uint64_t counter = (first + 2 * p) * LANES;
    pair_words x[16];
    sixteen_blocks(key, LANE + (uint32_t)counter, counter >> 32, x);
    for (int i = 0; i < 16; i++) {
      memcpy(out + 4 * i, x + i, sizeof *x / 2);
      memcpy(out + GROUP_WORDS + 4 * i, (char *)(x + i) + sizeof *x / 2, sizeof *x / 2);
    }
  }
}
#endif

static void chacha_groups(const uint32_t *key, uint64_t first, uint64_t *out, long groups) {
#ifdef WIDEST
  if (HAS_WIDEST && first % 2 == 0) {
    chacha_pairs(key, first, out, groups / 2);
    first += groups / 2 * 2, out += groups / 2 * 2 * GROUP_WORDS, groups %= 2;
  }
#endif
  chacha_single(key, first, out, groups);
}

/* ---- elementary functions ---- */

#define SIGN (1ULL << 63)
#define FRACTION ((1ULL << 52) - 1)
#define ONE 0x3ff0000000000000ULL       /* the bits of 1.0 */
#define ROOT_HALF 0x3fe6a09e667f3bcdULL /* the bits of √½ */
#define LEAST 0x1p48                    /* a word, or its complement, below this has too few significant bits */
#define SHIFT 0x1.8p52                  /* x + SHIFT ends in the integer nearest to x, |x| ≤ 2⁵¹ */

static const words LANE = {0, 1, 2, 3, 4, 5, 6, 7};

INLINED words words_at(const uint64_t *place) {
  words v;
  memcpy(&v, place, sizeof v);
  return v;
}

INLINED words negative(lanes x) { return (words)x >> 63; }

/* 1 in the lanes whose number is below a limit, 0 in the others; both are below 2⁶³. */
INLINED words below(words number, long limit) { return (number - (uint64_t)limit) >> 63; }

/* `yes` where the bit is 1, `no` where it is 0. */
INLINED lanes chosen(words bit, lanes yes, lanes no) { return (lanes)((-bit & (words)yes) | ((bit - 1) & (words)no)); }

/* v as a real number: 1ε, since the two summands are exact. */
INLINED lanes real(words v) {
  lanes high = (lanes)(v >> 32 | 0x4530000000000000ULL) - 0x1.00000001p84; /* 2³²⌊v/2³²⌋ - 2⁵² */
  lanes low = (lanes)((v & 0xffffffffULL) | 0x4330000000000000ULL);        /* v mod 2³² + 2⁵² */
  return high + low;
}

/* -ln w for a normal w in (0, 1], with c = 1 - w where w ≥ √½, which counts there: 3.4ε of the result. Elsewhere
 * 1.6ε + 1ε·result.
 *
 * w = 2ᵏm, √½ ≤ m < √2, f = m - 1 = 2s/(1 - s) is exact, and so is k times the first part of ln 2. s errs by 2ε, and
 * with it the series ln m = 2s(1 + s²/3 + s⁴/5 + …); |s| < 0.172, so that what follows s¹⁸ is below 0.22ε of it, and
 * the roundings of the sum are 1.1ε; |ln m| ≤ 0.347. */
INLINED lanes minus_log(lanes w, lanes c) {
  words bits = (words)w + (ONE - ROOT_HALF), exponent = bits >> 52;
  lanes k = (lanes)(exponent | 0x4330000000000000ULL) - (0x1p52 + 1023.0);
  lanes f = chosen((exponent - 1023) >> 63, (lanes)((bits & FRACTION) + ROOT_HALF) - 1.0, -c);
  lanes s = f / (2.0 + f), s2 = s * s, s4 = s2 * s2, s8 = s4 * s4;
  lanes first = (1.0 / 3 + s2 * (1.0 / 5)) + s4 * (1.0 / 7 + s2 * (1.0 / 9));
  lanes second = (1.0 / 11 + s2 * (1.0 / 13)) + s4 * (1.0 / 15 + s2 * (1.0 / 17));
  lanes p = first + s8 * (second + s8 * (1.0 / 19));
  s += s;
  return -(k * 0x1.62e42fefa38p-1 + (k * 0x1.ef35793c7673p-45 + (s + s * (s2 * p))));
}

/* -ln u for the u that begins with v: 9ε of the result and 2⁻⁶⁴, where `sure` is not negative.
 *
 * From 1 - u, which begins with the complement of v, above ½. Above √½ its 1ε is worth 1.2ε of the result. From
 * there down to ½ the errors of c and of 1 - c are worth (c + ½)/(1 - c) ε, below it that of v is worth 1ε: with
 * minus_log less than 9ε of the result, most near √½, where that is least. The bits that v has not are worth 2⁻⁶⁴
 * near 1, and elsewhere 2⁻⁴⁸ at most, where the result is above 11. */
INLINED lanes exponential(words v, lanes *sure) {
  words upper = v >> 63;
  lanes y = real(v ^ -upper), c = y * 0x1p-64;
  *sure = y - LEAST;
  return minus_log(chosen(upper, 1.0 - c, c), c);
}

INLINED lanes root(lanes square) {
  double x[LANES];
  store(x, square);
  for (int i = 0; i < LANES; i++) x[i] = sqrt(x[i]);
  return load(x);
}

/* cos and sin of 2πu for the u that begins with v: 4.5ε, as parts of 1.
 *
 * 4u = q + t for an integer q and |t| ≤ ½; 52 bits of t are taken, and half of the last one more, so that the angle
 * πt/2 errs by 1.6ε; the series end where what follows is below 0.6ε of them, and their roundings are worth
 * 4ε·sin π/4 and 2ε. */
INLINED void turn(words v, lanes *cosine, lanes *sine) {
  words x = v + (1ULL << 61), odd = x >> 62 & 1;
  lanes t = ((lanes)((x >> 10 & FRACTION) | ONE) - 1.5) + 0x1p-53, t2 = t * t;
  lanes s = t2 * -0x1.6fadb9f155744p-31 + 0x1.e8f434d018d63p-25; /* (π/2)¹⁵/15!, (π/2)¹³/13!, … */
  s = t2 * s - 0x1.e3074fde8871fp-19;
  s = t2 * s + 0x1.50783487ee782p-13;
  s = t2 * s - 0x1.32d2cce62bd86p-8;
  s = t2 * s + 0x1.466bc6775aae2p-4;
  s = t2 * s - 0x1.4abbce625be53p-1;
  s = t * (t2 * s + 0x1.921fb54442d18p+0);
  lanes c = t2 * 0x1.20c62c2f2d7f5p-34 - 0x1.b6e24f44b128fp-28; /* (π/2)¹⁶/16!, (π/2)¹⁴/14!, … */
  c = t2 * c + 0x1.f9d38a3763cc3p-22;
  c = t2 * c - 0x1.a6d1f2a204a8cp-16;
  c = t2 * c + 0x1.e1f506891babbp-11;
  c = t2 * c - 0x1.55d3c7e3cbffap-6;
  c = t2 * c + 0x1.03c1f081b5ac4p-2;
  c = t2 * c - 0x1.3bd3cc9be45dep+0;
  c = t2 * c + 1.0;
  *cosine = (lanes)((words)chosen(odd, s, c) ^ ((x ^ x << 1) & SIGN));
  *sine = (lanes)((words)chosen(odd, c, s) ^ (x & SIGN));
}

/* ---- the laws ---- */

#define RELATIVE 0x1p-49 /* of the radius: with ABSOLUTE, bounds the error of a normal number and of its product with a scale */
#define ABSOLUTE 0x1p-55

/* Two independent normal numbers r·cos, r·sin and r = √(-2 ln u): |error| ≤ 11ε r + 2⁻⁵⁶, where `sure` is not
 * negative. Proof. r errs by (9/2 + 1)ε of itself and by 2⁻⁶⁴/r, where r ≥ 2⁻⁸; the cosine by 4.5ε; the product by 1ε;
 * and a later product with a scale by less than 2ε. RELATIVE is 16ε: the rest is for the roundings of the bound. */
INLINED lanes normals(const uint64_t *uniforms, lanes *cosine, lanes *sine, lanes *sure) {
  turn(words_at(uniforms + LANES), cosine, sine);
  return root(2.0 * exponential(words_at(uniforms), sure));
}

/* Store the integers nearest to x; return limit - |x - nearest|, negative where another may be the right one. */
INLINED lanes nearest(lanes x, lanes limit, int64_t *out) {
  lanes shifted = x + SHIFT;
  integers k = (integers)shifted - (integers)((lanes){0} + SHIFT);
  memcpy(out, &k, sizeof k);
  lanes away = x - (shifted - SHIFT);
  return limit - (lanes)((words)away & ~SIGN);
}

INLINED int any(words bit) {
  half_words halves[2], half;
  memcpy(halves, &bit, sizeof bit);
  half = halves[0] | halves[1];
  return (half[0] | half[1] | half[2] | half[3]) != 0;
}

/* Mark the lanes whose bit is 1; return how many they are. */
INLINED long noted(words bit, uint8_t *doubt) {
  long count = 0;
  if (!any(bit)) return 0;
  for (int i = 0; i < LANES; i++) count += doubt[i] = bit[i];
  return count;
}

/* Pairs round(steps·Z) from LANES radii, then LANES angles: LANES integers of the cosines, then of the sines. Set
 * `doubt`, initially zero, to 1 for a pair that is not certain, and return how many are not. */
CLONED long rounded_gaussian(const uint64_t *uniforms, long groups, double steps, int64_t *out, uint8_t *doubt) {
  long count = 0;
  for (long g = 0; g < groups; g++, uniforms += 2 * LANES, out += 2 * LANES, doubt += LANES) {
    lanes cosine, sine, sure, scaled = steps * normals(uniforms, &cosine, &sine, &sure);
    lanes limit = (0.5 - steps * ABSOLUTE) - scaled * RELATIVE;
    words unsure = negative(nearest(scaled * cosine, limit, out)) | negative(nearest(scaled * sine, limit, out + LANES));
    count += noted(unsure | negative(sure), doubt);
  }
  return count;
}

#define PIECE 16 /* groups of blocks at a time: their words stay in the innermost cache */

/* The same of a key's words from its first group of blocks on, GROUP_WORDS numbers of each. */
static long gaussian_noise(const uint32_t *key, long groups, double steps, int64_t *out, uint8_t *doubt) {
  uint64_t uniforms[PIECE * GROUP_WORDS];
  long count = 0;
  for (long first = 0; first < groups; first += PIECE, out += PIECE * GROUP_WORDS, doubt += PIECE * GROUP_WORDS / 2) {
    long here = groups - first < PIECE ? groups - first : PIECE;
    chacha_groups(key, first, uniforms, here);
    count += rounded_gaussian(uniforms, here * (GROUP_WORDS / (2 * LANES)), steps, out, doubt);
  }
  return count;
}

/* The normal numbers and radii themselves. */
CLONED void raw_normals(const uint64_t *uniforms, long groups, double *out, double *radius, double *sure) {
  for (long g = 0; g < groups; g++, uniforms += 2 * LANES, out += 2 * LANES, radius += LANES, sure += LANES) {
    lanes cosine, sine, certain, r = normals(uniforms, &cosine, &sine, &certain);
    store(radius, r), store(sure, certain);
    store(out, r * cosine), store(out + LANES, r * sine);
  }
}

#define NEVER 0x1p500 /* a radius that makes every coordinate uncertain */

typedef struct {
  double value, error; /* |value - the real number| ≤ error */
} bounded;

/* -ln of the product of the first `count` numbers. A factor errs by 2ε and by 1/v, each logarithm (of at most
 * 15 factors, in each lane) by 1.6ε + 1ε·itself, and a sum by 1ε for each addition that a term goes through. */
INLINED bounded gamma_of(const uint64_t *uniforms, long count) {
  lanes sum = {0}, product = (lanes){0} + 1.0, least = (lanes){0} + 0x1p64;
  long vectors = (count + LANES - 1) / LANES;
  for (long i = 0; i < vectors; i++) {
    words in = below(LANE + i * LANES, count);
    lanes y = chosen(in, real(words_at(uniforms + i * LANES)), (lanes){0} + 0x1p64);
    least = chosen(negative(y - least), y, least);
    product *= y * 0x1p-64;
    if (i % 15 == 14 || i == vectors - 1) {
      sum += minus_log(product, 1.0 - product);
      product = (lanes){0} + 1.0;
    }
  }
  double smallest = least[0], value = total(sum);
  for (int i = 1; i < LANES; i++) smallest = smallest < least[i] ? smallest : least[i];
  return (bounded){value, 0x1p-53 * (3.0 * count + 16 + value * (6 + count / 64.0)) + count / smallest};
}

typedef struct {
  long dimension, pairs;   /* ⌈dimension/2⌉ */
  long vectors, groups;    /* of the norm's numbers; of pairs */
  double *cosines, *radii; /* scratch: 2 × groups × LANES, the sines after the cosines; groups × LANES */
} spherical_row;

/* The normal numbers of a row and their radii, zero where there is no coordinate, NEVER where a pair is not sure.
 * Return ‖·‖²: the squares of the radii of whole pairs, 12ε and 2⁻⁶³ each, and 2/v where the pair is not sure, and
 * that of an odd last number; the sum adds 1ε for each addition that a term goes through, 8 at most in a part. */
INLINED bounded directions(const spherical_row *row, const uint64_t *uniforms) {
  lanes sum = {0}, part = {0};
  double *sines = row->cosines + row->groups * LANES, unsure = 0.0;
  for (long g = 0; g < row->groups; g++, uniforms += 2 * LANES) {
    words first = below(LANE + g * LANES, row->pairs), second = below(LANE + g * LANES, row->dimension - row->pairs);
    lanes cosine, sine, sure, radius = normals(uniforms, &cosine, &sine, &sure), none = {0};
    store(row->cosines + g * LANES, chosen(first, radius * cosine, none));
    store(sines + g * LANES, chosen(second, radius * sine, none));
    store(row->radii + g * LANES, chosen(first, chosen(negative(sure), none + NEVER, radius), none));
    part += chosen(second, radius * radius, none);
    if (g % 8 == 7 || g == row->groups - 1) sum += part, part = none;
    words missed = negative(sure) & first;
    if (any(missed))
      for (int i = 0; i < LANES; i++)
        if (missed[i]) unsure += 2.0 / (double)uniforms[i];
  }
  bounded square = {total(sum), 0.0};
  square.error = 0x1p-53 * (24 + row->groups / 8) * square.value + 0x1p-62 * row->pairs + unsure;
  if (row->dimension % 2) {
    double last = row->cosines[row->pairs - 1];
    square.value += last * last;
    square.error += 0x1p-52 * square.value + 2.0 * fabs(last) * (RELATIVE * row->radii[row->pairs - 1] + ABSOLUTE);
  }
  return square;
}

/* The two sums of a row and their errors. */
CLONED void raw_sums(const spherical_row *row, const uint64_t *uniforms, double *out) {
  bounded gamma = gamma_of(uniforms, row->dimension), square = directions(row, uniforms + row->vectors * LANES);
  out[0] = gamma.value, out[1] = gamma.error, out[2] = square.value, out[3] = square.error;
}

/* The rounded stretch·z of a row, for the normal vector z; its stretch errs by `relative` of itself. */
INLINED long stretched(const spherical_row *row, double stretch, double relative, int64_t *out, uint8_t *doubt) {
  long count = 0, places = row->groups * LANES;
  double slope = 1.01 * stretch * (RELATIVE + relative), most = 0.5 - 1.01 * stretch * ABSOLUTE;
  for (long i = 0; i < 2 * places; i += LANES) {
    lanes limit = most - slope * load(row->radii + i % places);
    count += noted(negative(nearest(stretch * load(row->cosines + i), limit, out + i)), doubt + i);
  }
  return count;
}

/* Rows of round(z), density ∝ exp(-‖z‖/steps): z = steps·G/‖n‖·n, G = -ln Π u, n normal. A row uses the numbers of G,
 * then pairs; integers and doubts are in the places of the pairs' cosines, then of their sines. */
CLONED long rounded_spherical(const spherical_row *row, const uint64_t *uniforms, long rows, double steps, int64_t *out,
                              uint8_t *doubt) {
  long count = 0, taken = (row->vectors + 2 * row->groups) * LANES, places = 2 * row->groups * LANES;
  for (long r = 0; r < rows; r++, uniforms += taken, out += places, doubt += places) {
    bounded gamma = gamma_of(uniforms, row->dimension), square = directions(row, uniforms + row->vectors * LANES);
    double relative = gamma.error / gamma.value + 0.5 * (square.error / square.value) + 0x1p-51;
    if (relative < 0x1p-20) {
      count += stretched(row, steps * (gamma.value / sqrt(square.value)), relative, out, doubt);
    } else { /* also for NaN */
      memset(doubt, 1, places);
      count += places;
    }
  }
  return count;
}
