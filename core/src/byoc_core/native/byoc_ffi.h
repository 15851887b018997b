/* The C interface of code that byoc generates: the TVM FFI C ABI over DLPack tensors, in plain C11.
 *
 * A compiled function `f` is exported as
 *
 *     int32_t __tvm_ffi_f(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);
 *
 * Its arguments are tensors, inputs first, then outputs: a DLTensor* (type index 7) or a Tensor object, whose
 * DLTensor follows its header (type index 70). A function that wants scratch memory takes it as one more tensor behind
 * them, or allocates it where that is left out. It returns 0; or it returns -1 after it has set an error, which
 * byoc_last_error() gives to the same thread, and which a process that holds the TVM FFI library sees as raised.
 *
 * The layouts are those of DLPack 1.x and of the TVM FFI package; the assertions below pin them. Where the headers
 * of those projects are included before this one, theirs are used. Link byoc_ffi.c once into every library.
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

/* One argument or result: a tag and eight bytes. */
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

/* The message of the last error that this library set in this thread; never NULL. */
BYOC_EXPORT const char *byoc_last_error(void);

/* Sets the error of this thread (kind: a Python exception's name; the message as by printf) and returns -1. */
BYOC_LOCAL int32_t byoc_fail(const char *kind, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Fails unless `given` arguments are as many as `expected`. */
BYOC_LOCAL int32_t byoc_check_count(const char *function, int32_t given, int32_t expected);

/* Gives the tensor of an argument, or NULL after it has set an error. */
BYOC_LOCAL DLTensor *byoc_tensor(const char *function, const char *name, const TVMFFIAny *argument);

/* Fails unless the tensor lies in CPU memory, compact, row-major and aligned, with this element type and rank. */
BYOC_LOCAL int32_t byoc_check_tensor(const char *function, const char *name, const DLTensor *tensor, int32_t code,
                                     int32_t bits, int32_t ndim);

/*
 * Gives the bytes of a tensor of bools, which byoc_check_tensor has checked: its own where they are 0 and 1, else a copy
 * with 1 in place of the others, which `own` then is and the caller frees. Fails where there is no memory for the copy.
 */
BYOC_LOCAL int32_t byoc_read_bools(const char *function, const char *name, const DLTensor *tensor,
                                   const uint8_t **bytes, uint8_t **own);

/* Fails unless the size of an axis is `expected`. */
BYOC_LOCAL int32_t byoc_check_size(const char *function, const char *name, const DLTensor *tensor, int32_t axis,
                                   int64_t expected);

/* Finds the size s >= 0 for which factor * s + offset is the size of an axis; fails where there is none. */
BYOC_LOCAL int32_t byoc_solve_size(const char *function, const char *name, const DLTensor *tensor, int32_t axis,
                                   int64_t factor, int64_t offset, int64_t *size);

/* Fails unless two sizes broadcast: equal, or one of them 1. */
BYOC_LOCAL int32_t byoc_check_broadcast(const char *function, int64_t left, int64_t right);

/* Fails unless the size of an operand's axis is `wanted`, or 1. */
BYOC_LOCAL int32_t byoc_check_operand(const char *function, const char *op, const char *operand, int32_t axis,
                                      int64_t size, int64_t wanted);

/* Fails unless the size of an operand's axis is `wanted`. */
BYOC_LOCAL int32_t byoc_check_equal(const char *function, const char *op, const char *operand, int32_t axis,
                                    int64_t size, int64_t wanted);

/* Fails unless a size inside a function is `least` or more; `what` is the tensor of the op that has it. */
BYOC_LOCAL int32_t byoc_check_least(const char *function, const char *op, const char *what, int32_t axis, int64_t size,
                                    int64_t least);

/* Fails unless the tensor can be scratch memory: `nbytes` bytes or more in one axis, aligned to as many as this. */
#define BYOC_WORKSPACE_ALIGNMENT 64
BYOC_LOCAL int32_t byoc_check_workspace(const char *function, const DLTensor *tensor, int64_t nbytes);

/* Scratch memory for a call that brings none, a multiple of the alignment in size; NULL where there is none. */
BYOC_LOCAL void *byoc_new_workspace(int64_t nbytes);
BYOC_LOCAL void byoc_free_workspace(void *workspace);

/* The address of a tensor's first element. */
static inline void *byoc_data(const DLTensor *tensor) { return (char *)tensor->data + tensor->byte_offset; }

/* In front of a loop: no round writes what another one reads or writes. So a compiler need not look whether outputs
 * overlap inputs: those that do lie there whole upon whole, and a round reads an element before it writes it. */
#if defined(__GNUC__) && !defined(__clang__) /* clang warns of each loop that it cannot vectorise */
#define BYOC_INDEPENDENT_ROUNDS _Pragma("GCC ivdep")
#else
#define BYOC_INDEPENDENT_ROUNDS
#endif

#ifdef __cplusplus
}
#endif
#endif /* BYOC_FFI_H_ */
