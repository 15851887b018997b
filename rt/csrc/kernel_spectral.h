/* Kernels of the discrete Fourier transform and of the determinant. */
#ifndef BYOC_RT_KERNEL_SPECTRAL_H_
#define BYOC_RT_KERNEL_SPECTRAL_H_

#include "kernel.h"

int32_t rt_run_dft(rt_call *call, const void *context);
int32_t rt_run_det(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_SPECTRAL_H_ */
