/* Tensors in native calls of the core: DLTensor of DLPack 1.x in the arguments of the TVM FFI ABI. */
#ifndef BYOC_DNNL_TENSORS_H_
#define BYOC_DNNL_TENSORS_H_

#include <stddef.h>
#include <stdint.h>

typedef struct {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t number;
    DLTensor *tensor;
  };
} TVMFFIAny;

_Static_assert(sizeof(void *) == 8, "a 64-bit machine");
_Static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 &&
                   offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, byte_offset) == 40,
               "DLTensor");
_Static_assert(sizeof(TVMFFIAny) == 16 && offsetof(TVMFFIAny, tensor) == 8, "TVMFFIAny");

static inline void *byoc_data(const TVMFFIAny *argument) {
  return (char *)argument->tensor->data + argument->tensor->byte_offset;
}

#endif /* BYOC_DNNL_TENSORS_H_ */
