/* Floating-point numbers as bits, and a*b+c with a single rounding if the target has this instruction. */
#ifndef BYOC_FLOATS_H_
#define BYOC_FLOATS_H_

#ifndef BYOC_CUDA_H_
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

/* Contraction by the compiler is off: exact products are explicit in the code. Without the instruction, two operations
 * replace it, and functions keep their error bounds. */
#if defined(BYOC_CUDA_H_)
/* Defined in this header. */
#elif defined(BYOC_HAS_FMA) || defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__)
#define BYOC_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#define BYOC_FMA_F64(a, b, c) __builtin_fma(a, b, c)
#else
#define BYOC_FMA_F32(a, b, c) ((a) * (b) + (c))
#define BYOC_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

static inline uint32_t byoc_bits_f32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
static inline float byoc_from_bits_f32(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
static inline uint64_t byoc_bits_f64(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
static inline double byoc_from_bits_f64(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

#endif /* BYOC_FLOATS_H_ */
