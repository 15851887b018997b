/* Functions of the virtual machine in a self-contained library: all called functions are machine code.
 *
 * A function consists of data (registers and instructions), and of a C function to check the arguments of a call and to
 * compute sizes. Intermediates are in a block of memory kept by each thread between calls.
 */
#ifndef BYOC_PROGRAM_H_
#define BYOC_PROGRAM_H_

#include "byoc_executor.h"

/* The memory of a register; a non-negative number is the base register of a view. */
enum { BYOC_IN_ARGUMENT = -1, BYOC_IN_CONSTANT = -2, BYOC_IN_ARENA = -3 };

typedef struct {
  uint8_t code, bits;  /* of an element, as in DLPack */
  uint8_t is_strided;  /* the strides follow the shape among the sizes */
  int32_t itemsize;    /* bytes */
  int32_t ndim, location;
} byoc_register;

/* Check the arguments of a call, and compute for the sizes of the arguments: the shapes and strides of all registers in
 * order, the offset of each register in bytes (in the arena, or from the base of a view), and the bytes of the
 * arena. */
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

/* Run a function on tensors, first parameters, then results; any number of threads may do so at once. */
BYOC_LOCAL int32_t byoc_run_program(const byoc_program *program, const TVMFFIAny *args, int32_t num_args);

#endif /* BYOC_PROGRAM_H_ */
