/* Functions of the virtual machine in a library that runs them by itself: all they call is machine code.
 *
 * A function is data, its registers and instructions, and one C function that checks the arguments of a call and
 * computes sizes. Its intermediates lie in a block of memory that each thread keeps from call to call.
 */
#ifndef BYOC_PROGRAM_H_
#define BYOC_PROGRAM_H_

#include "byoc_executor.h"

/* Where the memory of a register is; a number that is not negative names the register of which it is a view. */
enum { BYOC_IN_ARGUMENT = -1, BYOC_IN_CONSTANT = -2, BYOC_IN_ARENA = -3 };

typedef struct {
  uint8_t code, bits;  /* of an element, as DLPack has them */
  uint8_t is_strided;  /* its strides follow its shape among the sizes */
  int32_t itemsize;    /* bytes */
  int32_t ndim, place;
} byoc_register;

/* Checks the arguments of a call and computes, for their sizes, shapes and strides of all registers, one after the other,
 * the offset of each register in bytes (in the arena, or from the base of a view), and the bytes of the arena. */
typedef int32_t (*byoc_measure)(const DLTensor *const *arguments, int64_t *sizes, int64_t *offsets, int64_t *nbytes);

/* Registers are numbered as in the virtual machine: parameters, results, constants, then the others. */
typedef struct {
  const char *name;
  const char *const *argument_names; /* of parameters, then results */
  int32_t num_params, num_results, num_registers, num_operands, num_sizes;
  const byoc_register *registers;
  const byoc_instruction *code;
  const int32_t *operands; /* registers, of all instructions */
  const void *const *constants;
  byoc_measure measure;
} byoc_program;

#define BYOC_ALIGNMENT 64
#define BYOC_ALIGNED(nbytes) (((nbytes) + (BYOC_ALIGNMENT - 1)) / BYOC_ALIGNMENT * BYOC_ALIGNMENT)

/* Runs a function on tensors, parameters and then results. Any number of threads may run it at once. */
BYOC_LOCAL int32_t byoc_run_program(const byoc_program *program, const TVMFFIAny *args, int32_t num_args);

#endif /* BYOC_PROGRAM_H_ */
