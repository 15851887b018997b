/* The list of calls of one function of the virtual machine, and the loop that runs it.
 *
 * Knows nothing of Python: the C extension runs a list without the interpreter lock, an exported library without any
 * Python (byoc_program.h). Functions are called by the safe-call convention of the TVM FFI ABI over prebuilt arguments (see
 * byoc_ffi.h).
 */
#ifndef BYOC_EXECUTOR_H_
#define BYOC_EXECUTOR_H_

#include "byoc_ffi.h"

typedef int32_t (*byoc_function)(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);

/* What an instruction does with its operands o0, o1, ... */
enum {
  BYOC_PYTHON,    /* nothing: it is not this loop's to do */
  BYOC_RET,       /* ends the function */
  BYOC_CALL,      /* function(context, operands) */
  BYOC_COPY,      /* o1 = o0; equal shapes, any strides */
  BYOC_ZERO,      /* o0 = 0, an int64 */
  BYOC_INCREMENT, /* o0 += 1, an int64 */
  BYOC_LOOP_TEST, /* o3 = o2 && o0 < o1: bool, bool, int64, int64 */
  BYOC_IF,        /* goes on if the bool o0, else at `target` */
  BYOC_GOTO,      /* goes on at `target` */
  BYOC_NUM_OPS
};

typedef struct {
  int32_t op;
  int32_t first; /* position of its operands among those of the list */
  int32_t count; /* of operands */
  int32_t target;
  byoc_function function;
  void *context;
} byoc_instruction;

/* The memory of one running call. Nothing of it is shared with another call that runs at the same time. */
typedef struct {
  const byoc_instruction *code;
  TVMFFIAny *operands; /* of all instructions: DLTensor* of the registers below */
  DLTensor *tensors;   /* by register */
  int64_t *itemsizes;  /* bytes of an element in memory, by register */
} byoc_frame;

typedef struct {
  int32_t index;  /* the instruction */
  int32_t status; /* not 0: what its function returned */
} byoc_stop;

/* Runs instructions from `index` on, until one ends the function, fails, or is not to be done here. A loop stops at a jump
 * back about ten times in a second, to go on there: whoever called may want to end it. */
byoc_stop byoc_run(const byoc_frame *frame, int32_t index);

#endif /* BYOC_EXECUTOR_H_ */
