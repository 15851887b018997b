/* The call list of a function of the virtual machine, and the loop running the list.
 *
 * Independent of Python: the C extension runs a list without the interpreter lock, an exported library without any Python
 * (byoc_program.h). Functions are called by the safe-call convention of the TVM FFI ABI with prebuilt arguments (see
 * byoc_ffi.h).
 */
#ifndef BYOC_EXECUTOR_H_
#define BYOC_EXECUTOR_H_

#include "byoc_ffi.h"

typedef int32_t (*byoc_function)(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);

/* The operations of instructions with operands o0, o1, ... */
enum {
  BYOC_PYTHON,    /* none: run by the caller */
  BYOC_RET,       /* end the function */
  BYOC_CALL,      /* function(context, operands) */
  BYOC_COPY,      /* o1 = o0; equal shapes, any strides */
  BYOC_ZERO,      /* o0 = 0, an int64 */
  BYOC_INCREMENT, /* o0 += 1, an int64 */
  BYOC_LOOP_TEST, /* o3 = o2 && o0 < o1: bool, bool, int64, int64 */
  BYOC_IF,        /* continue if the bool o0 is true, else at `target` */
  BYOC_GOTO,      /* continue at `target` */
  BYOC_NUM_OPS
};

typedef struct {
  int32_t op;
  int32_t first; /* index of the first operand in the operands of the list */
  int32_t count; /* number of operands */
  int32_t target;
  byoc_function function;
  void *context;
} byoc_instruction;

/* The memory of a running call, shared with no concurrent call. */
typedef struct {
  const byoc_instruction *code;
  TVMFFIAny *operands; /* operands of all instructions: DLTensor* of the registers below */
  DLTensor *tensors;   /* one for each register */
  int64_t *itemsizes;  /* bytes of an element in memory, for each register */
} byoc_frame;

typedef struct {
  int32_t index;  /* the failed instruction */
  int32_t status; /* not 0: the status returned by the function */
} byoc_stop;

/* Run instructions from `index` on, up to the end of the function, a failure, or an instruction for the caller. A loop
 * returns at a jump back about ten times a second and continues there: the caller may want to interrupt the loop. */
byoc_stop byoc_run(const byoc_frame *frame, int32_t index);

#endif /* BYOC_EXECUTOR_H_ */
