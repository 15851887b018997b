/* Regions: entries for the core's native call list. The latest programs, by number of threads and sizes, are found here
 * without the interpreter lock; Python supplies all other programs. */
#include "objects.h"
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

/* Results of a call. */
enum { OK = 0, FAILURE_STORED = -1, MISMATCHED_ARGUMENTS = -2, NO_MEMORY = -3 };

/* A program with its number of threads and sizes. */
typedef struct {
  ProgramObject *program;
  int64_t *sizes;
  int32_t num_threads; /* 0: the slot is empty or its program is dropped */
  uint64_t last_use;   /* time of the last use */
} Slot;

typedef struct {
  PyObject_HEAD
  int (*max_threads)(void); /* for the calling thread */
  int32_t num_tensors, num_sizes, max_programs;
  int32_t *ranks; /* of the tensors; num_sizes is the sum */
  PyObject *find;            /* find(num_threads, shapes) returns a program, or None if Python computes the call */
  PyObject *compute;         /* compute(addresses, shapes) */
  PyObject *store_exception; /* store_exception(exception) stores the exception of a failed call, by thread */
  /* Changed with both locks held, Python's and byoc_lock; read with byoc_lock held. */
  Slot *slots;
  int32_t num_slots;
  uint64_t time; /* increases with each call */
} RegionObject;

/* With byoc_lock held. */
static Slot *find_slot(RegionObject *self, int32_t num_threads, const int64_t *sizes) {
  for (int32_t i = 0; i < self->num_slots; ++i) {
    Slot *slot = &self->slots[i];
    if (slot->num_threads == num_threads && !memcmp(slot->sizes, sizes, (size_t)self->num_sizes * sizeof *sizes))
      return slot;
  }
  return NULL;
}

/* With both locks held: returns a slot for another program; NULL if out of memory. */
static Slot *find_free_slot(RegionObject *self) {
  Slot *oldest = NULL;
  for (int32_t i = 0; i < self->num_slots; ++i) {
    Slot *slot = &self->slots[i];
    const int is_replaceable = slot->num_threads == 0 || self->num_slots >= self->max_programs;
    const int is_idle = !slot->program || !slot->program->program.num_calls;
    if (is_replaceable && is_idle && (!oldest || slot->last_use < oldest->last_use)) oldest = slot;
  }
  if (oldest) return oldest;
  Slot *slots = realloc(self->slots, (size_t)(self->num_slots + 1) * sizeof *slots);
  if (!slots) return NULL;
  self->slots = slots;
  slots[self->num_slots] = (Slot){0};
  slots[self->num_slots].sizes = malloc((size_t)(self->num_sizes + 1) * sizeof(int64_t));
  return slots[self->num_slots].sizes ? &slots[self->num_slots++] : NULL;
}

/* With byoc_lock held: begins a call of a slot's program; the slot keeps the program until the end. */
static ProgramObject *begin(RegionObject *self, Slot *slot, Call *call) {
  slot->last_use = ++self->time;
  *call = byoc_begin(&slot->program->program);
  return slot->program;
}

/* With Python's lock held: stores a program, and begins a call of the stored program; NULL if out of memory. */
static ProgramObject *store_program(RegionObject *self, ProgramObject *program, int32_t num_threads,
                                    const int64_t *sizes, Call *call) {
  ProgramObject *replaced = NULL;
  byoc_lock();
  Slot *slot = find_slot(self, num_threads, sizes); /* another thread may have stored a program before */
  if (!slot && (slot = find_free_slot(self))) {
    replaced = slot->program;
    slot->program = (ProgramObject *)Py_NewRef((PyObject *)program);
    slot->num_threads = num_threads;
    memcpy(slot->sizes, sizes, (size_t)self->num_sizes * sizeof *sizes);
  }
  program = slot ? begin(self, slot, call) : NULL;
  byoc_unlock();
  Py_XDECREF((PyObject *)replaced);
  return program;
}

static void record_exception(RegionObject *self) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value && traceback) (void)PyException_SetTraceback(value, traceback);
  PyObject *result = value ? PyObject_CallFunctionObjArgs(self->store_exception, value, NULL) : NULL;
  Py_XDECREF(result);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  PyErr_Clear();
}

static void record_failure(RegionObject *self, ProgramObject *program, const Failure *failure) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *error = PyObject_CallFunction(program->error, "iii", failure->operation, failure->step, failure->status);
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  record_exception(self);
  PyGILState_Release(state);
}

/* Converts tensors for Python; NULL with an exception set. */
static PyObject *shapes_of(const TVMFFIAny *args, int32_t num_args) {
  PyObject *shapes = PyTuple_New(num_args);
  for (int32_t i = 0; shapes && i < num_args; ++i) {
    const DLTensor *tensor = args[i].tensor;
    PyObject *shape = PyTuple_New(tensor->ndim);
    for (int32_t axis = 0; shape && axis < tensor->ndim; ++axis) {
      PyObject *size = PyLong_FromLongLong(tensor->shape[axis]);
      if (!size || PyTuple_SetItem(shape, axis, size)) Py_CLEAR(shape);
    }
    if (!shape || PyTuple_SetItem(shapes, i, shape)) Py_CLEAR(shapes);
  }
  return shapes;
}

static PyObject *addresses_of(const TVMFFIAny *args, int32_t num_args) {
  PyObject *addresses = PyTuple_New(num_args);
  for (int32_t i = 0; addresses && i < num_args; ++i) {
    PyObject *address = PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)byoc_data(&args[i]));
    if (!address || PyTuple_SetItem(addresses, i, address)) Py_CLEAR(addresses);
  }
  return addresses;
}

/* Finds a program in Python, and begins a call; NULL if Python computes the call. Not OK: an exception is stored. */
static int32_t find_in_python(RegionObject *self, int32_t num_threads, const int64_t *sizes, const TVMFFIAny *args,
                              ProgramObject **program, Call *call) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *shapes = shapes_of(args, self->num_tensors);
  PyObject *answer = shapes ? PyObject_CallFunction(self->find, "iO", num_threads, shapes) : NULL;
  int has_succeeded = answer != NULL;
  if (answer && answer != Py_None) {
    has_succeeded = 0;
    if (!PyObject_TypeCheck(answer, byoc_program_type)) {
      PyErr_SetString(PyExc_TypeError, "`find` returned no program");
    } else if (((ProgramObject *)answer)->program.num_tensors > self->num_tensors) {
      PyErr_SetString(PyExc_ValueError, "`find` returned a program of other tensors");
    } else {
      *program = store_program(self, (ProgramObject *)answer, num_threads, sizes, call);
      if (!(has_succeeded = *program != NULL)) PyErr_NoMemory();
    }
  }
  if (!has_succeeded) record_exception(self);
  Py_XDECREF(shapes);
  Py_XDECREF(answer);
  PyGILState_Release(state);
  return has_succeeded ? OK : FAILURE_STORED;
}

/* Lets Python compute the results. */
static int32_t compute(RegionObject *self, const TVMFFIAny *args) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *shapes = shapes_of(args, self->num_tensors), *addresses = addresses_of(args, self->num_tensors);
  PyObject *result = NULL;
  if (shapes && addresses) result = PyObject_CallFunctionObjArgs(self->compute, addresses, shapes, NULL);
  const int has_result = result != NULL;
  if (!has_result) record_exception(self);
  Py_XDECREF(shapes);
  Py_XDECREF(addresses);
  Py_XDECREF(result);
  PyGILState_Release(state);
  return has_result ? OK : FAILURE_STORED;
}

/* Reads the sizes of all axes; returns 0 if a tensor has another rank. */
static int read_sizes(const RegionObject *self, const TVMFFIAny *args, int64_t *sizes) {
  for (int32_t i = 0; i < self->num_tensors; ++i) {
    const DLTensor *tensor = args[i].tensor;
    if (tensor->ndim != self->ranks[i]) return 0;
    for (int32_t axis = 0; axis < tensor->ndim; ++axis) *sizes++ = tensor->shape[axis];
  }
  return 1;
}

static int32_t run_program(RegionObject *self, ProgramObject *program, Call *call, const TVMFFIAny *args) {
  enum { MAX_STACK_TENSORS = 32 };
  void *stack_tensors[MAX_STACK_TENSORS], **tensors = stack_tensors;
  Failure failure = {IN_ALLOCATION, 0, 0};
  int outcome = FAILED;
  if (self->num_tensors > MAX_STACK_TENSORS) tensors = malloc((size_t)self->num_tensors * sizeof *tensors);
  if (tensors) {
    for (int32_t i = 0; i < self->num_tensors; ++i) tensors[i] = byoc_data(&args[i]);
    outcome = byoc_run(&program->program, call, tensors, &failure);
  }
  if (outcome == FAILED) record_failure(self, program, &failure);
  if (tensors != stack_tensors) free(tensors);
  byoc_end(&program->program, call);
  if (outcome == STOPPED) return compute(self, args);
  return outcome == DONE ? OK : FAILURE_STORED;
}

static int32_t run_for(RegionObject *self, int32_t num_threads, const int64_t *sizes, const TVMFFIAny *args) {
  Call call;
  byoc_lock();
  Slot *slot = find_slot(self, num_threads, sizes);
  ProgramObject *program = slot ? begin(self, slot, &call) : NULL;
  byoc_unlock();
  if (!program) {
    const int32_t status = find_in_python(self, num_threads, sizes, args, &program, &call);
    if (status != OK) return status;
  }
  return program ? run_program(self, program, &call, args) : compute(self, args);
}

static int32_t call_region(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  enum { MAX_STACK_SIZES = 32 };
  RegionObject *self = context;
  int64_t stack_sizes[MAX_STACK_SIZES], *sizes = stack_sizes;
  (void)result;
  if (num_args != self->num_tensors) return MISMATCHED_ARGUMENTS;
  if (self->num_sizes > MAX_STACK_SIZES && !(sizes = malloc((size_t)self->num_sizes * sizeof *sizes))) return NO_MEMORY;
  int32_t status = MISMATCHED_ARGUMENTS;
  if (read_sizes(self, args, sizes)) status = run_for(self, self->max_threads(), sizes, args);
  if (sizes != stack_sizes) free(sizes);
  return status;
}

static int read_ranks(RegionObject *self, PyObject *ranks) {
  const Py_ssize_t count = PyTuple_Size(ranks);
  if (count > INT32_MAX || !(self->ranks = PyMem_Calloc((size_t)count + 1, sizeof *self->ranks)))
    return PyErr_NoMemory(), -1;
  self->num_tensors = (int32_t)count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const long rank = PyLong_AsLong(PyTuple_GetItem(ranks, i));
    if (rank == -1 && PyErr_Occurred()) return -1;
    if (rank < 0 || rank > INT32_MAX - self->num_sizes) {
      PyErr_SetString(PyExc_ValueError, "tensors have too many axes");
      return -1;
    }
    self->ranks[i] = (int32_t)rank;
    self->num_sizes += (int32_t)rank;
  }
  return 0;
}

static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"max_threads", "ranks", "max_programs", "find", "compute", "store_exception", NULL};
  PyObject *ranks, *find, *compute_callback, *store_exception;
  unsigned long long max_threads;
  int max_programs;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KO!iOOO", names, &max_threads, &PyTuple_Type, &ranks, &max_programs,
                                   &find, &compute_callback, &store_exception))
    return NULL;
  if (!max_threads) {
    PyErr_SetString(PyExc_ValueError, "the number of threads is unknown");
    return NULL;
  }
  RegionObject *self = (RegionObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->max_threads = (int (*)(void))(uintptr_t)max_threads;
  self->max_programs = max_programs;
  self->find = Py_NewRef(find);
  self->compute = Py_NewRef(compute_callback);
  self->store_exception = Py_NewRef(store_exception);
  if (read_ranks(self, ranks)) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject *)self;
}

static int region_traverse(RegionObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->find);
  Py_VISIT(self->compute);
  Py_VISIT(self->store_exception);
  for (int32_t i = 0; i < self->num_slots; ++i) Py_VISIT(self->slots[i].program);
  return 0;
}

static int region_clear(RegionObject *self) {
  Py_CLEAR(self->find);
  Py_CLEAR(self->compute);
  Py_CLEAR(self->store_exception);
  for (int32_t i = 0; i < self->num_slots; ++i) {
    Py_CLEAR(self->slots[i].program);
    free(self->slots[i].sizes);
  }
  self->num_slots = 0;
  return 0;
}

static void region_dealloc(RegionObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  region_clear(self);
  free(self->slots);
  PyMem_Free(self->ranks);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyObject *region_function(RegionObject *self, void *closure) {
  return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)&call_region);
}

static PyObject *region_context(RegionObject *self, void *closure) {
  return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)self);
}

static PyObject *region_tick(RegionObject *self, PyObject *unused) {
  byoc_lock();
  const uint64_t time = ++self->time;
  byoc_unlock();
  return PyLong_FromUnsignedLongLong(time);
}

/* With byoc_lock held: returns the slot of a program, or NULL. */
static Slot *find_program_slot(RegionObject *self, PyObject *program) {
  for (int32_t i = 0; i < self->num_slots; ++i)
    if ((PyObject *)self->slots[i].program == program) return &self->slots[i];
  return NULL;
}

static PyObject *region_last_use(RegionObject *self, PyObject *program) {
  byoc_lock();
  const Slot *slot = find_program_slot(self, program);
  const uint64_t time = slot ? slot->last_use : 0;
  byoc_unlock();
  return PyLong_FromUnsignedLongLong(time);
}

static PyObject *region_drop(RegionObject *self, PyObject *program) {
  byoc_lock();
  Slot *slot = find_program_slot(self, program);
  ProgramObject *dropped = NULL;
  if (slot) {
    slot->num_threads = 0;
    if (!slot->program->program.num_calls) {
      dropped = slot->program;
      slot->program = NULL;
    }
  }
  byoc_unlock();
  Py_XDECREF((PyObject *)dropped);
  Py_RETURN_NONE;
}

static PyMethodDef region_methods[] = {
    {"tick", (PyCFunction)region_tick, METH_NOARGS, "tick()\n--\n\nReturn a time later than all earlier times."},
    {"last_use", (PyCFunction)region_last_use, METH_O,
     "last_use(program)\n--\n\nReturn the time of the last call with a program; 0 without such a call."},
    {"drop", (PyCFunction)region_drop, METH_O, "drop(program)\n--\n\nRemove a program from later calls."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef region_getset[] = {
    {"function", (getter)region_function, NULL, "The address of the native function.", NULL},
    {"context", (getter)region_context, NULL, "The address of the context: this object.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot region_slots[] = {
    {Py_tp_doc, "Region(max_threads, ranks, max_programs, find, compute, store_exception)\n--\n\n"
                "A function of the native call list: a program for each number of threads and sizes."},
    {Py_tp_new, region_new},
    {Py_tp_methods, region_methods},
    {Py_tp_getset, region_getset},
    {Py_tp_traverse, region_traverse},
    {Py_tp_clear, region_clear},
    {Py_tp_dealloc, region_dealloc},
    {0, NULL},
};

PyType_Spec byoc_region_spec = {"byoc_dnnl._native.Region", sizeof(RegionObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, region_slots};
