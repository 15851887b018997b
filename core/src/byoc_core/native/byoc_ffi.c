/* Code contained once in every library of generated code: argument checks, and the error of each thread. */
#include "byoc_ffi.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32)
/* Present if the process has loaded the TVM FFI library; weak, because the library is optional. */
extern void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) __attribute__((weak));
/* If the TVM FFI library is loaded after this library, the weak reference is already resolved; dlsym then finds the
 * symbol. */
extern void *dlsym(void *handle, const char *name) __attribute__((weak));
#if defined(__APPLE__)
#define BYOC_ANY_LIBRARY ((void *)-2)
#else
#define BYOC_ANY_LIBRARY ((void *)0)
#endif
#endif

static _Thread_local char last_error[1024];

const char *byoc_last_error(void) { return last_error; }

byoc_part_marker byoc_marker;

void byoc_report_parts(byoc_part_marker marker) {
#if defined(__GNUC__)
  __atomic_store_n(&byoc_marker, marker, __ATOMIC_RELAXED);
#else
  byoc_marker = marker;
#endif
}

static void raise_in_tvm_ffi(const char *kind) {
#if !defined(_WIN32)
  void (*set_raised)(const char *, const char *) = TVMFFIErrorSetRaisedFromCStr;
  if (!set_raised && dlsym) {
    void *address = dlsym(BYOC_ANY_LIBRARY, "TVMFFIErrorSetRaisedFromCStr");
    memcpy(&set_raised, &address, sizeof(set_raised));
  }
  if (set_raised) {
    set_raised(kind, last_error);
  }
#else
  (void)kind;
#endif
}

int32_t byoc_fail(const char *kind, const char *format, ...) {
  va_list values;
  va_start(values, format);
  (void)vsnprintf(last_error, sizeof(last_error), format, values);
  va_end(values);
  raise_in_tvm_ffi(kind);
  return -1;
}

int32_t byoc_check_count(const char *function, int32_t actual, int32_t expected) {
  if (actual != expected) {
    return byoc_fail("TypeError", "function `%s`: takes %d tensors (inputs, then outputs); got %d", function,
                     (int)expected, (int)actual);
  }
  return 0;
}

DLTensor *byoc_tensor(const char *function, const char *name, const TVMFFIAny *argument) {
  DLTensor *tensor = NULL;
  if (argument->type_index == kTVMFFIDLTensorPtr) {
    tensor = (DLTensor *)argument->v_ptr;
  } else if (argument->type_index == kTVMFFITensor && argument->v_obj) {
    tensor = (DLTensor *)((char *)argument->v_obj + sizeof(TVMFFIObject));
  } else {
    (void)byoc_fail("TypeError", "function `%s`, argument `%s`: is not a tensor (type index %d)", function, name,
                    (int)argument->type_index);
    return NULL;
  }
  if (!tensor) {
    (void)byoc_fail("ValueError", "function `%s`, argument `%s`: is a null pointer", function, name);
  }
  return tensor;
}

int32_t byoc_read_tensors(const char *function, const char *const *names, int32_t count, int32_t has_workspace,
                          const TVMFFIAny *args, int32_t num_args, const DLTensor **tensors) {
  if (!(has_workspace && num_args == count + 1) && byoc_check_count(function, num_args, count)) {
    return -1;
  }
  for (int32_t index = 0; index < num_args; ++index) {
    tensors[index] = byoc_tensor(function, names[index], &args[index]);
    if (!tensors[index]) {
      return -1;
    }
  }
  if (has_workspace && num_args == count) {
    tensors[count] = NULL;
  }
  return 0;
}

static const char *code_name(int32_t code) {
  static const char *const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  return code >= 0 && code < (int32_t)(sizeof(names) / sizeof(names[0])) ? names[code] : "type";
}

static int32_t check_compact(const char *function, const char *name, const DLTensor *tensor) {
  int is_empty = 0;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
    if (tensor->shape[axis] < 0) {
      return byoc_fail("ValueError", "function `%s`, argument `%s`: axis %d has a negative size", function, name,
                       (int)axis);
    }
    is_empty |= tensor->shape[axis] == 0;
  }
  if (is_empty) {
    return 0;
  }
  int64_t max_elements = INT64_MAX / ((tensor->dtype.bits + 7) / 8);
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
    max_elements /= tensor->shape[axis];
  }
  if (max_elements == 0) {
    return byoc_fail("ValueError", "function `%s`, argument `%s`: has more bytes than any memory", function, name);
  }
  if (!tensor->data) {
    return byoc_fail("ValueError", "function `%s`, argument `%s`: has no data", function, name);
  }
  int64_t compact_stride = 1;
  for (int32_t axis = tensor->ndim - 1; tensor->strides && axis >= 0; --axis) {
    if (tensor->shape[axis] != 1 && tensor->strides[axis] != compact_stride) {
      return byoc_fail("ValueError", "function `%s`, argument `%s`: is not contiguous (stride of axis %d: got %lld, "
                       "expected %lld)", function, name, (int)axis, (long long)tensor->strides[axis],
                       (long long)compact_stride);
    }
    compact_stride *= tensor->shape[axis];
  }
  if (((uintptr_t)byoc_data(tensor)) % ((uintptr_t)(tensor->dtype.bits + 7) / 8) != 0) {
    return byoc_fail("ValueError", "function `%s`, argument `%s`: its data are not aligned to its element type",
                     function, name);
  }
  return 0;
}

int32_t byoc_check_tensor(const char *function, const char *name, const DLTensor *tensor, int32_t code, int32_t bits,
                          int32_t ndim) {
  if (!tensor) {
    return byoc_fail("ValueError", "function `%s`, argument `%s`: is a null pointer", function, name);
  }
  if (tensor->device.device_type != kDLCPU) {
    return byoc_fail("ValueError", "function `%s`, argument `%s`: is not in CPU memory (DLPack device type %d)",
                     function, name, (int)tensor->device.device_type);
  }
  if (tensor->dtype.code != code || tensor->dtype.bits != bits || tensor->dtype.lanes != 1) {
    return byoc_fail("TypeError", "function `%s`, argument `%s`: wrong element type; got %s%d (lanes %d), expected "
                     "%s%d", function, name, code_name(tensor->dtype.code), (int)tensor->dtype.bits,
                     (int)tensor->dtype.lanes, code_name(code), (int)bits);
  }
  if (tensor->ndim != ndim) {
    return byoc_fail("ValueError", "function `%s`, argument `%s`: wrong rank; got %d, expected %d", function, name,
                     (int)tensor->ndim, (int)ndim);
  }
  if (ndim > 0 && !tensor->shape) {
    return byoc_fail("ValueError", "function `%s`, argument `%s`: has no shape", function, name);
  }
  return check_compact(function, name, tensor);
}

int32_t byoc_read_bools(const char *function, const char *name, const DLTensor *tensor, const uint8_t **bytes,
                        uint8_t **copy) {
  size_t count = 1;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
    count *= (size_t)tensor->shape[axis];
  }
  *bytes = count ? (const uint8_t *)byoc_data(tensor) : (const uint8_t *)tensor->data;
  uint8_t combined_bits = 0;
  for (size_t k = 0; k < count; ++k) combined_bits |= (*bytes)[k];
  if (combined_bits <= 1) {
    return 0;
  }
  *copy = (uint8_t *)malloc(count);
  if (!*copy) {
    return byoc_fail("MemoryError", "function `%s`, argument `%s`: no memory for a copy with bytes of 0 and 1", function,
                     name);
  }
  for (size_t k = 0; k < count; ++k) (*copy)[k] = (*bytes)[k] != 0;
  *bytes = *copy;
  return 0;
}

int32_t byoc_check_size(const char *function, const char *name, const DLTensor *tensor, int32_t axis,
                        int64_t expected) {
  if (tensor->shape[axis] != expected) {
    return byoc_fail("ValueError", "function `%s`, argument `%s`: wrong size of axis %d; got %lld, expected %lld",
                     function, name, (int)axis, (long long)tensor->shape[axis], (long long)expected);
  }
  return 0;
}

int32_t byoc_check_shape(const char *function, const char *name, const DLTensor *tensor, int32_t code, int32_t bits,
                         int32_t ndim, const int64_t *sizes) {
  if (byoc_check_tensor(function, name, tensor, code, bits, ndim)) {
    return -1;
  }
  for (int32_t axis = 0; axis < ndim; ++axis) {
    if (sizes[axis] >= 0 && byoc_check_size(function, name, tensor, axis, sizes[axis])) {
      return -1;
    }
  }
  return 0;
}

int32_t byoc_solve_size(const char *function, const char *name, const DLTensor *tensor, int32_t axis, int64_t factor,
                        int64_t offset, int64_t *size) {
  int64_t multiple = tensor->shape[axis] - offset;
  if (multiple % factor != 0 || multiple / factor < 0) {
    return byoc_fail("ValueError", "function `%s`, argument `%s`: wrong size of axis %d; got %lld, expected "
                     "%lld * s + %lld for some s >= 0", function, name, (int)axis, (long long)tensor->shape[axis],
                     (long long)factor, (long long)offset);
  }
  *size = multiple / factor;
  return 0;
}

int32_t byoc_check_broadcast(const char *function, int64_t left, int64_t right) {
  if (left != right && left != 1 && right != 1) {
    return byoc_fail("ValueError", "function `%s`: sizes %lld and %lld do not broadcast", function, (long long)left,
                     (long long)right);
  }
  return 0;
}

int32_t byoc_check_operand(const char *function, const char *op, const char *operand, int32_t axis, int64_t size,
                           int64_t expected) {
  if (size != expected && size != 1) {
    return byoc_fail("ValueError", "function `%s`, op `%s`, operand `%s`: axis %d does not broadcast; got %lld, "
                     "expected %lld or 1", function, op, operand, (int)axis, (long long)size, (long long)expected);
  }
  return 0;
}

int32_t byoc_check_equal(const char *function, const char *op, const char *operand, int32_t axis, int64_t size,
                         int64_t expected) {
  if (size != expected) {
    return byoc_fail("ValueError", "function `%s`, op `%s`, operand `%s`: wrong size of axis %d; got %lld, expected %lld",
                     function, op, operand, (int)axis, (long long)size, (long long)expected);
  }
  return 0;
}

int32_t byoc_check_least(const char *function, const char *op, const char *tensor_name, int32_t axis,
                         int64_t size, int64_t min_size) {
  if (size < min_size) {
    return byoc_fail("ValueError", "function `%s`, op `%s`: axis %d of %s is too small; got %lld, expected %lld or more",
                     function, op, (int)axis, tensor_name, (long long)size, (long long)min_size);
  }
  return 0;
}

int32_t byoc_check_workspace(const char *function, const DLTensor *tensor, int64_t nbytes) {
  if (byoc_check_tensor(function, "workspace", tensor, kDLUInt, 8, 1)) {
    return -1;
  }
  if (tensor->shape[0] < nbytes) {
    return byoc_fail("ValueError", "function `%s`, argument `workspace`: is too small; got %lld bytes, expected %lld",
                     function, (long long)tensor->shape[0], (long long)nbytes);
  }
  if (tensor->shape[0] != 0 && (uintptr_t)byoc_data(tensor) % BYOC_WORKSPACE_ALIGNMENT != 0) {
    return byoc_fail("ValueError", "function `%s`, argument `workspace`: is not aligned to %d bytes", function,
                     BYOC_WORKSPACE_ALIGNMENT);
  }
  return 0;
}

#if defined(_WIN32)
#include <malloc.h>
void *byoc_new_workspace(int64_t nbytes) { return _aligned_malloc((size_t)nbytes, BYOC_WORKSPACE_ALIGNMENT); }
void byoc_free_workspace(void *workspace) { _aligned_free(workspace); }
#else
void *byoc_new_workspace(int64_t nbytes) { return aligned_alloc(BYOC_WORKSPACE_ALIGNMENT, (size_t)nbytes); }
void byoc_free_workspace(void *workspace) { free(workspace); }
#endif
