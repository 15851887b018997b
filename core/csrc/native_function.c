/* Calls of functions by a native machine (native_machine.h): numpy arrays in, numpy arrays out. */
#include "native_function.h"

#include <string.h>

#include "threads.h"

static const char RESULT_NAME[] = "byoc_native_result";

/* ---- Programs ---------------------------------------------------------------------------------------------------- */

PyTypeObject *byoc_native_function_type;
static PyTypeObject *program_type;

/* Return the machine's last error in this thread; names in the text may be any bytes. */
static PyObject *last_error(const byoc_native_machine *machine) {
  const char *text = machine->last_error();
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

void byoc_raise_last(const byoc_native_machine *machine) {
  PyObject *text = last_error(machine);
  if (text) PyErr_SetObject(PyExc_RuntimeError, text);
  Py_XDECREF(text);
}

static const byoc_native_machine *machine_at(unsigned long long address) {
  const byoc_native_machine *machine = (const byoc_native_machine *)(uintptr_t)address;
  if (machine && machine->version == BYOC_NATIVE_MACHINE_VERSION) return machine;
  PyErr_Format(PyExc_RuntimeError, "the machine has another version of the interface; got %d, expected %d",
               machine ? (int)machine->version : 0, BYOC_NATIVE_MACHINE_VERSION);
  return NULL;
}

/* Load with the interpreter lock: another thread cannot fork while the machine holds its locks. */
static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"machine", "data", "runtimes", NULL};
  unsigned long long address;
  PyObject *data, *runtimes;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KOO!", names, &address, &data, &PyTuple_Type, &runtimes)) return NULL;
  const byoc_native_machine *machine = machine_at(address);
  if (!machine) return NULL;
  for (Py_ssize_t i = 0; i < PyTuple_Size(runtimes); ++i) {
    const char *path = PyBytes_AsString(PyTuple_GetItem(runtimes, i));
    if (!path) return NULL;
    if (machine->add_runtime(path)) {
      byoc_raise_last(machine);
      return NULL;
    }
  }
  ProgramObject *self = (ProgramObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->machine = machine;
  if (PyObject_GetBuffer(data, &self->data, PyBUF_SIMPLE)) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  if (machine->load(self->data.buf, (size_t)self->data.len, &self->program)) {
    byoc_raise_last(machine);
    self->program = NULL;
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  return (PyObject *)self;
}

static void program_dealloc(ProgramObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  if (self->program) self->machine->unload(self->program);
  if (self->data.obj) PyBuffer_Release(&self->data);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyType_Slot program_slots[] = {
    {Py_tp_doc, "NativeProgram(machine, data, runtimes)\n--\n\nAn artifact loaded by the native machine at an address."},
    {Py_tp_new, program_new},
    {Py_tp_dealloc, program_dealloc},
    {0, NULL},
};

static PyType_Spec program_spec = {"byoc_core._native.NativeProgram", sizeof(ProgramObject), 0, Py_TPFLAGS_DEFAULT,
                                        program_slots};

/* ---- Functions --------------------------------------------------------------------------------------------------- */

static int read_argument(PyObject *item, Argument *out) {
  int code, bits, ndim;
  PyArray_Descr *descr;
  if (!PyArg_ParseTuple(item, "iiiO!;an argument is (dtype code, bits, rank, dtype)", &code, &bits, &ndim,
                        &PyArrayDescr_Type, &descr))
    return -1;
  if (ndim < 0 || ndim > BYOC_MAX_NDIM) {
    PyErr_SetString(PyExc_ValueError, "an argument has too many axes");
    return -1;
  }
  Py_INCREF((PyObject *)descr);
  *out = (Argument){{(uint8_t)code, (uint8_t)bits, 1}, ndim, descr};
  return 0;
}

int byoc_read_arguments(PyObject *items, Argument *out) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(items); ++i)
    if (read_argument(PyTuple_GetItem(items, i), &out[i])) return -1;
  return 0;
}

void byoc_free_arguments(Argument *arguments, int32_t count) {
  for (int32_t i = 0; arguments && i < count; ++i) Py_XDECREF((PyObject *)arguments[i].descr);
  PyMem_Free(arguments);
}

static int find_function(FunctionObject *self, const char *name) {
  const byoc_native_machine *machine = self->program->machine;
  int32_t num_inputs, num_outputs;
  if (machine->find_function(self->program->program, name, &num_inputs, &num_outputs, &self->function)) {
    byoc_raise_last(machine);
    return -1;
  }
  if (num_inputs == self->num_inputs && num_outputs == self->num_outputs) return 0;
  PyErr_SetString(PyExc_RuntimeError, "the function has another number of inputs or outputs");
  return -1;
}

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"program", "name", "inputs", "outputs", "num_threads", "unfit", "refused", NULL};
  PyObject *program, *inputs, *outputs, *unfit, *refused;
  const char *name;
  int num_threads;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!sO!O!iOO", names, program_type, &program, &name, &PyTuple_Type,
                                   &inputs, &PyTuple_Type, &outputs, &num_threads, &unfit, &refused))
    return NULL;
  FunctionObject *self = (FunctionObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->program = (ProgramObject *)Py_NewRef(program);
  self->num_inputs = (int32_t)PyTuple_Size(inputs);
  self->num_outputs = (int32_t)PyTuple_Size(outputs);
  self->num_threads = num_threads;
  self->unfit = Py_NewRef(unfit);
  self->refused = Py_NewRef(refused);
  self->arguments = PyMem_Calloc((size_t)self->num_inputs + (size_t)self->num_outputs + 1, sizeof *self->arguments);
  if (!self->arguments) PyErr_NoMemory();
  if (!self->arguments || byoc_read_arguments(inputs, self->arguments) ||
      byoc_read_arguments(outputs, self->arguments + self->num_inputs) || find_function(self, name)) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  return (PyObject *)self;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

enum { STACK_ARGUMENTS = 16, STACK_DIMS = 64 };

/* The arguments of a call in DLPack's form. */
typedef struct {
  DLTensor *tensors;
  DLTensor **pointers;
  int64_t *dims;
  void *block; /* the tables of a call with many arguments, or NULL */
  DLTensor stack_tensors[STACK_ARGUMENTS], *stack_pointers[STACK_ARGUMENTS];
  int64_t stack_dims[STACK_DIMS];
} Tables;

/* Provide tables for arguments with `num_dims` axes in all; return -1 with an exception. */
static int provide_tables(Tables *tables, size_t count, size_t num_dims) {
  tables->block = NULL;
  tables->tensors = tables->stack_tensors;
  tables->pointers = tables->stack_pointers;
  tables->dims = tables->stack_dims;
  if (count <= STACK_ARGUMENTS && num_dims <= STACK_DIMS) return 0;
  char *block = PyMem_Calloc(1, count * (sizeof(DLTensor) + sizeof(DLTensor *)) + num_dims * sizeof(int64_t));
  if (!block) {
    PyErr_NoMemory();
    return -1;
  }
  tables->block = block;
  tables->tensors = (DLTensor *)block;
  tables->dims = (int64_t *)(tables->tensors + count);
  tables->pointers = (DLTensor **)(tables->dims + num_dims);
  return 0;
}

/* Return whether a value is a compact and aligned array of an argument's dtype and rank. */
static int fits(const Argument *argument, PyObject *value) {
  enum { REQUIRED = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED };
  if (!PyArray_CheckExact(value)) return 0;
  PyArrayObject *array = (PyArrayObject *)value;
  if (PyArray_NDIM(array) != argument->ndim || (PyArray_FLAGS(array) & REQUIRED) != REQUIRED) return 0;
  return PyArray_DESCR(array) == argument->descr || PyArray_EquivTypes(PyArray_DESCR(array), argument->descr);
}

/* Describe arrays that fit; return 0 if one does not. */
static int describe(const Argument *arguments, PyObject *const *arrays, int32_t count, int32_t num_inputs,
                    Tables *tables) {
  int64_t *dims = tables->dims;
  for (int32_t i = 0; i < count; ++i) {
    if (!fits(&arguments[i], arrays[i])) return 0;
    PyArrayObject *array = (PyArrayObject *)arrays[i];
    if (i >= num_inputs && !PyArray_ISWRITEABLE(array)) return 0;
    tables->tensors[i] = (DLTensor){.data = PyArray_DATA(array),
                                    .device = {kDLCPU, 0},
                                    .ndim = arguments[i].ndim,
                                    .dtype = arguments[i].dtype,
                                    .shape = dims};
    tables->pointers[i] = &tables->tensors[i];
    for (int32_t axis = 0; axis < arguments[i].ndim; ++axis) *dims++ = PyArray_DIM(array, axis);
  }
  return 1;
}

/* Let Python handle signals during a call without the interpreter lock; nonzero: a handler has raised. */
static int32_t check_signals(void *context) {
  PyThreadState **state = context;
  PyEval_RestoreThread(*state);
  const int has_raised = PyErr_CheckSignals();
  *state = PyEval_SaveThread();
  return has_raised;
}

/* Run a function on arguments in this thread without the interpreter lock. */
static int32_t run_unlocked(const FunctionObject *self, void *state, Tables *tables,
                            struct DLManagedTensorVersioned **results, const byoc_pause *pause) {
  const byoc_native_machine *machine = self->program->machine;
  const DLTensor *const *inputs = (const DLTensor *const *)tables->pointers;
  DLTensor *const *outputs = tables->pointers + self->num_inputs;
  const int32_t num_inputs = self->num_inputs, num_outputs = self->num_outputs;
  if (!state)
    return results ? machine->run(self->function, inputs, num_inputs, results, num_outputs, pause)
                   : machine->run_into(self->function, inputs, num_inputs, outputs, num_outputs, pause);
  return results ? machine->run_state(state, inputs, num_inputs, results, num_outputs, pause)
                 : machine->run_state_into(state, inputs, num_inputs, outputs, num_outputs, pause);
}

/* Run a function on arguments; `results` is NULL if outputs follow the inputs. */
static int32_t run(const FunctionObject *self, void *state, Tables *tables,
                   struct DLManagedTensorVersioned **results) {
  const byoc_call call = self->num_threads < 0 ? (byoc_call){0} : byoc_threads_enter(self->num_threads);
  PyThreadState *thread = PyEval_SaveThread();
  const byoc_pause pause = {check_signals, &thread};
  const int32_t status = run_unlocked(self, state, tables, results, &pause);
  PyEval_RestoreThread(thread);
  if (self->num_threads >= 0) byoc_threads_leave(call);
  return status;
}

static void release_result(PyObject *capsule) {
  ProgramObject *program = PyCapsule_GetContext(capsule);
  program->machine->release(PyCapsule_GetPointer(capsule, RESULT_NAME));
  Py_DECREF((PyObject *)program);
}

PyObject *byoc_adopt(ProgramObject *program, const Argument *type, struct DLManagedTensorVersioned *result) {
  const byoc_native_machine *machine = program->machine;
  const DLTensor *tensor = machine->tensor_of(result);
  npy_intp shape[BYOC_MAX_NDIM];
  for (int32_t axis = 0; axis < type->ndim; ++axis) shape[axis] = (npy_intp)tensor->shape[axis];
  PyObject *capsule = PyCapsule_New(result, RESULT_NAME, NULL);
  if (!capsule) {
    machine->release(result);
    return NULL;
  }
  (void)PyCapsule_SetContext(capsule, Py_NewRef((PyObject *)program));
  (void)PyCapsule_SetDestructor(capsule, release_result);
  Py_INCREF((PyObject *)type->descr);
  PyObject *array = PyArray_NewFromDescr(&PyArray_Type, type->descr, type->ndim, shape, NULL,
                                         (char *)tensor->data + tensor->byte_offset, NPY_ARRAY_CARRAY, NULL);
  if (!array) Py_DECREF(capsule);
  else if (PyArray_SetBaseObject((PyArrayObject *)array, capsule)) Py_CLEAR(array);
  return array;
}

/* Return a result as an array; take over the result. */
static PyObject *adopt(const FunctionObject *self, int32_t index, struct DLManagedTensorVersioned *result) {
  return byoc_adopt(self->program, &self->arguments[self->num_inputs + index], result);
}

/* Return the results as an array, or a tuple unless there is exactly one; take over the results. */
static PyObject *adopt_all(const FunctionObject *self, struct DLManagedTensorVersioned **results, int is_tuple) {
  if (self->num_outputs == 1 && !is_tuple) return adopt(self, 0, results[0]);
  PyObject *tuple = PyTuple_New(self->num_outputs);
  for (int32_t i = 0; i < self->num_outputs; ++i) {
    if (!tuple) {
      self->program->machine->release(results[i]);
      continue;
    }
    PyObject *array = adopt(self, i, results[i]);
    if (!array) Py_CLEAR(tuple);
    else (void)PyTuple_SetItem(tuple, i, array);
  }
  return tuple;
}

static size_t count_dims(const Argument *arguments, int32_t count) {
  size_t total = 0;
  for (int32_t i = 0; i < count; ++i) total += (size_t)arguments[i].ndim;
  return total;
}

typedef enum { DONE, UNFIT, REFUSED, RAISED } Outcome;

static Outcome outcome_of(int32_t status) {
  if (!status) return DONE;
  if (PyErr_Occurred()) return RAISED;
  return status == BYOC_STATE_UNAVAILABLE ? UNFIT : REFUSED;
}

/* Run a function on new results. */
static Outcome run_new(const FunctionObject *self, void *state, PyObject *const *inputs, int is_tuple,
                       PyObject **result) {
  Tables tables;
  struct DLManagedTensorVersioned *stack_results[STACK_ARGUMENTS], **results = stack_results;
  if (provide_tables(&tables, (size_t)self->num_inputs, count_dims(self->arguments, self->num_inputs))) return RAISED;
  Outcome outcome = describe(self->arguments, inputs, self->num_inputs, self->num_inputs, &tables) ? DONE : UNFIT;
  if (outcome == DONE && self->num_outputs > STACK_ARGUMENTS &&
      !(results = PyMem_Calloc((size_t)self->num_outputs, sizeof *results))) {
    PyErr_NoMemory();
    outcome = RAISED;
  }
  if (outcome == DONE) outcome = outcome_of(run(self, state, &tables, results));
  if (outcome == DONE && !(*result = adopt_all(self, results, is_tuple))) outcome = RAISED;
  if (results != stack_results) PyMem_Free(results);
  PyMem_Free(tables.block);
  return outcome;
}

/* Run a function into outputs that follow the inputs in `arrays`. */
static Outcome run_into(const FunctionObject *self, void *state, PyObject *const *arrays) {
  Tables tables;
  const int32_t count = self->num_inputs + self->num_outputs;
  if (provide_tables(&tables, (size_t)count, count_dims(self->arguments, count))) return RAISED;
  Outcome outcome = describe(self->arguments, arrays, count, self->num_inputs, &tables) ? DONE : UNFIT;
  if (outcome == DONE) outcome = outcome_of(run(self, state, &tables, NULL));
  PyMem_Free(tables.block);
  return outcome;
}

/* Call `refused(text, arguments)`. */
static PyObject *call_refused(const FunctionObject *self, PyObject *args) {
  PyObject *text = last_error(self->program->machine);
  PyObject *result = text ? PyObject_CallFunctionObjArgs(self->refused, text, args, NULL) : NULL;
  Py_XDECREF(text);
  return result;
}

static PyObject *function_call(FunctionObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *stack_inputs[STACK_ARGUMENTS], **inputs = stack_inputs, *result = NULL;
  const Py_ssize_t count = PyTuple_Size(args);
  Outcome outcome = UNFIT;
  if (self->unfit == Py_None) {
    PyErr_SetString(PyExc_TypeError, "a function with states is called by NativeState.run");
    return NULL;
  }
  if (count == self->num_inputs && (!kwargs || !PyDict_Size(kwargs))) {
    if (count > STACK_ARGUMENTS && !(inputs = PyMem_Calloc((size_t)count, sizeof *inputs))) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; ++i) inputs[i] = PyTuple_GetItem(args, i);
    outcome = run_new(self, NULL, inputs, 0, &result);
    if (inputs != stack_inputs) PyMem_Free(inputs);
  }
  if (outcome == UNFIT) return PyObject_Call(self->unfit, args, kwargs);
  return outcome == REFUSED ? call_refused(self, args) : result;
}

PyObject *byoc_run_native(const FunctionObject *self, void *state, PyObject *inputs, PyObject *outputs) {
  PyObject *result = NULL;
  const Py_ssize_t num_inputs = PyTuple_Size(inputs), num_outputs = PyTuple_Size(outputs);
  if (num_inputs != self->num_inputs || (num_outputs && num_outputs != self->num_outputs)) Py_RETURN_NONE;
  PyObject *stack_arrays[STACK_ARGUMENTS], **arrays = stack_arrays;
  if (num_inputs + num_outputs > STACK_ARGUMENTS &&
      !(arrays = PyMem_Calloc((size_t)(num_inputs + num_outputs), sizeof *arrays)))
    return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < num_inputs; ++i) arrays[i] = PyTuple_GetItem(inputs, i);
  for (Py_ssize_t i = 0; i < num_outputs; ++i) arrays[num_inputs + i] = PyTuple_GetItem(outputs, i);
  const Outcome outcome = num_outputs ? run_into(self, state, arrays) : run_new(self, state, arrays, 1, &result);
  if (arrays != stack_arrays) PyMem_Free(arrays);
  if (outcome == UNFIT) Py_RETURN_NONE;
  if (outcome == REFUSED) return last_error(self->program->machine);
  return outcome == DONE && num_outputs ? Py_NewRef(outputs) : result;
}

static PyObject *function_run(FunctionObject *self, PyObject *args) {
  PyObject *inputs, *outputs;
  if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &inputs, &PyTuple_Type, &outputs)) return NULL;
  return byoc_run_native(self, NULL, inputs, outputs);
}

static int function_traverse(FunctionObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->unfit);
  Py_VISIT(self->refused);
  return 0;
}

static int function_clear(FunctionObject *self) {
  Py_CLEAR(self->unfit);
  Py_CLEAR(self->refused);
  return 0;
}

static void function_dealloc(FunctionObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  function_clear(self);
  byoc_free_arguments(self->arguments, self->num_inputs + self->num_outputs);
  Py_XDECREF((PyObject *)self->program);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyMethodDef function_methods[] = {
    {"run", (PyCFunction)function_run, METH_VARARGS,
     "run(inputs, outputs)\n--\n\nRun the function; return the tuple of new results (no outputs given), or the outputs. "
     "None if an array does not fit; the text of the reason if the machine refuses the call, or fails."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_doc, "NativeFunction(program, name, inputs, outputs, num_threads, unfit, refused)\n--\n\nA function of a "
                "program, for callers. unfit(*arguments) is called for arguments that do not fit, and "
                "refused(reason, arguments) if the machine refuses a call, or fails; None for a function with states."},
    {Py_tp_new, function_new},
    {Py_tp_call, function_call},
    {Py_tp_methods, function_methods},
    {Py_tp_traverse, function_traverse},
    {Py_tp_clear, function_clear},
    {Py_tp_dealloc, function_dealloc},
    {0, NULL},
};

static PyType_Spec function_spec = {"byoc_core._native.NativeFunction", sizeof(FunctionObject), 0,
                                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, function_slots};

/* Add a type to the module; return a reference, or NULL with an exception. */
static PyTypeObject *add_native_type(PyObject *module, PyType_Spec *spec) {
  PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
  if (type && PyModule_AddType(module, type)) Py_CLEAR(type);
  return type;
}

int byoc_add_native_types(PyObject *module) {
  program_type = add_native_type(module, &program_spec);
  byoc_native_function_type = program_type ? add_native_type(module, &function_spec) : NULL;
  PyTypeObject *state_type = byoc_native_function_type ? add_native_type(module, &byoc_native_state_spec) : NULL;
  Py_XDECREF((PyObject *)state_type);
  return state_type ? 0 : -1;
}
