/* States of functions run by a native machine: the values kept from call to call. */
#include "native_function.h"

/* An array whose memory the machine has as the buffer of a value, until the machine releases the buffer. */
typedef struct Given {
  PyObject *array;
  struct Given **place; /* among the given arrays of the state */
} Given;

/* A state of a function. */
typedef struct {
  PyObject_HEAD
  FunctionObject *function;
  void *state;
  Argument *values; /* types, in order */
  Given **given;    /* by value; NULL: the buffer is the machine's own, or there is none */
  int32_t num_values;
} StateObject;

static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"function", "values", "overwrites", "capacity", "limit", NULL};
  PyObject *function, *values;
  const char *overwrites;
  Py_ssize_t num_overwrites;
  long long capacity, limit;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!y#LL", names, byoc_native_function_type, &function, &PyTuple_Type,
                                   &values, &overwrites, &num_overwrites, &capacity, &limit))
    return NULL;
  if (num_overwrites != PyTuple_Size(values)) {
    PyErr_SetString(PyExc_ValueError, "`overwrites` has another length than `values`");
    return NULL;
  }
  StateObject *self = (StateObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->function = (FunctionObject *)Py_NewRef(function);
  self->num_values = (int32_t)num_overwrites;
  self->values = PyMem_Calloc((size_t)num_overwrites + 1, sizeof *self->values);
  self->given = PyMem_Calloc((size_t)num_overwrites + 1, sizeof(Given *));
  if (!self->values || !self->given) PyErr_NoMemory();
  if (!self->values || !self->given || byoc_read_arguments(values, self->values)) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  const byoc_native_machine *machine = self->function->program->machine;
  const byoc_state_options options = {capacity, limit, (const uint8_t *)overwrites};
  if (machine->new_state(self->function->function, &options, &self->state)) {
    byoc_raise_last(machine);
    self->state = NULL;
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  return (PyObject *)self;
}

static void state_dealloc(StateObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  if (self->state) self->function->program->machine->free_state(self->state);
  byoc_free_arguments(self->values, self->num_values);
  PyMem_Free((void *)self->given);
  Py_XDECREF((PyObject *)self->function);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyObject *state_run(StateObject *self, PyObject *args) {
  PyObject *inputs, *outputs;
  if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &inputs, &PyTuple_Type, &outputs)) return NULL;
  return byoc_run_native(self->function, self->state, inputs, outputs);
}

static PyObject *state_size(StateObject *self, PyObject *unused) {
  (void)unused;
  const byoc_state_size size = self->function->program->machine->measure_state(self->state);
  return Py_BuildValue("LLL", (long long)size.length, (long long)size.nbytes, (long long)size.moved_nbytes);
}

/* Return a buffer as an array; take over the buffer. A given array comes back as the same array: an array around an
 * array would grow into a chain with each move. */
static PyObject *adopt_buffer(StateObject *self, int32_t index, struct DLManagedTensorVersioned *buffer) {
  if (!self->given[index]) return byoc_adopt(self->function->program, &self->values[index], buffer);
  PyObject *array = Py_NewRef(self->given[index]->array);
  self->function->program->machine->release(buffer);
  return array;
}

/* Return buffers as a tuple of arrays; take over all buffers. */
static PyObject *adopt_buffers(StateObject *self, struct DLManagedTensorVersioned **buffers) {
  PyObject *arrays = PyTuple_New(self->num_values);
  for (int32_t i = 0; i < self->num_values; ++i) {
    PyObject *array = NULL;
    if (arrays) array = adopt_buffer(self, i, buffers[i]);
    else self->function->program->machine->release(buffers[i]);
    if (!array) Py_CLEAR(arrays);
    else (void)PyTuple_SetItem(arrays, i, array);
  }
  return arrays;
}

static PyObject *tuple_of_rows(const int64_t *rows, int32_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple && i < count; ++i) {
    PyObject *number = PyLong_FromLongLong((long long)rows[i]);
    if (!number) Py_CLEAR(tuple);
    else (void)PyTuple_SetItem(tuple, i, number);
  }
  return tuple;
}

static PyObject *state_take(StateObject *self, PyObject *unused) {
  (void)unused;
  const byoc_native_machine *machine = self->function->program->machine;
  const size_t count = (size_t)self->num_values;
  char *block = PyMem_Calloc(count + 1, sizeof(struct DLManagedTensorVersioned *) + sizeof(int64_t));
  if (!block) return PyErr_NoMemory();
  int64_t *rows = (int64_t *)(void *)block;
  struct DLManagedTensorVersioned **buffers = (struct DLManagedTensorVersioned **)(void *)(rows + count);
  byoc_taken taken = BYOC_TAKEN_NONE;
  PyObject *arrays = NULL, *lengths = NULL, *result = NULL;
  if (machine->take_values(self->state, buffers, rows, &taken)) {
    byoc_raise_last(machine);
  } else {
    arrays = taken == BYOC_TAKEN_VALUES ? adopt_buffers(self, buffers) : Py_NewRef(Py_None);
    lengths = tuple_of_rows(rows, taken == BYOC_TAKEN_VALUES ? self->num_values : 0);
    const long long moved_nbytes = (long long)machine->measure_state(self->state).moved_nbytes;
    PyObject *is_spoiled = taken == BYOC_TAKEN_SPOILED ? Py_True : Py_False;
    if (arrays && lengths) result = Py_BuildValue("OOOL", is_spoiled, arrays, lengths, moved_nbytes);
  }
  Py_XDECREF(arrays);
  Py_XDECREF(lengths);
  PyMem_Free(block);
  return result;
}

/* Called by any thread, perhaps amid a call without the interpreter lock. */
static void release_given(void *context) {
  Given *given = context;
  const PyGILState_STATE state = PyGILState_Ensure();
  if (*given->place == given) *given->place = NULL;
  Py_DECREF(given->array);
  PyMem_Free(given);
  PyGILState_Release(state);
}

/* Describe an array; return the place behind its sizes, or NULL with an exception. The context is still to be set. */
static int64_t *describe_value(const Argument *type, PyObject *value, PyObject *rows, int64_t *dims,
                               byoc_state_value *described) {
  enum { REQUIRED = NPY_ARRAY_CARRAY };
  PyArrayObject *array = (PyArrayObject *)value;
  if (!PyArray_CheckExact(value) || PyArray_NDIM(array) != type->ndim ||
      (PyArray_FLAGS(array) & REQUIRED) != REQUIRED || !PyArray_EquivTypes(PyArray_DESCR(array), type->descr)) {
    PyErr_SetString(PyExc_ValueError, "a buffer of a state has another type, or is not compact");
    return NULL;
  }
  *described = (byoc_state_value){.release = release_given, .rows = PyLong_AsLongLong(rows)};
  described->buffer = (DLTensor){.data = PyArray_DATA(array),
                                 .device = {kDLCPU, 0},
                                 .ndim = type->ndim,
                                 .dtype = type->dtype,
                                 .shape = dims};
  for (int32_t axis = 0; axis < type->ndim; ++axis) *dims++ = PyArray_DIM(array, axis);
  return PyErr_Occurred() ? NULL : dims;
}

/* Return a context for an array, to stand at a place among the given arrays; NULL with an exception. */
static Given *new_given(PyObject *array, Given **place) {
  Given *given = PyMem_Calloc(1, sizeof *given);
  if (given) *given = (Given){Py_NewRef(array), place};
  else PyErr_NoMemory();
  return given;
}

static int give(StateObject *self, PyObject *arrays, PyObject *rows) {
  const byoc_native_machine *machine = self->function->program->machine;
  size_t num_dims = 0;
  for (int32_t i = 0; i < self->num_values; ++i) num_dims += (size_t)self->values[i].ndim;
  byoc_state_value *values =
      PyMem_Calloc(1, (size_t)self->num_values * sizeof *values + (num_dims + 1) * sizeof(int64_t));
  if (!values) {
    PyErr_NoMemory();
    return -1;
  }
  int64_t *dims = (int64_t *)(void *)(values + self->num_values);
  for (int32_t i = 0; i < self->num_values && dims; ++i)
    dims = describe_value(&self->values[i], PyTuple_GetItem(arrays, i), PyTuple_GetItem(rows, i), dims, &values[i]);
  int status = dims ? 0 : -1;
  int32_t count = 0;
  for (; count < self->num_values && !status; ++count) {
    values[count].context = new_given(PyTuple_GetItem(arrays, count), &self->given[count]);
    if (!values[count].context) status = -1;
  }
  if (!status && machine->give_values(self->state, values)) {
    byoc_raise_last(machine);
    status = -1;
  }
  for (int32_t i = 0; i < count; ++i) {
    if (!status) self->given[i] = values[i].context;
    else if (values[i].context) release_given(values[i].context);
  }
  PyMem_Free(values);
  return status;
}

static PyObject *state_give(StateObject *self, PyObject *args) {
  PyObject *arrays, *rows;
  const byoc_native_machine *machine = self->function->program->machine;
  if (!PyArg_ParseTuple(args, "OO!", &arrays, &PyTuple_Type, &rows)) return NULL;
  if (arrays == Py_None) {
    if (machine->give_values(self->state, NULL)) {
      byoc_raise_last(machine);
      return NULL;
    }
    Py_RETURN_NONE;
  }
  if (!PyTuple_Check(arrays) || PyTuple_Size(arrays) != self->num_values || PyTuple_Size(rows) != self->num_values) {
    PyErr_SetString(PyExc_ValueError, "a buffer and its rows are expected for each value");
    return NULL;
  }
  if (give(self, arrays, rows)) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef state_methods[] = {
    {"run", (PyCFunction)state_run, METH_VARARGS,
     "run(inputs, outputs)\n--\n\nRun the function on the state; as NativeFunction.run. After a refusal or failure the "
     "values are the values before the call; after an exception of a signal handler the state is spoiled."},
    {"size", (PyCFunction)state_size, METH_NOARGS,
     "size()\n--\n\nReturn the longest moving length, the bytes of all buffers, and the bytes copied to larger buffers "
     "since values were given."},
    {"take", (PyCFunction)state_take, METH_NOARGS,
     "take()\n--\n\nTake the values; return whether the state is spoiled, the buffers (None: no values), the rows in "
     "use, and the bytes copied to larger buffers. RuntimeError during a call."},
    {"give", (PyCFunction)state_give, METH_VARARGS,
     "give(buffers, rows)\n--\n\nGive values: compact buffers, and the rows in use. None: the next call is the first."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot state_slots[] = {
    {Py_tp_doc, "NativeState(function, values, overwrites, capacity, limit)\n--\n\nThe values of a function kept from "
                "call to call by a native machine. overwrites: a byte for each value, nonzero if calls overwrite "
                "elements of the old value."},
    {Py_tp_new, state_new},
    {Py_tp_dealloc, state_dealloc},
    {Py_tp_methods, state_methods},
    {0, NULL},
};

PyType_Spec byoc_native_state_spec = {"byoc_core._native.NativeState", sizeof(StateObject), 0, Py_TPFLAGS_DEFAULT,
                                      state_slots};
