/* byoc_scalar.h and byoc_sizes.h for CUDA C++, included by printed kernels. NVRTC and nvcc compile this header; NVRTC
 * has no headers of its own.
 *
 * Functions follow IEEE 754. If the source is compiled with `--fmad=false`, products and sums are fused only by
 * explicit calls in the functions.
 */
#ifndef BYOC_CUDA_H_
#define BYOC_CUDA_H_

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT64_C(number) number##LL
#define UINT64_C(number) number##ULL
#define INT64_MIN (-9223372036854775807LL - 1)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#define BYOC_FMA_F32(a, b, c) fmaf(a, b, c)
#define BYOC_FMA_F64(a, b, c) fma(a, b, c)

/* Turn the C functions into device functions. */
#define inline __inline__ __device__
#include "byoc_scalar.h"
#include "byoc_sizes.h"
#undef inline

#endif /* BYOC_CUDA_H_ */
