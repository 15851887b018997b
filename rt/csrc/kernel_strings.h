/* Kernels of strings: the bytes of all strings, one after the other, and the number of bytes of each. */
#ifndef BYOC_RT_KERNEL_STRINGS_H_
#define BYOC_RT_KERNEL_STRINGS_H_

#include "kernel.h"

int32_t rt_run_string_key_index(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_STRINGS_H_ */
