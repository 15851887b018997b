/* Tensors: their memory, and properties of any tensor. */
#ifndef BYOC_RT_TENSOR_H_
#define BYOC_RT_TENSOR_H_

#include "byoc_rt.h"

/* Return the address of a tensor's first element. */
static inline char *rt_data(const DLTensor *tensor) {
  return tensor->byte_offset ? (char *)tensor->data + tensor->byte_offset : (char *)tensor->data;
}

/* Compute the bytes of a compact tensor; return 0 if a size is negative, or the bytes exceed 63 bits. */
int rt_count_bytes(const int64_t *shape, int32_t ndim, int64_t itemsize, int64_t *nbytes);

/* Return whether strides are row-major, apart from axes of size 1; NULL: yes. A tensor without elements is compact. */
int rt_has_compact_strides(const int64_t *shape, const int64_t *strides, int32_t ndim);

/* Find the elements before and behind a tensor's first element that the tensor reaches: the smallest and the largest
 * sum of strides. The tensor has elements. Return 0 if a sum exceeds 64 bits. */
int rt_find_extent(const int64_t *shape, const int64_t *strides, int32_t ndim, int64_t *lowest, int64_t *highest);

/* Return a tensor with memory of its own, aligned to 64 bytes, of undefined content; NULL after setting an error that
 * names `where`. */
DLManagedTensorVersioned *rt_new_tensor(DLDataType dtype, int32_t ndim, const int64_t *shape, const char *where);

/* Release a tensor by its deleter; NULL is ignored. */
void rt_free_tensor(DLManagedTensorVersioned *tensor);

/* Copy the elements of a tensor of any strides into a compact tensor, or between compact tensors; the shapes are equal,
 * with at most 64 axes. */
void rt_copy_tensor(const DLTensor *source, const DLTensor *target, int64_t itemsize);

/* Replace each byte other than 0 by 1. */
void rt_clean_bools(uint8_t *bytes, int64_t count);

/* Return whether every byte is 0 or 1. */
int rt_are_clean_bools(const uint8_t *bytes, int64_t count);

#endif /* BYOC_RT_TENSOR_H_ */
