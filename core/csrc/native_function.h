/* Programs and functions of native machines, for the files that call these functions. */
#ifndef BYOC_NATIVE_FUNCTION_H_
#define BYOC_NATIVE_FUNCTION_H_

#include "objects.h"

#include "native_machine.h"

/* An artifact loaded by a native machine. */
typedef struct {
  PyObject_HEAD
  const byoc_native_machine *machine;
  void *program;
  Py_buffer data;
} ProgramObject;

/* The type of an input, an output or a value of a state. */
typedef struct {
  DLDataType dtype;
  int32_t ndim;
  PyArray_Descr *descr;
} Argument;

/* A function of a program, for callers. */
typedef struct {
  PyObject_HEAD
  ProgramObject *program;
  const void *function;
  Argument *arguments; /* inputs, then outputs */
  int32_t num_inputs, num_outputs;
  int num_threads; /* requested by a call; 0: the number of the process; negative: the function uses no threads */
  PyObject *unfit, *refused; /* None: the function has states, and is called by these alone */
} FunctionObject;

extern PyTypeObject *byoc_native_function_type;
extern PyType_Spec byoc_native_state_spec;

/* Read a tuple of descriptions (dtype code, bits, rank, dtype); return -1 with an exception. */
int byoc_read_arguments(PyObject *items, Argument *out);

/* Release the dtypes of arguments, perhaps not all read, and free the table; NULL is ignored. */
void byoc_free_arguments(Argument *arguments, int32_t count);

/* Raise the machine's last error in this thread as RuntimeError. */
void byoc_raise_last(const byoc_native_machine *machine);

/* Return a tensor of a machine as an array with the tensor's memory; take over the tensor. The array keeps the
 * program. */
PyObject *byoc_adopt(ProgramObject *program, const Argument *type, struct DLManagedTensorVersioned *tensor);

/* Run a function on tuples of inputs and outputs (no outputs: new results), with a state if not NULL. Return the tuple
 * of results or outputs, None if an array does not fit or the state is unavailable, or the text of the reason for a
 * refusal or failure. */
PyObject *byoc_run_native(const FunctionObject *function, void *state, PyObject *inputs, PyObject *outputs);

#endif /* BYOC_NATIVE_FUNCTION_H_ */
