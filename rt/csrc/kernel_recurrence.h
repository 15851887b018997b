/* Kernels of recurrent layers. */
#ifndef BYOC_RT_KERNEL_RECURRENCE_H_
#define BYOC_RT_KERNEL_RECURRENCE_H_

#include "kernel.h"

int32_t rt_run_rnn(rt_call *call, const void *context);
int32_t rt_run_gru(rt_call *call, const void *context);
int32_t rt_run_lstm(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_RECURRENCE_H_ */
