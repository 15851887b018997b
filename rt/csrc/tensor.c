#include "tensor.h"

#include <stdlib.h>
#include <string.h>

#include "core_abi.h"
#include "dtypes.h"

enum { ALIGNMENT = 64 };

int rt_count_bytes(const int64_t *shape, int32_t ndim, int64_t itemsize, int64_t *nbytes) {
  int64_t count = itemsize;
  int has_elements = 1;
  for (int32_t axis = 0; axis < ndim; ++axis) {
    if (shape[axis] < 0) return 0;
    has_elements = has_elements && shape[axis] != 0;
  }
  for (int32_t axis = 0; axis < ndim && has_elements; ++axis)
    if (__builtin_mul_overflow(count, shape[axis], &count)) return 0;
  *nbytes = has_elements ? count : 0;
  return 1;
}

int rt_has_compact_strides(const int64_t *shape, const int64_t *strides, int32_t ndim) {
  int64_t expected = 1;
  if (!strides) return 1;
  for (int32_t axis = 0; axis < ndim; ++axis)
    if (shape[axis] == 0) return 1;
  for (int32_t axis = ndim - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    if (strides[axis] != expected || __builtin_mul_overflow(expected, shape[axis], &expected)) return 0;
  }
  return 1;
}

int rt_find_extent(const int64_t *shape, const int64_t *strides, int32_t ndim, int64_t *lowest, int64_t *highest) {
  int64_t stride = 1;
  *lowest = *highest = 0;
  for (int32_t axis = ndim - 1; axis >= 0; --axis) {
    int64_t span;
    if (strides) stride = strides[axis];
    if (__builtin_mul_overflow(stride, shape[axis] - 1, &span)) return 0;
    if (__builtin_add_overflow(span < 0 ? *lowest : *highest, span, span < 0 ? lowest : highest)) return 0;
    if (!strides && __builtin_mul_overflow(stride, shape[axis], &stride)) return 0;
  }
  return 1;
}

static void delete_tensor(DLManagedTensorVersioned *tensor) { free(tensor); }

DLManagedTensorVersioned *rt_new_tensor(DLDataType dtype, int32_t ndim, const int64_t *shape, const char *where) {
  int64_t nbytes;
  const size_t head_nbytes = sizeof(DLManagedTensorVersioned) + (size_t)ndim * sizeof(int64_t);
  if (!rt_count_bytes(shape, ndim, rt_itemsize(dtype), &nbytes) ||
      nbytes > PTRDIFF_MAX - (int64_t)head_nbytes - ALIGNMENT) {
    rt_line text = {.length = 0};
    rt_append_shape(&text, shape, ndim);
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "%s: a tensor of shape %s does not fit into memory", where, text.text);
    return NULL;
  }
  DLManagedTensorVersioned *tensor = malloc(head_nbytes + ALIGNMENT + (size_t)nbytes);
  if (!tensor) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "%s: %lld bytes cannot be allocated", where, (long long)nbytes);
    return NULL;
  }
  int64_t *own_shape = (int64_t *)(tensor + 1);
  if (ndim) memcpy(own_shape, shape, (size_t)ndim * sizeof *shape);
  char *data = (char *)(own_shape + ndim);
  data += (ALIGNMENT - (uintptr_t)data % ALIGNMENT) % ALIGNMENT;
  *tensor = (DLManagedTensorVersioned){
      .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
      .deleter = delete_tensor,
      .dl_tensor = {.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = own_shape},
  };
  return tensor;
}

void rt_free_tensor(DLManagedTensorVersioned *tensor) {
  if (tensor) tensor->deleter(tensor);
}

void rt_copy_tensor(const DLTensor *source, const DLTensor *target, int64_t itemsize) {
  DLTensor tensors[2] = {*source, *target};
  TVMFFIAny operands[2];
  int64_t itemsizes[2] = {itemsize, itemsize};
  static const byoc_instruction code[] = {{.op = BYOC_COPY, .count = 2}, {.op = BYOC_PYTHON}};
  for (int i = 0; i < 2; ++i) {
    tensors[i].data = rt_data(&tensors[i]);
    tensors[i].byte_offset = 0;
    operands[i] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &tensors[i]};
  }
  const byoc_frame frame = {code, operands, tensors, itemsizes};
  (void)byoc_run(&frame, 0);
}

void rt_clean_bools(uint8_t *bytes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) bytes[i] = bytes[i] != 0;
}

int rt_are_clean_bools(const uint8_t *bytes, int64_t count) {
  uint8_t combined_bits = 0;
  for (int64_t i = 0; i < count; ++i) combined_bits |= bytes[i];
  return combined_bits <= 1;
}
