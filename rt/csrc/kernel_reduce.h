/* Kernels that combine elements along axes. */
#ifndef BYOC_RT_KERNEL_REDUCE_H_
#define BYOC_RT_KERNEL_REDUCE_H_

#include "kernel.h"

/* The combination of the elements of a row, the `context` of rt_run_reduction. */
typedef struct {
  double (*real)(const double *row, int64_t length, rt_type type);
  int64_t (*integer)(const int64_t *row, int64_t length, rt_type type);
} rt_reduction;

extern const rt_reduction rt_sum, rt_mean, rt_product_of, rt_max, rt_min, rt_all, rt_any, rt_logsumexp;
int32_t rt_run_reduction(rt_call *call, const void *context);

/* `argmax`, and `argmin` if the context is not NULL. */
int32_t rt_run_extreme_index(rt_call *call, const void *context);

/* `cumsum`, and `cumprod` if the context is not NULL. */
int32_t rt_run_cumulative(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_REDUCE_H_ */
