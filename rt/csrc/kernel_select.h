/* Kernels of results with sizes determined by the elements of operands. */
#ifndef BYOC_RT_KERNEL_SELECT_H_
#define BYOC_RT_KERNEL_SELECT_H_

#include "kernel.h"

int32_t rt_run_nonzero(rt_call *call, const void *context);
int32_t rt_run_compress(rt_call *call, const void *context);
int32_t rt_run_range(rt_call *call, const void *context);
int32_t rt_run_as_size(rt_call *call, const void *context);
int32_t rt_run_ragged_take(rt_call *call, const void *context);
int32_t rt_run_as_dynamic(rt_call *call, const void *context);
int32_t rt_run_non_max_suppression(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_SELECT_H_ */
