/* Kernels that sample images at computed positions. */
#ifndef BYOC_RT_KERNEL_IMAGE_H_
#define BYOC_RT_KERNEL_IMAGE_H_

#include "kernel.h"

int32_t rt_run_resize(rt_call *call, const void *context);
int32_t rt_run_antialias_resize(rt_call *call, const void *context);
int32_t rt_run_grid_sample(rt_call *call, const void *context);
int32_t rt_run_roi_align(rt_call *call, const void *context);
int32_t rt_run_roi_max_pool(rt_call *call, const void *context);

/* Return the weight of an element at a distance from a sampled position, by Keys' cubic convolution (1981). */
double rt_cubic_weight(double distance, double coefficient);

/* Return an integer limited to a range; the low end for NaN. */
int64_t rt_limited_index(double position, int64_t low, int64_t high);

#endif /* BYOC_RT_KERNEL_IMAGE_H_ */
