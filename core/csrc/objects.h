/* The types of the extension, for the defining files. All types are used under the interpreter lock. */
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

/* The kind of memory of a register. */
enum {
  BYOC_UNUSED,   /* not used by native code */
  BYOC_ARGUMENT, /* passed with each call */
  BYOC_CONSTANT,
  BYOC_TENSOR, /* a storage of the arena */
  BYOC_VIEW,   /* another register */
  BYOC_NUM_MEMORY_KINDS
};

/* The data of a register known before a call. Sizes are indices into the function's table. */
typedef struct {
  int32_t memory_kind, owner; /* owner: the storage, or the base register of a view */
  int32_t ndim, is_strided;
  DLDataType dtype;
  int64_t itemsize;
  PyArray_Descr *descr;
  int32_t *dims;   /* shape, then strides in elements if strided */
  int32_t offset;  /* bytes from the start of the owner: a size */
  PyObject *array; /* of a constant */
} Register;

/* A function, without memory. */
typedef struct {
  PyObject_HEAD
  byoc_instruction *instructions;
  PyObject **steps;  /* by instruction: Python code for an instruction not executed natively, or NULL */
  int32_t *operands; /* registers, of all instructions */
  Register *registers;
  int32_t num_instructions, num_operands, num_registers;
  int32_t *argument_views, num_argument_views; /* registers */
  byoc_size_operation *operations;
  int32_t *storages; /* bytes of each storage: a size */
  int32_t num_operations, num_symbols, num_storages;
  int has_steps;
  PyObject *fail;  /* fail(instruction, status or exception) raises */
  PyObject *record; /* record(record) receives the record of each run (recorder.h); NULL: nothing is recorded */
  int num_threads; /* requested by a call; 0: the number of the process; negative: no instruction uses threads */
} CodeObject;

/* The memory of a running call. */
typedef struct {
  PyObject_HEAD
  CodeObject *code;
  byoc_frame frame;
  void *block;           /* memory of the tables below and in `frame`, and of shapes */
  int64_t *sizes;        /* the function's table */
  char **storage_starts; /* addresses */
  PyObject *arena;       /* an array of bytes, or NULL */
  PyObject **arrays;     /* by register, for steps in Python; NULL until needed */
  int is_laid_out;       /* whether registers and arena fit the sizes */
  int is_running;
} FrameObject;

/* The size of a symbol: the size of an axis of an input, less a constant, over a factor. */
typedef struct {
  int32_t symbol, input, axis;
  int64_t factor, constant;
} SymbolSource;

/* The data for calls from Python: sources of sizes, and free frames. */
typedef struct {
  PyObject_HEAD
  CodeObject *code;
  SymbolSource *sources;
  Py_ssize_t num_sources;
  int32_t num_inputs, num_outputs;
  int32_t *state_inputs; /* for each output the input in the same buffer, with the value before the call, or -1 */
  PyObject *new_frame; /* new_frame() returns a new frame */
  FrameObject **frames;
  Py_ssize_t num_frames, max_frames;
} PlanObject;

extern PyType_Spec byoc_code_spec, byoc_frame_spec, byoc_plan_spec, byoc_entry_spec, byoc_bound_spec;
extern PyMethodDef byoc_threads_methods[];
extern PyTypeObject *byoc_code_type, *byoc_frame_type, *byoc_plan_type;

/* Add the types of native_function.c to the module; return -1 with an exception. */
int byoc_add_native_types(PyObject *module);

/* Fill in the registers and sizes of a code from tuples; return -1 with an exception. */
int byoc_read_registers(CodeObject *code, PyObject *registers);
int byoc_read_sizes(CodeObject *code, PyObject *sizes);
void byoc_free_registers(CodeObject *code);

/* Compute all sizes from the sizes of the symbols in the frame's table; then set the shape and address of each register
 * and allocate the arena. Both return 0, without an exception, if a size has no value or memory is missing. */
int byoc_frame_compute(FrameObject *frame);
int byoc_frame_lay_out(FrameObject *frame);

/* Point registers from `first` on to the data of arrays of equal rank (NULL: leave a register unchanged); then move the
 * views of these registers. */
void byoc_frame_point(FrameObject *frame, int32_t first, PyObject *const *arrays, Py_ssize_t count);
void byoc_frame_point_views(FrameObject *frame);

/* Release the arrays made for Python's steps: the arrays of arguments and of views of arguments; all arrays. */
void byoc_frame_release_arguments(FrameObject *frame);
void byoc_frame_release_arrays(FrameObject *frame);

/* Return a new reference to a register as an array. */
PyObject *byoc_frame_array(FrameObject *frame, int32_t index);

/* Run a frame from an instruction on, native instructions without the interpreter lock. Return the instruction at the
 * stop, or -1 with an exception set. */
int32_t byoc_frame_run(FrameObject *frame, int32_t index);

/* Run a function to its end; return -1 with an exception. */
int byoc_frame_run_to_end(FrameObject *frame);

/* Run a function on all of its inputs. Return the result, or NULL: with an exception, or without an exception if Python
 * must run the function, for example because an array does not fit. `outputs` is NULL for new outputs; a NULL entry
 * requests a single new output. */
PyObject *byoc_plan_run(PlanObject *plan, PyObject *const *inputs, PyObject *const *outputs);

#endif /* BYOC_OBJECTS_H_ */
