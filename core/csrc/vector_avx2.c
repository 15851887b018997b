/* The functions of vector_functions.h, for AVX2. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define BYOC_HAS_FMA 1 /* not all compilers derive FMA from the pragma */
#define BYOC_VECTOR_TABLE byoc_vector_avx2
#define BYOC_VECTOR_NBYTES 32
#include "vector_bodies.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int byoc_no_avx2;
#endif
