/* Kernels of attention, rotary embedding and Einstein sums. */
#ifndef BYOC_RT_KERNEL_ATTENTION_H_
#define BYOC_RT_KERNEL_ATTENTION_H_

#include "kernel.h"

int32_t rt_run_attention(rt_call *call, const void *context);
int32_t rt_run_rotary_embedding(rt_call *call, const void *context);
int32_t rt_run_einsum(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_ATTENTION_H_ */
