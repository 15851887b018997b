/* Floating-point numbers as bits, and a*b+c with a single rounding if the target supports fused multiply-add. */
#ifndef BYOC_FLOATS_H_
#define BYOC_FLOATS_H_

#if !defined(BYOC_CUDA_H_) && !defined(BYOC_CL_H_)
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

/* Contraction by the compiler is off: the code requests each exact product explicitly. On targets without fused
 * multiply-add, these macros are two operations; the error bounds of the functions still hold. */
#if defined(BYOC_CUDA_H_) || defined(BYOC_CL_H_)
/* Defined in byoc_cuda.h or byoc_cl.h. */
#elif defined(BYOC_HAS_FMA) || defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__)
#if defined(__GNUC__) || defined(__clang__)
#define BYOC_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#define BYOC_FMA_F64(a, b, c) __builtin_fma(a, b, c)
#else
#define BYOC_FMA_F32(a, b, c) fmaf(a, b, c)
#define BYOC_FMA_F64(a, b, c) fma(a, b, c)
#endif
#else
#define BYOC_FMA_F32(a, b, c) ((a) * (b) + (c))
#define BYOC_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

#if defined(BYOC_CL_H_)
static inline uint32_t byoc_bits_f32(float x) { return as_uint(x); }
static inline float byoc_from_bits_f32(uint32_t bits) { return as_float(bits); }
static inline uint64_t byoc_bits_f64(double x) { return as_ulong(x); }
static inline double byoc_from_bits_f64(uint64_t bits) { return as_double(bits); }
#else
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
#endif

#endif /* BYOC_FLOATS_H_ */
