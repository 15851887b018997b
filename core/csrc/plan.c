#include "objects.h"

#include <string.h>

enum { MAX_STACK_ARGUMENTS = 16 };

static int read_specs(PlanObject *self, PyObject *items, Py_ssize_t start, npy_intp **sizes) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(items); ++i) {
    ArraySpec *spec = &self->specs[start + i];
    PyObject *shape;
    if (!PyArg_ParseTuple(PyTuple_GetItem(items, i), "O!O!;a specification is (dtype, shape)", &PyArrayDescr_Type,
                          &spec->dtype, &PyTuple_Type, &shape)) {
      spec->dtype = NULL;
      return -1;
    }
    Py_INCREF((PyObject *)spec->dtype);
    spec->ndim = (int)PyTuple_Size(shape);
    spec->shape = *sizes;
    for (int axis = 0; axis < spec->ndim; ++axis) {
      Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GetItem(shape, axis));
      if (size == -1 && PyErr_Occurred()) return -1;
      *(*sizes)++ = size;
    }
  }
  return 0;
}

static Py_ssize_t count_axes(PyObject *items) {
  Py_ssize_t count = 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(items); ++i) {
    PyObject *item = PyTuple_GetItem(items, i);
    if (PyTuple_Check(item) && PyTuple_Size(item) == 2 && PyTuple_Check(PyTuple_GetItem(item, 1)))
      count += PyTuple_Size(PyTuple_GetItem(item, 1));
  }
  return count;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"inputs", "outputs", "new_frame", NULL};
  PyObject *inputs, *outputs, *new_frame;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O", names, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
                                   &new_frame))
    return NULL;
  PlanObject *self = (PlanObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->new_frame = Py_NewRef(new_frame);
  Py_ssize_t num_inputs = PyTuple_Size(inputs), num_outputs = PyTuple_Size(outputs);
  self->specs = PyMem_Calloc((size_t)(num_inputs + num_outputs + 1), sizeof *self->specs);
  self->sizes = PyMem_Calloc((size_t)(count_axes(inputs) + count_axes(outputs) + 1), sizeof *self->sizes);
  if (!self->specs || !self->sizes) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  self->num_inputs = num_inputs;
  self->num_outputs = num_outputs;
  npy_intp *sizes = self->sizes;
  if (read_specs(self, inputs, 0, &sizes) || read_specs(self, outputs, num_inputs, &sizes)) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject *)self;
}

/* Whether an array has the dtype and shape of a specification and is compact and aligned. */
static int fits(const ArraySpec *spec, PyObject *value) {
  if (!PyArray_CheckExact(value)) return 0;
  PyArrayObject *array = (PyArrayObject *)value;
  if (PyArray_NDIM(array) != spec->ndim) return 0;
  if (spec->ndim && memcmp(PyArray_DIMS(array), spec->shape, (size_t)spec->ndim * sizeof(npy_intp))) return 0;
  int wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
  if ((PyArray_FLAGS(array) & wanted) != wanted) return 0;
  return PyArray_DESCR(array) == spec->dtype || PyArray_EquivTypes(PyArray_DESCR(array), spec->dtype);
}

static FrameObject *make_frame(PlanObject *plan) {
  PyObject *frame = PyObject_CallNoArgs(plan->new_frame);
  if (frame && !PyObject_TypeCheck(frame, byoc_frame_type)) {
    PyErr_SetString(PyExc_TypeError, "new_frame gave no frame");
    Py_CLEAR(frame);
  }
  FrameObject *made = (FrameObject *)frame;
  if (made && made->code->num_registers < plan->num_inputs + plan->num_outputs) {
    PyErr_SetString(PyExc_ValueError, "a frame has a register for each input and output");
    Py_CLEAR(made);
  }
  return made;
}

/* Takes over the reference; without memory to keep it, the frame is freed. */
static void give_frame(PlanObject *plan, FrameObject *frame) {
  if (plan->num_frames == plan->max_frames) {
    Py_ssize_t wanted = 2 * plan->max_frames + 2;
    FrameObject **grown = PyMem_Realloc(plan->frames, (size_t)wanted * sizeof *grown);
    if (!grown) {
      Py_DECREF((PyObject *)frame);
      return;
    }
    plan->frames = grown;
    plan->max_frames = wanted;
  }
  plan->frames[plan->num_frames++] = frame;
}

/* New references to one array for each output; NULL without an exception where an array cannot be made. */
static int make_outputs(const PlanObject *plan, PyObject *const *given, PyObject **outputs) {
  for (Py_ssize_t i = 0; i < plan->num_outputs; ++i) {
    const ArraySpec *spec = &plan->specs[plan->num_inputs + i];
    if (given) {
      outputs[i] = Py_NewRef(given[i]);
      continue;
    }
    Py_INCREF((PyObject *)spec->dtype);
    outputs[i] =
        PyArray_NewFromDescr(&PyArray_Type, spec->dtype, spec->ndim, spec->shape, NULL, NULL, 0, NULL);
    if (!outputs[i]) {
      PyErr_Clear();
      while (i) Py_DECREF(outputs[--i]);
      return -1;
    }
  }
  return 0;
}

/* Takes over the references to the outputs. */
static PyObject *pack_outputs(Py_ssize_t count, PyObject **outputs) {
  if (count == 1) return outputs[0];
  PyObject *packed = PyTuple_New(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (packed)
      PyTuple_SetItem(packed, i, outputs[i]);
    else
      Py_DECREF(outputs[i]);
  }
  return packed;
}

/* Whether compact arrays share memory. */
static int overlaps(PyArrayObject *left, PyArrayObject *right) {
  const char *a = PyArray_BYTES(left), *b = PyArray_BYTES(right);
  return a < b + PyArray_NBYTES(right) && b < a + PyArray_NBYTES(left);
}

static int can_write(const PlanObject *plan, PyObject *const *inputs, PyObject *const *outputs) {
  for (Py_ssize_t i = 0; i < plan->num_outputs; ++i) {
    if (!fits(&plan->specs[plan->num_inputs + i], outputs[i])) return 0;
    PyArrayObject *output = (PyArrayObject *)outputs[i];
    if (!PyArray_ISWRITEABLE(output)) return 0;
    for (Py_ssize_t j = 0; j < plan->num_inputs; ++j)
      if (overlaps(output, (PyArrayObject *)inputs[j])) return 0;
    for (Py_ssize_t j = 0; j < i; ++j)
      if (overlaps(output, (PyArrayObject *)outputs[j])) return 0;
  }
  return 1;
}

/* Whether the function can run on inputs, and on outputs where there are any. */
static int can_run(const PlanObject *plan, PyObject *const *inputs, PyObject *const *outputs) {
  for (Py_ssize_t i = 0; i < plan->num_inputs; ++i)
    if (!fits(&plan->specs[i], inputs[i])) return 0;
  return !outputs || can_write(plan, inputs, outputs);
}

PyObject *byoc_plan_run(PlanObject *plan, PyObject *const *inputs, PyObject *const *given) {
  PyObject *few[MAX_STACK_ARGUMENTS], **outputs = few, *result = NULL;
  if (!can_run(plan, inputs, given)) return NULL;
  while (!plan->num_frames) {
    FrameObject *made = make_frame(plan);
    if (!made) return NULL;
    give_frame(plan, made);
    if (!plan->num_frames) return PyErr_NoMemory();
    /* Python has run, and other threads, which may have given the arrays other shapes. */
    if (!can_run(plan, inputs, given)) return NULL;
  }
  FrameObject *frame = plan->frames[--plan->num_frames];
  if (plan->num_outputs > MAX_STACK_ARGUMENTS) {
    outputs = PyMem_Calloc((size_t)plan->num_outputs, sizeof *outputs);
    if (!outputs) {
      give_frame(plan, frame);
      return PyErr_NoMemory();
    }
  }
  if (!make_outputs(plan, given, outputs)) {
    for (Py_ssize_t i = 0; i < plan->num_inputs; ++i)
      byoc_frame_point(frame, (int32_t)i, (PyArrayObject *)inputs[i]);
    for (Py_ssize_t i = 0; i < plan->num_outputs; ++i)
      byoc_frame_point(frame, (int32_t)(plan->num_inputs + i), (PyArrayObject *)outputs[i]);
    byoc_frame_follow(frame);
    int32_t index = byoc_frame_run(frame, 0);
    if (index >= 0 && byoc_frame_is_finished(frame, index)) {
      result = pack_outputs(plan->num_outputs, outputs);
    } else {
      for (Py_ssize_t i = 0; i < plan->num_outputs; ++i) Py_DECREF(outputs[i]);
    }
  }
  give_frame(plan, frame);
  if (outputs != few) PyMem_Free(outputs);
  return result;
}

static PyObject *plan_run_into(PlanObject *self, PyObject *args) {
  PyObject *inputs, *outputs;
  if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &inputs, &PyList_Type, &outputs)) return NULL;
  if (PyList_Size(inputs) != self->num_inputs || PyList_Size(outputs) != self->num_outputs) Py_RETURN_NONE;
  Py_ssize_t count = self->num_inputs + self->num_outputs;
  PyObject **arrays = PyMem_Calloc((size_t)count + 1, sizeof *arrays), *result = NULL;
  if (!arrays) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) {
    int is_input = i < self->num_inputs;
    arrays[i] = Py_NewRef(PyList_GetItem(is_input ? inputs : outputs, is_input ? i : i - self->num_inputs));
  }
  result = byoc_plan_run(self, arrays, arrays + self->num_inputs);
  for (Py_ssize_t i = 0; i < count; ++i) Py_DECREF(arrays[i]);
  PyMem_Free(arrays);
  if (!result && !PyErr_Occurred()) Py_RETURN_NONE;
  return result;
}

static PyObject *plan_take_frame(PlanObject *self, PyObject *ignored) {
  if (!self->num_frames) Py_RETURN_NONE;
  return (PyObject *)self->frames[--self->num_frames];
}

static int plan_traverse(PlanObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->new_frame);
  for (Py_ssize_t i = 0; i < self->num_frames; ++i) Py_VISIT(self->frames[i]);
  return 0;
}

static int plan_clear(PlanObject *self) {
  Py_CLEAR(self->new_frame);
  while (self->num_frames) Py_DECREF((PyObject *)self->frames[--self->num_frames]);
  return 0;
}

static void plan_dealloc(PlanObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  plan_clear(self);
  for (Py_ssize_t i = 0; i < self->num_inputs + self->num_outputs; ++i) Py_XDECREF((PyObject *)self->specs[i].dtype);
  PyMem_Free(self->specs);
  PyMem_Free(self->sizes);
  PyMem_Free(self->frames);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyMethodDef plan_methods[] = {
    {"run_into", (PyCFunction)plan_run_into, METH_VARARGS,
     "run_into(inputs, outputs)\n--\n\nRuns the function into the outputs; gives its result, or None where Python has to run "
     "it: an array does not fit, or an output shares memory with another array."},
    {"take_frame", (PyCFunction)plan_take_frame, METH_NOARGS,
     "take_frame()\n--\n\nGives a frame that is free, which the plan then has no more; None where there is none."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, "Plan(inputs, outputs, new_frame)\n--\n\nWhat calls of one set of input shapes need."},
    {Py_tp_new, plan_new},
    {Py_tp_methods, plan_methods},
    {Py_tp_traverse, plan_traverse},
    {Py_tp_clear, plan_clear},
    {Py_tp_dealloc, plan_dealloc},
    {0, NULL},
};

PyType_Spec byoc_plan_spec = {"byoc_core._native.Plan", sizeof(PlanObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                              plan_slots};
