/* Kernels that read or write elements at computed positions. */
#ifndef BYOC_RT_KERNEL_INDEX_H_
#define BYOC_RT_KERNEL_INDEX_H_

#include "kernel.h"

int32_t rt_run_take(rt_call *call, const void *context);
int32_t rt_run_gather_elements(rt_call *call, const void *context);
int32_t rt_run_gather_nd(rt_call *call, const void *context);
int32_t rt_run_one_hot(rt_call *call, const void *context);
int32_t rt_run_scatter_elements(rt_call *call, const void *context);
int32_t rt_run_scatter_nd(rt_call *call, const void *context);
int32_t rt_run_scatter_slice(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_INDEX_H_ */
