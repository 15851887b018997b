/* Programs: the tables of a plan, read from Python tuples, and a pool of frames for running. */
#include "objects.h"

#include <string.h>

PyTypeObject *byoc_program_type;

static int refuse(const char *text) {
  PyErr_SetString(PyExc_ValueError, text);
  return -1;
}

static int read_address(PyObject *number, void **address) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(number);
  if (value == (unsigned long long)-1 && PyErr_Occurred()) return -1;
  *address = (void *)(uintptr_t)value;
  return 0;
}

static int read_api(ProgramObject *self, PyObject *addresses) {
  void *functions[sizeof(Api) / sizeof(void *)];
  if (PyTuple_Size(addresses) != (Py_ssize_t)(sizeof functions / sizeof *functions))
    return refuse("a program needs the address of each function");
  for (Py_ssize_t i = 0; i < PyTuple_Size(addresses); ++i) {
    if (read_address(PyTuple_GetItem(addresses, i), &functions[i])) return -1;
    if (i < NUM_REQUIRED && !functions[i]) return refuse("a function has no address");
  }
  memcpy(&self->api, functions, sizeof functions);
  return 0;
}

static int read_places(ProgramObject *self, PyObject *places) {
  const Py_ssize_t count = PyTuple_Size(places);
  if (count > INT32_MAX || !(self->places = PyMem_Calloc((size_t)count + 1, sizeof *self->places)))
    return PyErr_NoMemory(), -1;
  self->num_places = (int32_t)count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    int kind;
    unsigned long long desc;
    long long value;
    if (!PyArg_ParseTuple(PyTuple_GetItem(places, i), "KiL;a location is (desc, kind, value)", &desc, &kind, &value))
      return -1;
    if (kind < 0 || kind >= NUM_KINDS || (kind == ARGUMENT && (value < 0 || value >= self->num_tensors)) ||
        (kind == ARENA && (value < 0 || value > self->arena_nbytes)))
      return refuse("a location has an unknown kind, or lies outside its memory");
    self->places[i] = (Place){(void *)(uintptr_t)desc, kind, value};
  }
  return 0;
}

static int read_execute(ProgramObject *self, Step *step, PyObject *item) {
  unsigned long long primitive;
  PyObject *arguments;
  if (!PyArg_ParseTuple(item, "iKO!;a step is (EXECUTE, primitive, arguments)", &step->op, &primitive, &PyTuple_Type,
                        &arguments))
    return -1;
  const Py_ssize_t count = PyTuple_Size(arguments);
  if (!primitive || count > INT32_MAX - self->num_arguments) return refuse("a step has no primitive");
  step->execute.primitive = (void *)(uintptr_t)primitive;
  step->execute.first = self->num_arguments;
  step->execute.count = (int32_t)count;
  Argument *grown = PyMem_Realloc(self->arguments, (size_t)(self->num_arguments + count + 1) * sizeof *grown);
  if (!grown) return PyErr_NoMemory(), -1;
  self->arguments = grown;
  for (Py_ssize_t i = 0; i < count; ++i) {
    int number, place;
    if (!PyArg_ParseTuple(PyTuple_GetItem(arguments, i), "ii;an argument is (number, location)", &number, &place))
      return -1;
    if (place < 0 || place >= self->num_places || !self->places[place].desc)
      return refuse("an argument has no location with a description");
    self->arguments[self->num_arguments++] = (Argument){number, (void *)(uintptr_t)place};
  }
  return 0;
}

static int read_check(ProgramObject *self, Step *step, PyObject *item) {
  int place, width, limit;
  long long count;
  if (!PyArg_ParseTuple(item, "iiLii;a step is (CHECK, location, count, width, limit)", &step->op, &place, &count, &width,
                        &limit))
    return -1;
  if (place < 0 || place >= self->num_places || count < 0 || (width != 2 && width != 4) || limit < 0)
    return refuse("a check has no location, or its numbers are out of range");
  step->check.place = place;
  step->check.width = width;
  step->check.limit = limit;
  step->check.count = count;
  return 0;
}

static int read_compute(ProgramObject *self, Step *step, PyObject *item) {
  unsigned long long function;
  int source, target;
  long long rows, columns;
  if (!PyArg_ParseTuple(item, "iKiiLL;a step is (COMPUTE, function, source, target, rows, columns)", &step->op, &function,
                        &source, &target, &rows, &columns))
    return -1;
  if (!function || source < 0 || source >= self->num_places || target < 0 || target >= self->num_places || rows < 0 ||
      columns < 0 || (columns && rows > INT64_MAX / columns))
    return refuse("a step has no function or operand, or its numbers are out of range");
  step->compute.function = (VectorFunction)(uintptr_t)function;
  step->compute.source = source;
  step->compute.target = target;
  step->compute.rows = rows;
  step->compute.columns = columns;
  return 0;
}

static int read_step(ProgramObject *self, Step *step, PyObject *item) {
  const long op = PyTuple_Check(item) && PyTuple_Size(item) ? PyLong_AsLong(PyTuple_GetItem(item, 0)) : -1;
  if (op == EXECUTE) return read_execute(self, step, item);
  if (op == CHECK) return read_check(self, step, item);
  if (op == COMPUTE) return read_compute(self, step, item);
  return PyErr_Occurred() ? -1 : refuse("the kind of a step is unknown");
}

static int read_steps(ProgramObject *self, PyObject *steps) {
  const Py_ssize_t count = PyTuple_Size(steps);
  if (count > INT32_MAX || !(self->steps = PyMem_Calloc((size_t)count + 1, sizeof *self->steps)))
    return PyErr_NoMemory(), -1;
  self->num_steps = (int32_t)count;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (read_step(self, &self->steps[i], PyTuple_GetItem(steps, i))) return -1;
  return 0;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"functions", "engine", "num_tensors", "arena_nbytes", "places", "steps", "owner", "error",
                          NULL};
  PyObject *functions, *places, *steps, *owner, *error;
  unsigned long long engine;
  int num_tensors;
  long long arena_nbytes;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!KiLO!O!OO", names, &PyTuple_Type, &functions, &engine, &num_tensors,
                                   &arena_nbytes, &PyTuple_Type, &places, &PyTuple_Type, &steps, &owner, &error))
    return NULL;
  if (num_tensors < 0 || arena_nbytes < 0) return refuse("a size is negative"), NULL;
  ProgramObject *self = (ProgramObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->engine = (void *)(uintptr_t)engine;
  self->num_tensors = num_tensors;
  self->arena_nbytes = arena_nbytes;
  self->owner = Py_NewRef(owner);
  self->error = Py_NewRef(error);
  if (read_api(self, functions) || read_places(self, places) || read_steps(self, steps)) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject *)self;
}

static PyObject *program_run(ProgramObject *self, PyObject *args) {
  enum { FEW = 16 };
  void *few[FEW], **tensors = few;
  const Py_ssize_t count = PyTuple_Size(args);
  if (count < self->num_tensors) return refuse("a program needs more tensors"), NULL;
  if (count > FEW && !(tensors = PyMem_Calloc((size_t)count, sizeof *tensors))) return PyErr_NoMemory();
  int end = FAILED;
  Failure failure = {0};
  Py_ssize_t read = 0;
  while (read < count && !read_address(PyTuple_GetItem(args, read), &tensors[read])) ++read;
  if (read == count) {
    Py_BEGIN_ALLOW_THREADS;
    byoc_lock();
    Call call = byoc_begin(self);
    byoc_unlock();
    end = byoc_run(self, &call, tensors, &failure);
    byoc_end(self, &call);
    Py_END_ALLOW_THREADS;
  }
  if (tensors != few) PyMem_Free(tensors);
  if (read < count) return NULL;
  if (end != FAILED) return PyBool_FromLong(end == DONE);
  PyObject *error = PyObject_CallFunction(self->error, "iii", failure.what, failure.step, failure.status);
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

static PyObject *program_num_frames(ProgramObject *self, void *closure) {
  byoc_lock();
  const int32_t count = self->num_frames;
  byoc_unlock();
  return PyLong_FromLong(count);
}

static int program_traverse(ProgramObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->error); /* not the owner: needed until deallocation, without references to the program */
  return 0;
}

static int program_clear(ProgramObject *self) {
  Py_CLEAR(self->error);
  return 0;
}

static void program_dealloc(ProgramObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  for (Frame *frame = self->frames, *next; frame; frame = next) {
    next = frame->next;
    byoc_free_frame(self, frame);
  }
  byoc_lock();
  Arena *arenas = byoc_take_all_arenas(); /* perhaps unused from now on */
  byoc_unlock();
  byoc_free_arenas(arenas);
  program_clear(self);
  Py_CLEAR(self->owner);
  PyMem_Free(self->places);
  PyMem_Free(self->steps);
  PyMem_Free(self->arguments);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyMethodDef program_methods[] = {
    {"run", (PyCFunction)program_run, METH_VARARGS,
     "run(*addresses)\n--\n\nRun on tensors at these addresses, without the interpreter lock; return whether all checks hold."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef program_getset[] = {
    {"num_frames", (getter)program_num_frames, NULL, "The number of free frames.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_doc, "Program(functions, engine, num_tensors, arena_nbytes, places, steps, owner, error)\n--\n\n"
                "A plan with its primitives; any number of threads may run a program at once."},
    {Py_tp_new, program_new},
    {Py_tp_methods, program_methods},
    {Py_tp_getset, program_getset},
    {Py_tp_traverse, program_traverse},
    {Py_tp_clear, program_clear},
    {Py_tp_dealloc, program_dealloc},
    {0, NULL},
};

PyType_Spec byoc_program_spec = {"byoc_dnnl._native.Program", sizeof(ProgramObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, program_slots};
