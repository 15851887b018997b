/* The extension's types, for the files that define them. All of them are used under the interpreter lock. */
#ifndef BYOC_OBJECTS_H_
#define BYOC_OBJECTS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL byoc_numpy_api
#ifndef BYOC_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "byoc_executor.h"

/* The instructions of one function, without memory. */
typedef struct {
  PyObject_HEAD
  byoc_instruction *instructions;
  int32_t *registers; /* of all operands */
  int32_t num_instructions, num_operands, num_registers;
  PyObject *fail;  /* fail(instruction, status) raises */
  int num_threads; /* that a call wants, 0: those of the process; negative: nothing uses threads */
} CodeObject;

/* A register that lies in another one's memory. */
typedef struct {
  int32_t view, base;
  int64_t nbytes_offset;
} Follower;

/* The memory of one running call. */
typedef struct {
  PyObject_HEAD
  CodeObject *code;
  byoc_frame frame;
  void *block; /* tensors, item sizes, operands and shapes of `frame` */
  Follower *followers;
  Py_ssize_t num_followers;
  PyObject *owners; /* of the memory that registers point to */
  int is_running;
} FrameObject;

/* The dtype and shape that an argument must have. */
typedef struct {
  PyArray_Descr *dtype;
  int ndim;
  npy_intp *shape;
} ArraySpec;

/* What calls of one set of input shapes need: specifications, and frames that are free. */
typedef struct {
  PyObject_HEAD
  ArraySpec *specs; /* of inputs, then outputs */
  npy_intp *sizes;  /* of all shapes */
  Py_ssize_t num_inputs, num_outputs;
  PyObject *new_frame; /* new_frame() gives one more frame */
  FrameObject **frames;
  Py_ssize_t num_frames, max_frames;
} PlanObject;

extern PyType_Spec byoc_code_spec, byoc_frame_spec, byoc_plan_spec, byoc_entry_spec, byoc_bound_spec;
extern PyMethodDef byoc_threads_methods[];
extern PyTypeObject *byoc_code_type, *byoc_frame_type, *byoc_plan_type;

/* Gives a register the data and sizes of an array of its rank. Those that follow it come behind, all at once. */
void byoc_frame_point(FrameObject *frame, int32_t reg, PyArrayObject *array);
void byoc_frame_follow(FrameObject *frame);

/* Runs a frame from an instruction on, without the interpreter lock. Gives the instruction where it stopped, or -1 with
 * an exception set. */
int32_t byoc_frame_run(FrameObject *frame, int32_t index);

/* Whether a frame that stopped at an instruction is at the function's end. */
int byoc_frame_is_finished(const FrameObject *frame, int32_t index);

/* Runs a function on as many inputs as it takes; gives its result, or NULL: with an exception, or without one where Python
 * has to run it, because an array does not fit, say. `outputs` is NULL for new ones. */
PyObject *byoc_plan_run(PlanObject *plan, PyObject *const *inputs, PyObject *const *outputs);

#endif /* BYOC_OBJECTS_H_ */
