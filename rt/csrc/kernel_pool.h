/* Kernels of pooling. */
#ifndef BYOC_RT_KERNEL_POOL_H_
#define BYOC_RT_KERNEL_POOL_H_

#include "kernel.h"

/* The kinds of pooling, as contexts of rt_run_pool and rt_run_adaptive_pool (max and avg alone). */
extern const int rt_max_pool, rt_avg_pool, rt_lp_pool;
int32_t rt_run_pool(rt_call *call, const void *context);
int32_t rt_run_adaptive_pool(rt_call *call, const void *context);
int32_t rt_run_argmax_pool(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_POOL_H_ */
