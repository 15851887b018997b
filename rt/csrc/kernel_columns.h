/* Kernels of columns: the elements under the positions of a window. */
#ifndef BYOC_RT_KERNEL_COLUMNS_H_
#define BYOC_RT_KERNEL_COLUMNS_H_

#include "kernel.h"

int32_t rt_run_col2im(rt_call *call, const void *context);
int32_t rt_run_deformable_im2col(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_COLUMNS_H_ */
