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
#include "sizes.h"

enum { BYOC_MAX_NDIM = 64 };

/* Where the memory of a register is. */
enum {
  BYOC_NOWHERE,  /* nothing native uses it */
  BYOC_ARGUMENT, /* comes with each call */
  BYOC_CONSTANT,
  BYOC_TENSOR, /* in a storage of the arena */
  BYOC_VIEW,   /* in another register */
  BYOC_NUM_PLACES
};

/* What is known of a register before a call. Sizes are numbers of the function's table. */
typedef struct {
  int32_t place, home; /* home: the storage, or the register that a view lies in */
  int32_t ndim, is_strided;
  DLDataType dtype;
  int64_t itemsize;
  PyArray_Descr *descr;
  int32_t *dims;   /* shape, then strides in elements where there are any */
  int32_t offset;  /* bytes behind the start of its home: a size */
  PyObject *array; /* of a constant */
} Register;

/* A function, without memory. */
typedef struct {
  PyObject_HEAD
  byoc_instruction *instructions;
  PyObject **steps;  /* by instruction: does in Python what is not done natively; NULL where nothing does */
  int32_t *operands; /* registers, of all instructions */
  Register *registers;
  int32_t num_instructions, num_operands, num_registers;
  int32_t *followers, num_followers; /* the registers that lie in arguments */
  byoc_size_operation *operations;
  int32_t *storages; /* bytes of each: a size */
  int32_t num_operations, num_symbols, num_storages;
  int has_steps;
  PyObject *fail;  /* fail(instruction, status or exception) raises */
  int num_threads; /* that a call wants, 0: those of the process; negative: nothing uses threads */
} CodeObject;

/* The memory of one running call. */
typedef struct {
  PyObject_HEAD
  CodeObject *code;
  byoc_frame frame;
  void *block;    /* what `frame` and the two below point to, and shapes */
  int64_t *sizes; /* the function's table */
  char **starts;  /* of storages */
  PyObject *arena;   /* an array of bytes; NULL: none yet */
  PyObject **arrays; /* by register, for steps in Python; NULL where none was needed yet */
  int is_laid_out;   /* whether the sizes are those of the last call */
  int is_running;
} FrameObject;

/* A symbol's size: that of an axis of an input, less a constant, over a factor. */
typedef struct {
  int32_t symbol, input, axis;
  int64_t factor, constant;
} SymbolSource;

/* What calls from Python need: where sizes come from, and frames that are free. */
typedef struct {
  PyObject_HEAD
  CodeObject *code;
  SymbolSource *sources;
  Py_ssize_t num_sources;
  int32_t num_inputs, num_outputs;
  PyObject *new_frame; /* new_frame() gives one more frame */
  FrameObject **frames;
  Py_ssize_t num_frames, max_frames;
} PlanObject;

extern PyType_Spec byoc_code_spec, byoc_frame_spec, byoc_plan_spec, byoc_entry_spec, byoc_bound_spec;
extern PyMethodDef byoc_threads_methods[];
extern PyTypeObject *byoc_code_type, *byoc_frame_type, *byoc_plan_type;

/* Fill in what a code knows of registers and sizes, from tuples; -1 with an exception. */
int byoc_read_registers(CodeObject *code, PyObject *registers);
int byoc_read_sizes(CodeObject *code, PyObject *sizes);
void byoc_free_registers(CodeObject *code);

/* Computes all sizes from the symbols', which stand in the frame's table; then gives each register its shape and place, and
 * the arena what it needs. Both give 0, without an exception, where there is no such size or no such memory. */
int byoc_frame_compute(FrameObject *frame);
int byoc_frame_lay_out(FrameObject *frame);

/* Gives registers from `first` on the data of arrays of their rank, NULL leaving one out; then moves what lies in them. */
void byoc_frame_point(FrameObject *frame, int32_t first, PyObject *const *arrays, Py_ssize_t count);
void byoc_frame_follow(FrameObject *frame);

/* Lets go of what Python's steps were given of the arguments; of all arrays. */
void byoc_frame_forget_arguments(FrameObject *frame);
void byoc_frame_forget_arrays(FrameObject *frame);

/* A new reference to a register as an array. */
PyObject *byoc_frame_array(FrameObject *frame, int32_t number);

/* Runs a frame from an instruction on, what is native without the interpreter lock. Gives the instruction where it stopped, or
 * -1 with an exception set. */
int32_t byoc_frame_run(FrameObject *frame, int32_t index);

/* Runs all of a function; -1 with an exception. */
int byoc_frame_run_whole(FrameObject *frame);

/* Runs a function on as many inputs as it takes; gives its result, or NULL: with an exception, or without one where Python
 * has to run it, because an array does not fit, say. `outputs` is NULL for new ones, as is each one that is NULL. */
PyObject *byoc_plan_run(PlanObject *plan, PyObject *const *inputs, PyObject *const *outputs);

#endif /* BYOC_OBJECTS_H_ */
