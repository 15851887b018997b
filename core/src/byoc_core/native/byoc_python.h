/* Functions requiring Python: byoc runs these functions in the interpreter of the process, from the artifact in the
 * library. */
#ifndef BYOC_PYTHON_H_
#define BYOC_PYTHON_H_

#include "byoc_ffi.h"

typedef struct {
  const char *name;
  const char *reason; /* why machine code alone cannot run the function */
  const char *const *argument_names;
  int32_t num_arguments;
  const unsigned char *artifact;
  uint64_t artifact_nbytes;
} byoc_python_function;

/* Run a function on tensors, first parameters, then results. Fail if the process has no Python, or Python has no
 * byoc. */
BYOC_LOCAL int32_t byoc_run_in_python(const byoc_python_function *function, const TVMFFIAny *args, int32_t num_args);

#endif /* BYOC_PYTHON_H_ */
