/* Kernels of normalisation, computed in float64 and rounded once. */
#ifndef BYOC_RT_KERNEL_NORM_H_
#define BYOC_RT_KERNEL_NORM_H_

#include "kernel.h"

/* `softmax`, and `log_softmax` if the context is not NULL. */
int32_t rt_run_softmax(rt_call *call, const void *context);
int32_t rt_run_stepwise_softmax(rt_call *call, const void *context);
int32_t rt_run_batch_norm(rt_call *call, const void *context);
/* `layer_norm`, and `rms_norm` if the context is not NULL. */
int32_t rt_run_layer_norm(rt_call *call, const void *context);
/* `group_norm`, and `instance_norm` if the context is not NULL. */
int32_t rt_run_group_norm(rt_call *call, const void *context);
int32_t rt_run_lrn(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_NORM_H_ */
