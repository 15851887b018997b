/* Scalar operations left open by C, or defined by C differently than by byoc's reference kernels.
 *
 * Suffixes: f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 (f16 bf16: byoc_half.h); bool is a byte of value 0 or 1. Integers
 * wrap around. Functions are branch-free wherever compilers can then vectorise the calling loop.
 *
 * See also: byoc_half.h (halves and casts of halves), byoc_math_f32.h and byoc_math_f64.h (functions, with error
 * bounds), byoc_trigonometry_f32.h, byoc_activations.h.
 */
#ifndef BYOC_SCALAR_H_
#define BYOC_SCALAR_H_

/* Kernels with a*b+c contracted into a single operation request the contraction; all other code is compiled without. */
#if defined(__clang__)
#define BYOC_CONTRACTED __attribute__((noinline))
#define BYOC_CONTRACT _Pragma("clang fp contract(fast)")
#elif defined(__GNUC__)
#define BYOC_CONTRACTED __attribute__((noinline, noclone, optimize("fp-contract=fast")))
#define BYOC_CONTRACT
#else
#define BYOC_CONTRACTED
#define BYOC_CONTRACT
#endif

/* A long source is compiled as several translation units at once; BYOC_UNIT is the number of the current unit. Each
 * kernel is defined in a single unit and called by other units. Without BYOC_UNIT the source is a single translation
 * unit.
 */
#ifdef BYOC_UNIT
#define BYOC_KERNEL
#define BYOC_IN_UNIT(number) (BYOC_UNIT == (number))
/* A unit has all definitions shared by kernels, also definitions unused by the unit's own kernels. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-const-variable"
#endif
#else
#define BYOC_KERNEL static
#define BYOC_IN_UNIT(number) 1
#endif

#if defined(__clang__)
#define BYOC_UNROLL _Pragma("unroll")
#define BYOC_ROLL
#elif defined(__GNUC__)
#define BYOC_UNROLL _Pragma("GCC unroll 32")
#define BYOC_ROLL _Pragma("GCC unroll 1")
#else
#define BYOC_UNROLL
#define BYOC_ROLL
#endif

#if defined(__GNUC__) || defined(__clang__)

/* Shuffle the lanes of two vectors, numbered consecutively, into the given order. */
#if defined(__clang__) || __GNUC__ >= 12
#define BYOC_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define BYOC_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (__typeof__((a) == (a))){__VA_ARGS__})
#endif

/* Select one of two values for each lane by a comparison: C, unlike C++, has no conditional operator for vectors.
 * Values without common bits are added, because the sum compiles to a single instruction; gcc compiles a bitwise or to
 * two. */
#define BYOC_SELECT(type, mask, if_set, if_clear) \
  ((type)(((mask) & (__typeof__(mask))(if_set)) + (~(mask) & (__typeof__(mask))(if_clear))))

#endif

#include "byoc_activations.h"
#include "byoc_half.h"
#include "byoc_trigonometry_f32.h"

/* Subtract the nearest multiple of `y * scale` from x, without rounding: x and y are exact in float32, or x is the result
 * of a larger scale, at most 2**28 times as large. The quotient is nearest up to a unit of its 29 bits. */
static inline double byoc_residue_f64(double x, double y, double reciprocal, double scale) {
  const double quotient = (x * (reciprocal / scale) + 0x1.8p52) - 0x1.8p52;
  return x - quotient * (y * scale);
}

/* The exact remainder of a / b, with the sign of a. The quotient of two floats has up to 277 bits before the point; ten
 * steps take 28 bits each, without a branch. A number below b, such as a number below infinity, is its own remainder. */
static inline float byoc_fmod_f32(float a, float b) {
  const double x = fabs((double)a), y = fabs((double)b), reciprocal = 1 / y;
  double r = byoc_residue_f64(x, y, reciprocal, 0x1p252);
  r = byoc_residue_f64(r, y, reciprocal, 0x1p224);
  r = byoc_residue_f64(r, y, reciprocal, 0x1p196);
  r = byoc_residue_f64(r, y, reciprocal, 0x1p168);
  r = byoc_residue_f64(r, y, reciprocal, 0x1p140);
  r = byoc_residue_f64(r, y, reciprocal, 0x1p112);
  r = byoc_residue_f64(r, y, reciprocal, 0x1p84);
  r = byoc_residue_f64(r, y, reciprocal, 0x1p56);
  r = byoc_residue_f64(r, y, reciprocal, 0x1p28);
  r = byoc_residue_f64(r, y, reciprocal, 1);
  const double remainder = r < 0 ? r + y : r;
  return copysignf((float)(x < y ? x : remainder), a);
}
static inline double byoc_fmod_f64(double a, double b) { return fmod(a, b); }

/* Floating point: NaN wins over every number. The selection takes two steps, vectorised by gcc in long chains too; a
 * single step with two conditions is not. `at_least` and `at_most` are the same for a limit other than NaN, in a single
 * instruction. Remainders: `mod` has the sign of the divisor, `fmod` the sign of the dividend. */
#define BYOC_DEFINE_FLOAT(S, T, F)                                                                        \
  static inline T byoc_maximum_##S(T a, T b) {                                                            \
    const T larger = a >= b ? a : b;                                                                      \
    return a != a ? a : larger;                                                                           \
  }                                                                                                       \
  static inline T byoc_minimum_##S(T a, T b) {                                                            \
    const T smaller = a <= b ? a : b;                                                                     \
    return a != a ? a : smaller;                                                                          \
  }                                                                                                       \
  static inline T byoc_at_least_##S(T x, T least) { return x < least ? least : x; }                       \
  static inline T byoc_at_most_##S(T x, T most) { return x > most ? most : x; }                           \
  static inline T byoc_relu_##S(T x) { return x < 0 ? 0 : x; }                                            \
  static inline T byoc_prelu_##S(T x, T slope) { return x < 0 ? x * slope : x; }                          \
  static inline T byoc_abs_##S(T x) { return fabs##F(x); }                                                \
  static inline T byoc_sign_##S(T x) { return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x; }                  \
  static inline T byoc_reciprocal_##S(T x) { return 1 / x; }                                              \
  static inline T byoc_power_##S(T x, T y) { return pow##F(x, y); }                                       \
  static inline T byoc_mod_##S(T a, T b) {                                                                \
    const T residue = byoc_fmod_##S(a, b);                                                                \
    const T modulo = (residue < 0) != (b < 0) ? residue + b : residue;                                    \
    return residue == 0 ? copysign##F((T)0, b) : modulo;                                                  \
  }                                                                                                       \
  /* Round the quotient to the nearest integer, ties to even, add `zero`, then limit; NaN becomes 0. */   \
  static inline T byoc_quantised_##S(T quotient, T zero, T low, T high) {                                 \
    const T shifted = rint##F(quotient) + zero;                                                           \
    const T raised = shifted < low ? low : shifted;                                                       \
    const T limited = raised > high ? high : raised;                                                      \
    return shifted != shifted ? 0 : limited;                                                              \
  }

BYOC_DEFINE_FLOAT(f32, float, f)
BYOC_DEFINE_FLOAT(f64, double, )

/* Integers: U is an unsigned type no narrower than int, with defined overflow. */
#define BYOC_DEFINE_INTEGER(S, T, U)                                                                      \
  static inline T byoc_add_##S(T a, T b) { return (T)((U)a + (U)b); }                                     \
  static inline T byoc_subtract_##S(T a, T b) { return (T)((U)a - (U)b); }                                \
  static inline T byoc_multiply_##S(T a, T b) { return (T)((U)a * (U)b); }                                \
  static inline T byoc_maximum_##S(T a, T b) { return a >= b ? a : b; }                                   \
  static inline T byoc_minimum_##S(T a, T b) { return a <= b ? a : b; }                                   \
  static inline T byoc_relu_##S(T x) { return x > 0 ? x : 0; }                                            \
  static inline T byoc_left_shift_##S(T x, T y) {                                                         \
    return (uint64_t)y < 8 * sizeof(T) ? (T)((U)x << y) : (T)0;                                           \
  }                                                                                                       \
  static inline T byoc_raise_##S(T base, T exponent) {                                                    \
    U result = 1, factor = (U)base;                                                                       \
    for (U bits = (U)exponent; bits; bits >>= 1, factor *= factor) {                                      \
      if (bits & 1) result *= factor;                                                                     \
    }                                                                                                     \
    return (T)result;                                                                                     \
  }

#define BYOC_DEFINE_SIGNED(S, T, U)                                                                       \
  BYOC_DEFINE_INTEGER(S, T, U)                                                                            \
  static inline T byoc_negative_##S(T x) { return (T)((U)0 - (U)x); }                                     \
  static inline T byoc_abs_##S(T x) { return x < 0 ? (T)((U)0 - (U)x) : x; }                              \
  static inline T byoc_prelu_##S(T x, T slope) { return x < 0 ? byoc_multiply_##S(x, slope) : x; }        \
  static inline T byoc_sign_##S(T x) { return (T)((x > 0) - (x < 0)); }                                   \
  /* towards zero; division by zero: 0; the smallest integer by -1: itself */                             \
  static inline T byoc_divide_##S(T a, T b) {                                                             \
    return b == 0 ? (T)0 : b == -1 ? (T)((U)0 - (U)a) : (T)(a / b);                                       \
  }                                                                                                       \
  static inline T byoc_fmod_##S(T a, T b) { return ((b == 0) | (b == -1)) ? (T)0 : (T)(a % b); }          \
  static inline T byoc_mod_##S(T a, T b) {                                                                \
    const T residue = byoc_fmod_##S(a, b);                                                                \
    return ((residue != 0) & ((residue < 0) != (b < 0))) ? (T)(residue + b) : residue;                    \
  }                                                                                                       \
  static inline T byoc_right_shift_##S(T x, T y) {                                                        \
    return (T)(x >> ((uint64_t)y < 8 * sizeof(T) ? y : (T)(8 * sizeof(T) - 1)));                          \
  }                                                                                                       \
  /* a negative exponent: 1 / x**-y, towards zero; 0 if x is 0 */                                         \
  static inline T byoc_power_##S(T x, T y) {                                                              \
    if (y >= 0) return byoc_raise_##S(x, y);                                                              \
    return x == 1 ? (T)1 : x == -1 ? (y % 2 ? (T)-1 : (T)1) : (T)0;                                       \
  }

#define BYOC_DEFINE_UNSIGNED(S, T, U)                                                                     \
  BYOC_DEFINE_INTEGER(S, T, U)                                                                            \
  static inline T byoc_abs_##S(T x) { return x; }                                                         \
  static inline T byoc_prelu_##S(T x, T slope) { return (void)slope, x; }                                 \
  static inline T byoc_sign_##S(T x) { return x > 0; }                                                    \
  static inline T byoc_divide_##S(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); }                        \
  static inline T byoc_fmod_##S(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); }                          \
  static inline T byoc_mod_##S(T a, T b) { return byoc_fmod_##S(a, b); }                                  \
  static inline T byoc_right_shift_##S(T x, T y) {                                                        \
    return (uint64_t)y < 8 * sizeof(T) ? (T)(x >> y) : (T)0;                                              \
  }                                                                                                       \
  static inline T byoc_power_##S(T x, T y) { return byoc_raise_##S(x, y); }

BYOC_DEFINE_SIGNED(i8, int8_t, uint32_t)
BYOC_DEFINE_SIGNED(i16, int16_t, uint32_t)
BYOC_DEFINE_SIGNED(i32, int32_t, uint32_t)
BYOC_DEFINE_SIGNED(i64, int64_t, uint64_t)
BYOC_DEFINE_UNSIGNED(u8, uint8_t, uint32_t)
BYOC_DEFINE_UNSIGNED(u16, uint16_t, uint32_t)
BYOC_DEFINE_UNSIGNED(u32, uint32_t, uint32_t)
BYOC_DEFINE_UNSIGNED(u64, uint64_t, uint64_t)

#endif /* BYOC_SCALAR_H_ */
