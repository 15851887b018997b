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

static int read_api(Program *self, PyObject *addresses) {
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

static int read_locations(Program *self, PyObject *locations) {
  const Py_ssize_t count = PyTuple_Size(locations);
  if (count > INT32_MAX || !(self->locations = PyMem_Calloc((size_t)count + 1, sizeof *self->locations)))
    return PyErr_NoMemory(), -1;
  self->num_locations = (int32_t)count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    int kind;
    unsigned long long desc;
    long long value;
    if (!PyArg_ParseTuple(PyTuple_GetItem(locations, i), "KiL;a location is (desc, kind, value)", &desc, &kind, &value))
      return -1;
    if (kind < 0 || kind >= NUM_KINDS || (kind == ARGUMENT && (value < 0 || value >= self->num_tensors)) ||
        (kind == ARENA && (value < 0 || value > self->arena_nbytes)))
      return refuse("a location has an unknown kind, or lies outside its memory");
    self->locations[i] = (Location){(void *)(uintptr_t)desc, kind, value};
  }
  return 0;
}

static int read_execute(Program *self, Step *step, PyObject *item) {
  unsigned long long primitive;
  PyObject *arguments;
  if (!PyArg_ParseTuple(item, "iKO!;a step is (EXECUTE, primitive, arguments)", &step->op, &primitive, &PyTuple_Type,
                        &arguments))
    return -1;
  const Py_ssize_t count = PyTuple_Size(arguments);
  if (count > INT32_MAX - self->num_arguments) return refuse("a step has too many arguments");
  step->execute.primitive = (void *)(uintptr_t)primitive;
  step->execute.first = self->num_arguments;
  step->execute.count = (int32_t)count;
  const size_t num_allocated = (size_t)(self->num_arguments + count + 1);
  Argument *all_arguments = PyMem_Realloc(self->arguments, num_allocated * sizeof *all_arguments);
  if (!all_arguments) return PyErr_NoMemory(), -1;
  self->arguments = all_arguments;
  for (Py_ssize_t i = 0; i < count; ++i) {
    int number, location;
    if (!PyArg_ParseTuple(PyTuple_GetItem(arguments, i), "ii;an argument is (number, location)", &number, &location))
      return -1;
    self->arguments[self->num_arguments++] = (Argument){number, (void *)(uintptr_t)location};
  }
  return 0;
}

static int read_check(Program *self, Step *step, PyObject *item) {
  int location, width, limit;
  long long count;
  if (!PyArg_ParseTuple(item, "iiLii;a step is (CHECK, location, count, width, limit)", &step->op, &location, &count,
                        &width, &limit))
    return -1;
  step->check.location = location;
  step->check.width = width;
  step->check.limit = limit;
  step->check.count = count;
  return 0;
}

static int read_compute(Program *self, Step *step, PyObject *item) {
  unsigned long long function;
  int source, target;
  long long rows, columns;
  if (!PyArg_ParseTuple(item, "iKiiLL;a step is (COMPUTE, function, source, target, rows, columns)", &step->op,
                        &function, &source, &target, &rows, &columns))
    return -1;
  step->compute.function = (VectorFunction)(uintptr_t)function;
  step->compute.source = source;
  step->compute.target = target;
  step->compute.rows = rows;
  step->compute.columns = columns;
  return 0;
}

static int read_axis(PoolAxis *axis, PyObject *numbers) {
  long long size, count, window, stride, dilation, before;
  if (!PyArg_ParseTuple(numbers, "LLLLLL;an axis is (size, count, window, stride, dilation, before)", &size, &count,
                        &window, &stride, &dilation, &before))
    return -1;
  *axis = (PoolAxis){size, count, window, stride, dilation, before};
  return 0;
}

static int read_pool(Program *self, Step *step, PyObject *item) {
  int source, target, is_signed;
  long long images, channels;
  PyObject *rows, *columns;
  if (!PyArg_ParseTuple(item, "iiipLLO!O!;a step is (POOL, source, target, is_signed, images, channels, rows, columns)",
                        &step->op, &source, &target, &is_signed, &images, &channels, &PyTuple_Type, &rows,
                        &PyTuple_Type, &columns))
    return -1;
  step->pool.source = source;
  step->pool.target = target;
  step->pool.pooling.is_signed = is_signed;
  step->pool.pooling.images = images;
  step->pool.pooling.channels = channels;
  PoolAxis *axes = step->pool.pooling.axes;
  return read_axis(&axes[0], rows) || read_axis(&axes[1], columns) ? -1 : 0;
}

static int read_quantise(Program *self, Step *step, PyObject *item) {
  int source, target, is_signed, zero_point;
  long long images, channels, pixels;
  float scale;
  if (!PyArg_ParseTuple(
          item, "iiipLLLfi;a step is (QUANTISE, source, target, is_signed, images, channels, pixels, scale, zero_point)",
          &step->op, &source, &target, &is_signed, &images, &channels, &pixels, &scale, &zero_point))
    return -1;
  step->quantise.source = source;
  step->quantise.target = target;
  step->quantise.quantisation = (Quantisation){images, channels, pixels, is_signed, zero_point, scale};
  return 0;
}

/* Without zero points, `zeros` is any location. */
static int read_multiply(Program *self, Step *step, PyObject *item) {
  int source, words, scales, zeros, target, num_bits, max_lanes, has_zeros;
  long long rows, depth, columns, block_size;
  if (!PyArg_ParseTuple(item,
                        "iiiiiiLLLLiip;a step is (MULTIPLY, source, words, scales, zeros, target, rows, depth, columns, "
                        "block_size, num_bits, max_lanes, has_zeros)",
                        &step->op, &source, &words, &scales, &zeros, &target, &rows, &depth, &columns, &block_size,
                        &num_bits, &max_lanes, &has_zeros))
    return -1;
  step->multiply.source = source;
  step->multiply.words = words;
  step->multiply.scales = scales;
  step->multiply.zeros = zeros;
  step->multiply.target = target;
  step->multiply.product = (WeightProduct){rows, depth, columns, block_size, num_bits, max_lanes, has_zeros};
  return 0;
}

static int read_step(Program *self, Step *step, PyObject *item) {
  const long op = PyTuple_Check(item) && PyTuple_Size(item) ? PyLong_AsLong(PyTuple_GetItem(item, 0)) : -1;
  if (op == EXECUTE) return read_execute(self, step, item);
  if (op == CHECK) return read_check(self, step, item);
  if (op == COMPUTE) return read_compute(self, step, item);
  if (op == POOL) return read_pool(self, step, item);
  if (op == QUANTISE) return read_quantise(self, step, item);
  if (op == MULTIPLY) return read_multiply(self, step, item);
  return PyErr_Occurred() ? -1 : refuse("the kind of a step is unknown");
}

static int read_steps(Program *self, PyObject *steps) {
  const Py_ssize_t count = PyTuple_Size(steps);
  if (count > INT32_MAX || !(self->steps = PyMem_Calloc((size_t)count + 1, sizeof *self->steps)))
    return PyErr_NoMemory(), -1;
  self->num_steps = (int32_t)count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (read_step(self, &self->steps[i], PyTuple_GetItem(steps, i))) return -1;
    const char *fault = byoc_find_fault(self, &self->steps[i]);
    if (fault) return refuse(fault);
  }
  return 0;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"functions", "engine", "num_tensors", "arena_nbytes", "locations", "steps", "owner", "error",
                          NULL};
  PyObject *functions, *locations, *steps, *owner, *error;
  unsigned long long engine;
  int num_tensors;
  long long arena_nbytes;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!KiLO!O!OO", names, &PyTuple_Type, &functions, &engine, &num_tensors,
                                   &arena_nbytes, &PyTuple_Type, &locations, &PyTuple_Type, &steps, &owner, &error))
    return NULL;
  if (num_tensors < 0 || arena_nbytes < 0) return refuse("a size is negative"), NULL;
  ProgramObject *self = (ProgramObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->program.engine = (void *)(uintptr_t)engine;
  self->program.num_tensors = num_tensors;
  self->program.arena_nbytes = arena_nbytes;
  self->owner = Py_NewRef(owner);
  self->error = Py_NewRef(error);
  Program *program = &self->program;
  if (read_api(program, functions) || read_locations(program, locations) || read_steps(program, steps)) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject *)self;
}

static PyObject *program_run(ProgramObject *self, PyObject *args) {
  enum { MAX_STACK_TENSORS = 16 };
  void *stack_tensors[MAX_STACK_TENSORS], **tensors = stack_tensors;
  const Py_ssize_t count = PyTuple_Size(args);
  if (count < self->program.num_tensors) return refuse("a program needs more tensors"), NULL;
  if (count > MAX_STACK_TENSORS && !(tensors = PyMem_Calloc((size_t)count, sizeof *tensors))) return PyErr_NoMemory();
  int outcome = FAILED;
  Failure failure = {0};
  Py_ssize_t num_read = 0;
  while (num_read < count && !read_address(PyTuple_GetItem(args, num_read), &tensors[num_read])) ++num_read;
  if (num_read == count) {
    Py_BEGIN_ALLOW_THREADS;
    byoc_lock();
    Call call = byoc_begin(&self->program);
    byoc_unlock();
    outcome = byoc_run(&self->program, &call, tensors, &failure);
    byoc_end(&self->program, &call);
    Py_END_ALLOW_THREADS;
  }
  if (tensors != stack_tensors) PyMem_Free(tensors);
  if (num_read < count) return NULL;
  if (outcome != FAILED) return PyBool_FromLong(outcome == DONE);
  PyObject *error = PyObject_CallFunction(self->error, "iii", failure.operation, failure.step, failure.status);
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

static PyObject *program_num_frames(ProgramObject *self, void *closure) {
  byoc_lock();
  const int32_t count = self->program.num_frames;
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
  for (Frame *frame = self->program.frames, *next; frame; frame = next) {
    next = frame->next;
    byoc_free_frame(&self->program, frame);
  }
  byoc_lock();
  Arena *arenas = byoc_take_all_arenas(); /* perhaps unused from now on */
  byoc_unlock();
  byoc_free_arenas(arenas);
  program_clear(self);
  Py_CLEAR(self->owner);
  Parts *parts = atomic_load(&self->program.parts);
  if (parts) Py_DECREF((PyObject *)parts->owner); /* a tuple of texts, in no cycle */
  PyMem_Free(parts);
  PyMem_Free(self->program.locations);
  PyMem_Free(self->program.steps);
  PyMem_Free(self->program.arguments);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

/* Sets the texts of the parts; -1 with an exception. */
static int read_parts(Parts *parts, PyObject *pairs, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    PyObject *pair = PyTuple_GetItem(pairs, i);
    for (Py_ssize_t k = 0; k < 2; ++k) {
      PyObject *text = PyTuple_Check(pair) ? PyTuple_GetItem(pair, k) : NULL;
      if (!text) return PyErr_Occurred() ? -1 : refuse("a part is (name, ops)");
      if (!(parts->texts[2 * i + k] = PyUnicode_AsUTF8AndSize(text, NULL))) return -1;
    }
  }
  return 0;
}

static PyObject *program_report_parts(ProgramObject *self, PyObject *args) {
  unsigned long long marker;
  PyObject *pairs;
  if (!PyArg_ParseTuple(args, "KO!", &marker, &PyTuple_Type, &pairs)) return NULL;
  const int32_t num_steps = self->program.num_steps;
  if (!marker || PyTuple_Size(pairs) != num_steps) return refuse("each step needs a part, and a marker"), NULL;
  if (atomic_load(&self->program.parts)) Py_RETURN_NONE; /* running calls read the texts */
  Parts *parts = PyMem_Calloc(1, sizeof *parts + 2 * (size_t)num_steps * sizeof *parts->texts);
  if (!parts) return PyErr_NoMemory();
  if (read_parts(parts, pairs, num_steps)) {
    PyMem_Free(parts);
    return NULL;
  }
  parts->marker = (PartMarker)(uintptr_t)marker;
  parts->owner = Py_NewRef(pairs);
  atomic_store_explicit(&self->program.parts, parts, memory_order_release);
  Py_RETURN_NONE;
}

static PyMethodDef program_methods[] = {
    {"run", (PyCFunction)program_run, METH_VARARGS,
     "run(*addresses)\n--\n\nRun on tensors at these addresses, without the interpreter lock; return whether all checks hold."},
    {"report_parts", (PyCFunction)program_report_parts, METH_VARARGS,
     "report_parts(marker, parts)\n--\n\nReport each step of later calls to the function at an address; `parts` holds the "
     "name and ops of each step."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef program_getset[] = {
    {"num_frames", (getter)program_num_frames, NULL, "The number of free frames.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_doc, "Program(functions, engine, num_tensors, arena_nbytes, locations, steps, owner, error)\n--\n\n"
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
