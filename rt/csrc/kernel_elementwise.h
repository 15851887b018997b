/* Elementwise ops: a function over elements for each of a few types, applied to arrays of all types. */
#ifndef BYOC_RT_KERNEL_ELEMENTWISE_H_
#define BYOC_RT_KERNEL_ELEMENTWISE_H_

#include "kernel.h"

/* A function over elements, and the same function with wider vectors, for processors with AVX2. */
typedef struct {
  rt_inner plain, wide;
} rt_loops;

/* The functions of an op, by the type of the operands. An operand of another type is converted to a type with a
 * function: narrow floats to float32 or float64, float32 to float64, narrow integers to 8 bits; the result is
 * converted back. */
typedef struct {
  rt_loops inner[RT_NUM_TYPES];
} rt_functions;

/* Apply functions to the first `count` operands, broadcast together; `context` goes to the function. Result 0 has
 * the type of the operands, or is bool (predicates). */
int32_t rt_apply(rt_call *call, const rt_functions *functions, int32_t count, const void *context);

/* As rt_apply, to other arrays. */
int32_t rt_apply_to(rt_call *call, const rt_functions *functions, const rt_array *const *arrays, int32_t count,
                    const void *context);

/* Set the broadcast shape of arrays. */
int32_t rt_broadcast_shape(const rt_call *call, const rt_array *const *arrays, int32_t count, int32_t *rank,
                           int64_t *shape);

/* Set the strides of an array broadcast to a shape; the stride of a repeated axis is 0. */
void rt_broadcast_strides(const rt_array *array, int32_t rank, const int64_t *shape, int64_t *strides);

/* Kernels: `context` is the rt_functions. */
int32_t rt_run_unary(rt_call *call, const void *context);
int32_t rt_run_binary(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_ELEMENTWISE_H_ */
