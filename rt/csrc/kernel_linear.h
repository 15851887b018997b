/* Kernels of products of matrices, and of adding a bias. */
#ifndef BYOC_RT_KERNEL_LINEAR_H_
#define BYOC_RT_KERNEL_LINEAR_H_

#include "kernel.h"

int32_t rt_run_matmul(rt_call *call, const void *context);
int32_t rt_run_dense(rt_call *call, const void *context);
int32_t rt_run_bias_add(rt_call *call, const void *context);

/* Add the product of compact matrices (m, k) and (k, n) to (m, n); the type is float32, float64, int64 or uint64. */
void rt_multiply_matrices(rt_type type, const char *left, const char *right, char *sum, int64_t m, int64_t k,
                          int64_t n);

#endif /* BYOC_RT_KERNEL_LINEAR_H_ */
