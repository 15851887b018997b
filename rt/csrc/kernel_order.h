/* Kernels that order elements. NaN counts as the largest element; equal elements keep their order. */
#ifndef BYOC_RT_KERNEL_ORDER_H_
#define BYOC_RT_KERNEL_ORDER_H_

#include "kernel.h"

int32_t rt_run_sort(rt_call *call, const void *context);
int32_t rt_run_argsort(rt_call *call, const void *context);
int32_t rt_run_topk(rt_call *call, const void *context);
int32_t rt_run_unique(rt_call *call, const void *context);

/* Return the order of two rows of a wide type: -1, 0 or 1, by the first different element. */
int rt_compare_rows(rt_type wide, const char *left, const char *right, int64_t length);

/* Sort the numbers 0 to count - 1 of rows; equal rows keep their order. `buffer` is memory for as many numbers. */
void rt_sort_rows(rt_type wide, const char *rows, int64_t length, int descending, int64_t *order, int64_t *buffer,
                  int64_t count);

#endif /* BYOC_RT_KERNEL_ORDER_H_ */
