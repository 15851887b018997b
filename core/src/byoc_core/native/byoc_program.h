/* Functions of the virtual machine in a self-contained library: all called functions are machine code.
 *
 * A function consists of two C functions: one checks the arguments of a call and computes sizes, the other makes the
 * calls. Intermediates are in a block of memory kept by each thread between calls.
 */
#ifndef BYOC_PROGRAM_H_
#define BYOC_PROGRAM_H_

#include "byoc_ffi.h"

/* Check the arguments of a call, and compute the symbolic sizes and the bytes of the workspace. */
typedef int32_t (*byoc_measure)(const DLTensor *const *arguments, int64_t *sizes, int64_t *nbytes);

/* Make the calls, on the first elements of the arguments. */
typedef int32_t (*byoc_calls)(void *const *pointers, const int64_t *sizes, char *workspace);

typedef struct {
  const char *name;
  const char *const *argument_names; /* of parameters, then results */
  int32_t num_params, num_results, num_sizes;
  byoc_measure measure;
  byoc_calls calls;
} byoc_program;

#define BYOC_ALIGNMENT 64

/* Run a function on tensors, first parameters, then results; any number of threads may do so at once. */
BYOC_LOCAL int32_t byoc_run_program(const byoc_program *program, const TVMFFIAny *args, int32_t num_args);

#endif /* BYOC_PROGRAM_H_ */
