/* The instructions of a function of the virtual machine, and the loop running these instructions.
 *
 * Independent of Python: the C extension runs instructions without the interpreter lock, an exported library without
 * any Python (byoc_program.h). Functions are called with prebuilt arguments by the safe-call convention of the TVM FFI
 * ABI (see byoc_ffi.h).
 */
#ifndef BYOC_EXECUTOR_H_
#define BYOC_EXECUTOR_H_

#include "byoc_ffi.h"

typedef int32_t (*byoc_function)(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);

/* The effects of instructions on their operands o0, o1, ... */
enum {
  BYOC_PYTHON,    /* none: not executed by this loop */
  BYOC_RET,       /* ends the function */
  BYOC_CALL,      /* function(context, operands) */
  BYOC_COPY,      /* o1 = o0; equal shapes, any strides */
  BYOC_ZERO,      /* o0 = 0, an int64 */
  BYOC_INCREMENT, /* o0 += 1, an int64 */
  BYOC_LOOP_TEST, /* o3 = o2 && o0 < o1: bool, bool, int64, int64 */
  BYOC_IF,        /* continues if the bool o0 is set, else at `target` */
  BYOC_GOTO,      /* continues at `target` */
  BYOC_NUM_OPS
};

typedef struct {
  int32_t op;
  int32_t first; /* position of the first operand in byoc_frame.operands */
  int32_t count; /* of operands */
  int32_t target;
  byoc_function function;
  void *context;
} byoc_instruction;

/* The memory of a running call, never shared with other running calls. */
typedef struct {
  const byoc_instruction *code;
  TVMFFIAny *operands; /* of all instructions: DLTensor* of the registers below */
  DLTensor *tensors;   /* by register */
  int64_t *itemsizes;  /* bytes of an element in memory, by register */
} byoc_frame;

typedef struct {
  int32_t index;  /* of the instruction */
  int32_t status; /* nonzero: returned by the instruction's function */
} byoc_stop;

/* Run instructions from `index` on, until the function ends, an instruction fails, or an instruction is not executed
 * here. A loop pauses at a backward jump about ten times a second, to be continued there: the caller may want to end
 * the loop. */
byoc_stop byoc_run(const byoc_frame *frame, int32_t index);

#endif /* BYOC_EXECUTOR_H_ */
