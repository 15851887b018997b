/* Kernels that move elements. */
#ifndef BYOC_RT_KERNEL_MOVEMENT_H_
#define BYOC_RT_KERNEL_MOVEMENT_H_

#include "kernel.h"

int32_t rt_run_reshape(rt_call *call, const void *context);
int32_t rt_run_squeeze(rt_call *call, const void *context);
int32_t rt_run_expand_dims(rt_call *call, const void *context);
int32_t rt_run_permute_dims(rt_call *call, const void *context);
int32_t rt_run_broadcast_to(rt_call *call, const void *context);
int32_t rt_run_concat(rt_call *call, const void *context);
int32_t rt_run_stack(rt_call *call, const void *context);
int32_t rt_run_split(rt_call *call, const void *context);
int32_t rt_run_strided_slice(rt_call *call, const void *context);
int32_t rt_run_flip(rt_call *call, const void *context);
int32_t rt_run_depth_to_space(rt_call *call, const void *context);
int32_t rt_run_space_to_depth(rt_call *call, const void *context);

/* Kernels of kernel_fill.c: results with elements of an operand at other places, and other elements. */
int32_t rt_run_tile(rt_call *call, const void *context);
int32_t rt_run_roll(rt_call *call, const void *context);
int32_t rt_run_pad(rt_call *call, const void *context);
int32_t rt_run_border_pad(rt_call *call, const void *context);
int32_t rt_run_trilu(rt_call *call, const void *context);
int32_t rt_run_reverse_sequence(rt_call *call, const void *context);
int32_t rt_run_arange(rt_call *call, const void *context);
int32_t rt_run_full(rt_call *call, const void *context);
int32_t rt_run_shape_of(rt_call *call, const void *context);
int32_t rt_run_size(rt_call *call, const void *context);
int32_t rt_run_shape_to_tensor(rt_call *call, const void *context);

/* Make result 0 a compact copy of a view, of any strides. */
int32_t rt_copy_view(rt_call *call, const rt_array *view);

/* Make result `index` of the elements of an operand in row-major order. */
int32_t rt_reshape_to(rt_call *call, int32_t index, int32_t operand, int32_t rank, const int64_t *shape);

#endif /* BYOC_RT_KERNEL_MOVEMENT_H_ */
