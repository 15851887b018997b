/* Half precision as storage: float16 (IEEE 754 binary16) and bfloat16, with conversions.
 *
 * A half is a structure of bits, so C rejects arithmetic on halves: arithmetic is done in float32 and rounded. Every
 * conversion to a half rounds once, to nearest, ties to even. Subnormal numbers, infinities and signed zeros are right,
 * and NaN stays NaN. The conversions of float32 have no branches and use 32-bit operations only, vectorisable for every
 * instruction set.
 */
#ifndef BYOC_HALF_H_
#define BYOC_HALF_H_

#include "byoc_floats.h"

typedef struct {
  uint16_t bits;
} byoc_f16;

typedef struct {
  uint16_t bits;
} byoc_bf16;

/* The exponents differ by 112. A subnormal half is the difference of two normal floats; the exponent of infinities and
 * NaN becomes the float exponent of infinities and NaN. */
static inline float byoc_f16_to_f32(byoc_f16 x) {
  const uint32_t sign = (uint32_t)(x.bits & 0x8000u) << 16;
  const uint32_t shifted = (uint32_t)(x.bits & 0x7fffu) << 13;
  const uint32_t rebased = shifted + (112u << 23);
  const uint32_t subnormal = byoc_bits_f32(byoc_from_bits_f32(rebased + (1u << 23)) - 0x1p-14f);
  const uint32_t finite = shifted < (1u << 23) ? subnormal : rebased;
  return byoc_from_bits_f32(sign | (shifted >= (31u << 23) ? rebased + (112u << 23) : finite));
}

/* A magnitude below 2**-14 is rounded by the addition of 0.5, because the last place of 0.5 equals the last place of
 * subnormal halves. Any other magnitude is rounded by the addition of half of the last place (less a bit, for even
 * results); the carry goes into the exponent. */
static inline byoc_f16 byoc_f32_to_f16(float x) {
  const uint32_t bits = byoc_bits_f32(x), magnitude = bits & 0x7fffffffu;
  const uint32_t even = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  const uint32_t normal = (even - (112u << 23)) >> 13;
  const uint32_t subnormal = byoc_bits_f32(byoc_from_bits_f32(magnitude) + 0.5f) - (126u << 23);
  const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
  const uint32_t limited = magnitude >= (143u << 23) ? 0x7c00u : finite;
  const uint32_t half = magnitude > (255u << 23) ? 0x7e00u : limited;
  const byoc_f16 result = {(uint16_t)((bits >> 16 & 0x8000u) | half)};
  return result;
}

static inline float byoc_bf16_to_f32(byoc_bf16 x) { return byoc_from_bits_f32((uint32_t)x.bits << 16); }

static inline byoc_bf16 byoc_f32_to_bf16(float x) {
  const uint32_t bits = byoc_bits_f32(x);
  const uint32_t even = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16 & 0x8000u) | 0x7fc0u;
  const byoc_bf16 result = {(uint16_t)((bits & 0x7fffffffu) > (255u << 23) ? nan : even)};
  return result;
}

/* Return x in float32, rounded to odd: x if exact, else the neighbour of x with last bit 1. Rounding the result to a
 * half equals rounding x directly (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008). */
static inline float byoc_f64_to_odd_f32(double x) {
  const float nearest = (float)x;
  const double wide = (double)nearest;
  const uint32_t beyond = (wide < 0 ? -wide : wide) > (x < 0 ? -x : x);
  return byoc_from_bits_f32((byoc_bits_f32(nearest) - beyond) | (uint32_t)(wide != x));
}
/* Do the same for integers beyond the precision of float64: all bits dropped by float64 are gathered in the last
 * bit. */
static inline float byoc_u64_to_odd_f32(uint64_t x) {
  const uint64_t with_sticky_bit = (x >> 11 | (uint64_t)((x & 0x7ffu) != 0)) << 11;
  return byoc_f64_to_odd_f32((double)(x >> 53 ? with_sticky_bit : x));
}
static inline float byoc_i64_to_odd_f32(int64_t x) {
  return x < 0 ? -byoc_u64_to_odd_f32(0 - (uint64_t)x) : byoc_u64_to_odd_f32((uint64_t)x);
}

#define BYOC_DEFINE_HALF(S)                                                                                       \
  static inline byoc_##S byoc_f64_to_##S(double x) { return byoc_f32_to_##S(byoc_f64_to_odd_f32(x)); }            \
  static inline byoc_##S byoc_i64_to_##S(int64_t x) { return byoc_f32_to_##S(byoc_i64_to_odd_f32(x)); }           \
  static inline byoc_##S byoc_u64_to_##S(uint64_t x) { return byoc_f32_to_##S(byoc_u64_to_odd_f32(x)); }          \
  static inline byoc_##S byoc_where_##S(uint8_t condition, byoc_##S x, byoc_##S y) {                              \
    const byoc_##S result = {condition ? x.bits : y.bits};                                                        \
    return result;                                                                                                \
  }

BYOC_DEFINE_HALF(f16)
BYOC_DEFINE_HALF(bf16)

#endif /* BYOC_HALF_H_ */
