/* The functions of vector_functions.h, for AVX-512. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")
#endif
#define BYOC_HAS_FMA 1 /* not all compilers derive FMA from the pragma */
#define BYOC_VECTOR_TABLE byoc_vector_avx512
#define BYOC_VECTOR_NBYTES 64
#include "vector_bodies.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int byoc_no_avx512;
#endif
