/* Walks over arrays of the same shape with any strides. */
#ifndef BYOC_RT_KERNEL_WALK_H_
#define BYOC_RT_KERNEL_WALK_H_

#include <stdint.h>

enum { RT_MAX_RANK = 32, RT_MAX_WALKED = 4 };

/* Process `count` elements: element i of array k is at data[k] + i * strides[k]. */
typedef void (*rt_inner)(const void *context, char *const *data, const int64_t *strides, int64_t count);

/* Call `inner` for all elements of `num` arrays in row-major order. Axes are joined where the strides of all arrays
 * permit this. Strides are in bytes; the stride of a broadcast axis is 0. */
void rt_walk(int num, char *const *data, const int64_t *const *strides, int32_t rank, const int64_t *shape,
             rt_inner inner, const void *context);

/* Copy elements of `nbytes` bytes (1, 2, 4, 8 or 16) between arrays of the same shape without common memory. */
void rt_copy_strided(char *target, const int64_t *target_strides, const char *source, const int64_t *source_strides,
                     int32_t rank, const int64_t *shape, int64_t nbytes);

#endif /* BYOC_RT_KERNEL_WALK_H_ */
