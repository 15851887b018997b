/* Kernels of convolution and transposed convolution over one to three axes, by plain loops. */
#ifndef BYOC_RT_KERNEL_CONV_H_
#define BYOC_RT_KERNEL_CONV_H_

#include "kernel.h"

int32_t rt_run_conv(rt_call *call, const void *context);
int32_t rt_run_conv_transpose(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_CONV_H_ */
