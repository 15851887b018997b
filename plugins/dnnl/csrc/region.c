/* Regions: entries for the core's native call list. The latest programs, by number of threads and sizes, are found here
 * without the interpreter lock; Python supplies all other programs. */
#include "objects.h"
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

/* Results of a call. */
enum { OK = 0, FAILURE_KEPT = -1, OTHER_ARGUMENTS = -2, NO_MEMORY = -3 };

/* A program with its number of threads and sizes. */
typedef struct {
  ProgramObject *program;
  int64_t *sizes;
  int32_t num_threads; /* 0: the slot is empty or its program is dropped */
  uint64_t used;       /* time of the last use */
} Slot;

typedef struct {
  PyObject_HEAD
  int (*max_threads)(void); /* for the calling thread */
  int32_t num_tensors, num_sizes, num_kept;
  int32_t *ranks; /* of the tensors; num_sizes is the sum */
  PyObject *find;    /* find(num_threads, shapes) returns a program, or None if Python computes the call */
  PyObject *compute; /* compute(addresses, shapes) */
  PyObject *keep;    /* keep(exception) stores the exception of a failed call, by thread */
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
static Slot *free_slot(RegionObject *self) {
  Slot *oldest = NULL;
  for (int32_t i = 0; i < self->num_slots; ++i) {
    Slot *slot = &self->slots[i];
    const int may_go = slot->num_threads == 0 || self->num_slots >= self->num_kept;
    const int is_idle = !slot->program || !slot->program->num_calls;
    if (may_go && is_idle && (!oldest || slot->used < oldest->used)) oldest = slot;
  }
  if (oldest) return oldest;
  Slot *grown = realloc(self->slots, (size_t)(self->num_slots + 1) * sizeof *grown);
  if (!grown) return NULL;
  self->slots = grown;
  grown[self->num_slots] = (Slot){0};
  grown[self->num_slots].sizes = malloc((size_t)(self->num_sizes + 1) * sizeof(int64_t));
  return grown[self->num_slots].sizes ? &grown[self->num_slots++] : NULL;
}

/* With byoc_lock held: begins a call of a slot's program; the slot keeps the program until the end. */
static ProgramObject *begin(RegionObject *self, Slot *slot, Call *call) {
  slot->used = ++self->time;
  *call = byoc_begin(slot->program);
  return slot->program;
}

/* With Python's lock held: stores a program, and begins a call of the stored program; NULL if out of memory. */
static ProgramObject *keep_program(RegionObject *self, ProgramObject *program, int32_t num_threads,
                                   const int64_t *sizes, Call *call) {
  ProgramObject *before = NULL;
  byoc_lock();
  Slot *slot = find_slot(self, num_threads, sizes); /* another thread may have stored a program before */
  if (!slot && (slot = free_slot(self))) {
    before = slot->program;
    slot->program = (ProgramObject *)Py_NewRef((PyObject *)program);
    slot->num_threads = num_threads;
    memcpy(slot->sizes, sizes, (size_t)self->num_sizes * sizeof *sizes);
  }
  program = slot ? begin(self, slot, call) : NULL;
  byoc_unlock();
  Py_XDECREF((PyObject *)before);
  return program;
}

static void keep_exception(RegionObject *self) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value && traceback) (void)PyException_SetTraceback(value, traceback);
  PyObject *kept = value ? PyObject_CallFunctionObjArgs(self->keep, value, NULL) : NULL;
  Py_XDECREF(kept);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  PyErr_Clear();
}

static void keep_failure(RegionObject *self, ProgramObject *program, const Failure *failure) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *error = PyObject_CallFunction(program->error, "iii", failure->what, failure->step, failure->status);
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  keep_exception(self);
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
static int32_t ask_python(RegionObject *self, int32_t num_threads, const int64_t *sizes, const TVMFFIAny *args,
                          ProgramObject **program, Call *call) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *shapes = shapes_of(args, self->num_tensors);
  PyObject *found = shapes ? PyObject_CallFunction(self->find, "iO", num_threads, shapes) : NULL;
  int is_good = found != NULL;
  if (found && found != Py_None) {
    is_good = 0;
    if (!PyObject_TypeCheck(found, byoc_program_type)) {
      PyErr_SetString(PyExc_TypeError, "`find` returned no program");
    } else if (((ProgramObject *)found)->num_tensors > self->num_tensors) {
      PyErr_SetString(PyExc_ValueError, "`find` returned a program of other tensors");
    } else {
      *program = keep_program(self, (ProgramObject *)found, num_threads, sizes, call);
      if (!(is_good = *program != NULL)) PyErr_NoMemory();
    }
  }
  if (!is_good) keep_exception(self);
  Py_XDECREF(shapes);
  Py_XDECREF(found);
  PyGILState_Release(state);
  return is_good ? OK : FAILURE_KEPT;
}

/* Lets Python compute the results. */
static int32_t compute(RegionObject *self, const TVMFFIAny *args) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *shapes = shapes_of(args, self->num_tensors), *addresses = addresses_of(args, self->num_tensors);
  PyObject *done = NULL;
  if (shapes && addresses) done = PyObject_CallFunctionObjArgs(self->compute, addresses, shapes, NULL);
  const int is_done = done != NULL;
  if (!is_done) keep_exception(self);
  Py_XDECREF(shapes);
  Py_XDECREF(addresses);
  Py_XDECREF(done);
  PyGILState_Release(state);
  return is_done ? OK : FAILURE_KEPT;
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
  enum { FEW_TENSORS = 32 };
  void *few[FEW_TENSORS], **tensors = few;
  Failure failure = {IN_ALLOCATION, 0, 0};
  int end = FAILED;
  if (self->num_tensors > FEW_TENSORS) tensors = malloc((size_t)self->num_tensors * sizeof *tensors);
  if (tensors) {
    for (int32_t i = 0; i < self->num_tensors; ++i) tensors[i] = byoc_data(&args[i]);
    end = byoc_run(program, call, tensors, &failure);
  }
  if (end == FAILED) keep_failure(self, program, &failure);
  if (tensors != few) free(tensors);
  byoc_end(program, call);
  if (end == STOPPED) return compute(self, args);
  return end == DONE ? OK : FAILURE_KEPT;
}

static int32_t run_for(RegionObject *self, int32_t num_threads, const int64_t *sizes, const TVMFFIAny *args) {
  Call call;
  byoc_lock();
  Slot *slot = find_slot(self, num_threads, sizes);
  ProgramObject *program = slot ? begin(self, slot, &call) : NULL;
  byoc_unlock();
  if (!program) {
    const int32_t status = ask_python(self, num_threads, sizes, args, &program, &call);
    if (status != OK) return status;
  }
  return program ? run_program(self, program, &call, args) : compute(self, args);
}

static int32_t call_region(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  enum { FEW_SIZES = 32 };
  RegionObject *self = context;
  int64_t few[FEW_SIZES], *sizes = few;
  (void)result;
  if (num_args != self->num_tensors) return OTHER_ARGUMENTS;
  if (self->num_sizes > FEW_SIZES && !(sizes = malloc((size_t)self->num_sizes * sizeof *sizes))) return NO_MEMORY;
  int32_t status = OTHER_ARGUMENTS;
  if (read_sizes(self, args, sizes)) status = run_for(self, self->max_threads(), sizes, args);
  if (sizes != few) free(sizes);
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
  static char *names[] = {"max_threads", "ranks", "num_kept", "find", "compute", "keep", NULL};
  PyObject *ranks, *find, *compute_, *keep;
  unsigned long long max_threads;
  int num_kept;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KO!iOOO", names, &max_threads, &PyTuple_Type, &ranks, &num_kept,
                                   &find, &compute_, &keep))
    return NULL;
  if (!max_threads) {
    PyErr_SetString(PyExc_ValueError, "the number of threads is unknown");
    return NULL;
  }
  RegionObject *self = (RegionObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->max_threads = (int (*)(void))(uintptr_t)max_threads;
  self->num_kept = num_kept;
  self->find = Py_NewRef(find);
  self->compute = Py_NewRef(compute_);
  self->keep = Py_NewRef(keep);
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
  Py_VISIT(self->keep);
  for (int32_t i = 0; i < self->num_slots; ++i) Py_VISIT(self->slots[i].program);
  return 0;
}

static int region_clear(RegionObject *self) {
  Py_CLEAR(self->find);
  Py_CLEAR(self->compute);
  Py_CLEAR(self->keep);
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

static PyObject *region_tick(RegionObject *self, PyObject *none) {
  byoc_lock();
  const uint64_t time = ++self->time;
  byoc_unlock();
  return PyLong_FromUnsignedLongLong(time);
}

/* With byoc_lock held: returns the slot of a program, or NULL. */
static Slot *slot_of(RegionObject *self, PyObject *program) {
  for (int32_t i = 0; i < self->num_slots; ++i)
    if ((PyObject *)self->slots[i].program == program) return &self->slots[i];
  return NULL;
}

static PyObject *region_last_use(RegionObject *self, PyObject *program) {
  byoc_lock();
  const Slot *slot = slot_of(self, program);
  const uint64_t time = slot ? slot->used : 0;
  byoc_unlock();
  return PyLong_FromUnsignedLongLong(time);
}

static PyObject *region_drop(RegionObject *self, PyObject *program) {
  byoc_lock();
  Slot *slot = slot_of(self, program);
  ProgramObject *dropped = NULL;
  if (slot) {
    slot->num_threads = 0;
    if (!slot->program->num_calls) {
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
    {Py_tp_doc, "Region(max_threads, ranks, num_kept, find, compute, keep)\n--\n\n"
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
