/* Kernels of random numbers. */
#ifndef BYOC_RT_KERNEL_RANDOM_H_
#define BYOC_RT_KERNEL_RANDOM_H_

#include "kernel.h"

int32_t rt_run_random_seed(rt_call *call, const void *context);
int32_t rt_run_random_uniform(rt_call *call, const void *context);
int32_t rt_run_random_normal(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_RANDOM_H_ */
