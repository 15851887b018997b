/* byoc_scalar.h and byoc_sizes.h for OpenCL C, included by printed kernels; OpenCL C has no headers of its own.
 *
 * Functions follow IEEE 754 with the precision of float64, so a device needs float64. The source is compiled without
 * options of fast arithmetic: products and sums are fused only by explicit calls in the functions.
 */
#ifndef BYOC_CL_H_
#define BYOC_CL_H_

#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

typedef char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
#define INT64_C(number) number##L
#define UINT64_C(number) number##UL
#define INT64_MIN (-9223372036854775807L - 1)

/* A function of OpenCL C serves all floating-point types. */
#define acosf acos
#define acoshf acosh
#define asinf asin
#define asinhf asinh
#define atanf atan
#define atanhf atanh
#define ceilf ceil
#define copysignf copysign
#define cosf cos
#define coshf cosh
#define erfcf erfc
#define fabsf fabs
#define floorf floor
#define fmodf fmod
#define powf pow
#define rintf rint
#define sinf sin
#define sinhf sinh
#define sqrtf sqrt
#define tanf tan

#ifdef FP_FAST_FMAF
#define BYOC_FMA_F32(a, b, c) fma(a, b, c)
#else
#define BYOC_FMA_F32(a, b, c) ((a) * (b) + (c))
#endif
#ifdef FP_FAST_FMA
#define BYOC_FMA_F64(a, b, c) fma(a, b, c)
#else
#define BYOC_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

/* A variable of the functions has the name of a type of OpenCL C. */
#define half half_value
#include "byoc_scalar.h"
#include "byoc_sizes.h"
#undef half

#endif /* BYOC_CL_H_ */
