/* The C interface of generated code: the TVM FFI C ABI over DLPack tensors, in plain C11.
 *
 * A compiled function `f` is exported as
 *
 *     int32_t __tvm_ffi_f(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);
 *
 * The arguments are tensors, inputs first, then outputs: a DLTensor* (type index 7), or a Tensor object with a DLTensor
 * behind the header (type index 70). Scratch memory is an optional further tensor at the end; without this tensor, the
 * function allocates the memory. The function returns 0, or sets an error and returns -1. byoc_last_error() returns
 * the error in the same thread; in a process with the TVM FFI library, the error is also raised there.
 *
 * The layouts of the structures are the layouts of DLPack 1.x and of the TVM FFI package, checked by the assertions
 * below. If the headers of these projects are included before this header, their structures are used. Link byoc_ffi.c
 * once into every library.
 */
#ifndef BYOC_FFI_H_
#define BYOC_FFI_H_

#include <stddef.h>
#include <stdint.h>

#include "byoc_sizes.h"

#ifdef __cplusplus
extern "C" {
#define BYOC_STATIC_ASSERT static_assert
#else
#define BYOC_STATIC_ASSERT _Static_assert
#endif

#if defined(_WIN32)
#define BYOC_EXPORT __declspec(dllexport)
#define BYOC_LOCAL
#else
#define BYOC_EXPORT __attribute__((visibility("default")))
#define BYOC_LOCAL __attribute__((visibility("hidden")))
#endif

#ifndef DLPACK_DLPACK_H_

enum { kDLCPU = 1 };

typedef struct {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: compact, row-major */
  uint64_t byte_offset;
} DLTensor;

#endif

#ifndef TVM_FFI_C_API_H_

enum { kTVMFFINone = 0, kTVMFFIDLTensorPtr = 7, kTVMFFITensor = 70 };

/* The header of every object on the heap. */
typedef struct {
  uint64_t combined_ref_count;
  int32_t type_index;
  uint32_t padding;
  union {
    void (*deleter)(void *self, int flags);
    int64_t align;
  } release;
} TVMFFIObject;

/* An argument or a result: a tag and eight bytes. */
typedef struct {
  int32_t type_index;
  uint32_t zero_padding;
  union {
    int64_t v_int64;
    double v_float64;
    void *v_ptr;
    const char *v_c_str;
    TVMFFIObject *v_obj;
    DLDataType v_dtype;
    DLDevice v_device;
    uint64_t v_uint64;
  };
} TVMFFIAny;

#endif

BYOC_STATIC_ASSERT(sizeof(void *) == 8, "byoc generates code for 64-bit machines");
BYOC_STATIC_ASSERT(sizeof(DLDataType) == 4 && sizeof(DLDevice) == 8, "DLPack scalars");
BYOC_STATIC_ASSERT(sizeof(DLTensor) == 48, "DLTensor");
BYOC_STATIC_ASSERT(offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16, "DLTensor");
BYOC_STATIC_ASSERT(offsetof(DLTensor, dtype) == 20 && offsetof(DLTensor, shape) == 24, "DLTensor");
BYOC_STATIC_ASSERT(offsetof(DLTensor, strides) == 32 && offsetof(DLTensor, byte_offset) == 40, "DLTensor");
BYOC_STATIC_ASSERT(sizeof(TVMFFIObject) == 24 && offsetof(TVMFFIObject, type_index) == 8, "TVMFFIObject");
BYOC_STATIC_ASSERT(sizeof(TVMFFIAny) == 16 && offsetof(TVMFFIAny, v_ptr) == 8, "TVMFFIAny");

/* Return the message of this library's last error in this thread; never NULL. */
BYOC_EXPORT const char *byoc_last_error(void);

/* Set the error of this thread (kind: a Python exception's name; the message as for printf) and return -1. */
BYOC_LOCAL int32_t byoc_fail(const char *kind, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Fail unless the number of arguments `given` equals `expected`. */
BYOC_LOCAL int32_t byoc_check_count(const char *function, int32_t given, int32_t expected);

/* Return the tensor of an argument; or set an error and return NULL. */
BYOC_LOCAL DLTensor *byoc_tensor(const char *function, const char *name, const TVMFFIAny *argument);

/* Fail unless the tensor is in CPU memory, compact, row-major and aligned, with this element type and rank. */
BYOC_LOCAL int32_t byoc_check_tensor(const char *function, const char *name, const DLTensor *tensor, int32_t code,
                                     int32_t bits, int32_t ndim);

/*
 * Return the bytes of a tensor of bools already checked by byoc_check_tensor: the bytes of the tensor if all are 0 or 1;
 * else a copy with 1 in place of other values. `own` is then the copy, and the caller frees the copy. Fail without
 * memory for the copy.
 */
BYOC_LOCAL int32_t byoc_read_bools(const char *function, const char *name, const DLTensor *tensor,
                                   const uint8_t **bytes, uint8_t **own);

/* Fail unless the size of an axis is `expected`. */
BYOC_LOCAL int32_t byoc_check_size(const char *function, const char *name, const DLTensor *tensor, int32_t axis,
                                   int64_t expected);

/* Solve factor * s + offset = the size of an axis for s >= 0; fail without a solution. */
BYOC_LOCAL int32_t byoc_solve_size(const char *function, const char *name, const DLTensor *tensor, int32_t axis,
                                   int64_t factor, int64_t offset, int64_t *size);

/* Fail unless two sizes broadcast: equal sizes, or a size of 1. */
BYOC_LOCAL int32_t byoc_check_broadcast(const char *function, int64_t left, int64_t right);

/* Fail unless the size of an operand's axis is `wanted`, or 1. */
BYOC_LOCAL int32_t byoc_check_operand(const char *function, const char *op, const char *operand, int32_t axis,
                                      int64_t size, int64_t wanted);

/* Fail unless the size of an operand's axis is `wanted`. */
BYOC_LOCAL int32_t byoc_check_equal(const char *function, const char *op, const char *operand, int32_t axis,
                                    int64_t size, int64_t wanted);

/* Fail unless a size inside a function is `least` or more; `what` is the op's tensor with this size. */
BYOC_LOCAL int32_t byoc_check_least(const char *function, const char *op, const char *what, int32_t axis, int64_t size,
                                    int64_t least);

/* Fail unless the tensor can be scratch memory: `nbytes` bytes or more in one axis, with this alignment. */
#define BYOC_WORKSPACE_ALIGNMENT 64
BYOC_LOCAL int32_t byoc_check_workspace(const char *function, const DLTensor *tensor, int64_t nbytes);

/* Allocate scratch memory for a call without any, a multiple of the alignment in size; NULL without memory. */
BYOC_LOCAL void *byoc_new_workspace(int64_t nbytes);
BYOC_LOCAL void byoc_free_workspace(void *workspace);

/* Return the address of a tensor's first element. */
static inline void *byoc_data(const DLTensor *tensor) { return (char *)tensor->data + tensor->byte_offset; }

/* In front of a loop: no iteration writes memory read or written by another iteration. So a compiler need not check
 * whether outputs overlap inputs: an output in the memory of an input is the complete input, and an iteration reads an
 * element before writing the element. */
#if defined(__GNUC__) && !defined(__clang__) /* clang warns of each loop without vectorisation */
#define BYOC_INDEPENDENT_ROUNDS _Pragma("GCC ivdep")
#else
#define BYOC_INDEPENDENT_ROUNDS
#endif

#ifdef __cplusplus
}
#endif
#endif /* BYOC_FFI_H_ */
