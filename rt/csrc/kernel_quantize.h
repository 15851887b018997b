/* Kernels of quantisation. */
#ifndef BYOC_RT_KERNEL_QUANTIZE_H_
#define BYOC_RT_KERNEL_QUANTIZE_H_

#include "kernel.h"

int32_t rt_run_quantize(rt_call *call, const void *context);
int32_t rt_run_dequantize(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_QUANTIZE_H_ */
