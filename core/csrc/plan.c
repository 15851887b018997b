#include "objects.h"

enum { MAX_STACK_ARGUMENTS = 16 };

/* Return whether the first registers belong to arguments. */
static int are_arguments(const CodeObject *code, Py_ssize_t count) {
  if (count > code->num_registers) return 0;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (code->registers[i].memory_kind != BYOC_ARGUMENT) return 0;
  return 1;
}

static int read_source(const PlanObject *self, PyObject *item, SymbolSource *out) {
  long long factor, constant;
  if (!PyArg_ParseTuple(item, "iiiLL;a symbol's source is (symbol, input, axis, factor, constant)", &out->symbol, &out->input,
                        &out->axis, &factor, &constant))
    return -1;
  if (out->symbol < 0 || out->symbol >= self->code->num_symbols || out->input < 0 || out->input >= self->num_inputs ||
      out->axis < 0 || out->axis >= self->code->registers[out->input].ndim || factor == 0) {
    PyErr_SetString(PyExc_ValueError, "the source of a symbol is no axis of an input");
    return -1;
  }
  out->factor = factor;
  out->constant = constant;
  return 0;
}

/* Fill in the inputs in the buffers of outputs from pairs; return -1 with an exception. */
static int read_states(PlanObject *self, PyObject *states) {
  self->state_inputs = PyMem_Calloc((size_t)self->num_outputs + 1, sizeof *self->state_inputs);
  if (!self->state_inputs) {
    PyErr_NoMemory();
    return -1;
  }
  for (int32_t i = 0; i < self->num_outputs; ++i) self->state_inputs[i] = -1;
  const Py_ssize_t count = states ? PyTuple_Size(states) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    int output, input;
    if (!PyArg_ParseTuple(PyTuple_GetItem(states, i), "ii;a state is (output, input)", &output, &input)) return -1;
    if (output < 0 || output >= self->num_outputs || input < 0 || input >= self->num_inputs) {
      PyErr_SetString(PyExc_ValueError, "a state has no such input or output");
      return -1;
    }
    self->state_inputs[output] = input;
  }
  return 0;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"code", "num_inputs", "num_outputs", "sources", "new_frame", "states", NULL};
  PyObject *code, *sources, *new_frame, *states = NULL;
  int num_inputs, num_outputs;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!iiO!O|O!", names, byoc_code_type, &code, &num_inputs, &num_outputs,
                                   &PyTuple_Type, &sources, &new_frame, &PyTuple_Type, &states))
    return NULL;
  PlanObject *self = (PlanObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->code = (CodeObject *)Py_NewRef(code);
  self->new_frame = Py_NewRef(new_frame);
  self->num_inputs = num_inputs;
  self->num_outputs = num_outputs;
  if (num_inputs < 0 || num_outputs < 0 || !are_arguments(self->code, (Py_ssize_t)num_inputs + num_outputs)) {
    Py_DECREF(self);
    PyErr_SetString(PyExc_ValueError, "a function needs a register for each input and output");
    return NULL;
  }
  if (read_states(self, states)) {
    Py_DECREF(self);
    return NULL;
  }
  const Py_ssize_t count = PyTuple_Size(sources);
  self->sources = PyMem_Calloc((size_t)count + 1, sizeof *self->sources);
  if (!self->sources) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  for (; self->num_sources < count; ++self->num_sources) {
    if (read_source(self, PyTuple_GetItem(sources, self->num_sources), &self->sources[self->num_sources])) {
      Py_DECREF(self);
      return NULL;
    }
  }
  return (PyObject *)self;
}

/* Return a frame to the plan, with the reference; free the frame if memory for the list is missing. */
static void return_frame(PlanObject *plan, FrameObject *frame) {
  if (plan->num_frames == plan->max_frames) {
    Py_ssize_t max_frames = 2 * plan->max_frames + 2;
    FrameObject **frames = PyMem_Realloc(plan->frames, (size_t)max_frames * sizeof *frames);
    if (!frames) {
      Py_DECREF((PyObject *)frame);
      return;
    }
    plan->frames = frames;
    plan->max_frames = max_frames;
  }
  plan->frames[plan->num_frames++] = frame;
}

/* Return an unused frame, or NULL with an exception. */
static FrameObject *take_frame(PlanObject *plan) {
  if (plan->num_frames) return plan->frames[--plan->num_frames];
  PyObject *frame = PyObject_CallNoArgs(plan->new_frame);
  if (frame && (!PyObject_TypeCheck(frame, byoc_frame_type) || ((FrameObject *)frame)->code != plan->code)) {
    PyErr_SetString(PyExc_TypeError, "new_frame returned no frame of the function");
    Py_CLEAR(frame);
  }
  return (FrameObject *)frame;
}

/* Return whether a value is an array of the register's dtype and rank, compact and aligned. */
static int fits_register(const Register *reg, PyObject *value) {
  if (!PyArray_CheckExact(value)) return 0;
  PyArrayObject *array = (PyArrayObject *)value;
  if (PyArray_NDIM(array) != reg->ndim) return 0;
  const int required_flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
  if ((PyArray_FLAGS(array) & required_flags) != required_flags) return 0;
  return PyArray_DESCR(array) == reg->descr || PyArray_EquivTypes(PyArray_DESCR(array), reg->descr);
}

/* Return whether every byte of a bool array is 0 or 1; otherwise the caller's Python code makes a copy. */
static int has_clean_bools(PyObject *value) {
  const unsigned char *bytes = (const unsigned char *)PyArray_BYTES((PyArrayObject *)value);
  const npy_intp count = PyArray_SIZE((PyArrayObject *)value);
  unsigned char combined_bits = 0;
  for (npy_intp k = 0; k < count; ++k) combined_bits |= bytes[k];
  return combined_bits <= 1;
}

static int has_shape(PyObject *array, const DLTensor *tensor) {
  const npy_intp *shape = PyArray_DIMS((PyArrayObject *)array);
  for (int32_t axis = 0; axis < tensor->ndim; ++axis)
    if (shape[axis] != tensor->shape[axis]) return 0;
  return 1;
}

/* Lay out a frame for the sizes of inputs; return 0 if the sizes are contradictory, or the layout fails. */
static int lay_out(const PlanObject *plan, FrameObject *frame, PyObject *const *inputs) {
  frame->is_laid_out = 0;
  for (Py_ssize_t i = 0; i < plan->num_sources; ++i) {
    const SymbolSource *source = &plan->sources[i];
    int64_t size;
    if (__builtin_sub_overflow((int64_t)PyArray_DIM((PyArrayObject *)inputs[source->input], source->axis),
                               source->constant, &size) ||
        size % source->factor || (size /= source->factor) < 0)
      return 0;
    frame->sizes[source->symbol] = size;
  }
  if (!byoc_frame_compute(frame)) return 0;
  for (int32_t i = 0; i < plan->num_inputs; ++i) {
    const Register *reg = &plan->code->registers[i];
    for (int32_t axis = 0; axis < reg->ndim; ++axis)
      if (PyArray_DIM((PyArrayObject *)inputs[i], axis) != frame->sizes[reg->dims[axis]]) return 0;
  }
  return byoc_frame_lay_out(frame);
}

/* Return whether a function can read the inputs; if so, the frame is laid out for the inputs. */
static int can_read(const PlanObject *plan, FrameObject *frame, PyObject *const *inputs) {
  int is_laid_out = frame->is_laid_out;
  for (int32_t i = 0; i < plan->num_inputs; ++i) {
    if (!fits_register(&plan->code->registers[i], inputs[i])) return 0;
    if (PyArray_TYPE((PyArrayObject *)inputs[i]) == NPY_BOOL && !has_clean_bools(inputs[i])) return 0;
    is_laid_out = is_laid_out && has_shape(inputs[i], &frame->frame.tensors[i]);
  }
  return is_laid_out || lay_out(plan, frame, inputs);
}

/* Return whether compact arrays share memory. */
static int overlaps(PyArrayObject *left, PyArrayObject *right) {
  const char *a = PyArray_BYTES(left), *b = PyArray_BYTES(right);
  return a < b + PyArray_NBYTES(right) && b < a + PyArray_NBYTES(left);
}

/* Return whether the function of a laid-out frame can write the outputs. */
static int can_write(const PlanObject *plan, const FrameObject *frame, PyObject *const *inputs, PyObject *const *outputs) {
  for (int32_t i = 0; i < plan->num_outputs; ++i) {
    const int32_t reg_index = plan->num_inputs + i;
    PyArrayObject *output = (PyArrayObject *)outputs[i];
    if (!output) continue;
    if (!fits_register(&plan->code->registers[reg_index], outputs[i]) || !PyArray_ISWRITEABLE(output) ||
        !has_shape(outputs[i], &frame->frame.tensors[reg_index]))
      return 0;
    for (int32_t j = 0; j < plan->num_inputs; ++j) {
      PyArrayObject *input = (PyArrayObject *)inputs[j];
      const int is_state = plan->state_inputs[i] == j && PyArray_BYTES(input) == PyArray_BYTES(output);
      if (!is_state && overlaps(output, input)) return 0;
    }
    for (int32_t j = 0; j < i; ++j)
      if (outputs[j] && overlaps(output, (PyArrayObject *)outputs[j])) return 0;
  }
  return 1;
}

static PyObject *make_output(const PlanObject *plan, const FrameObject *frame, int32_t index) {
  const int32_t reg_index = plan->num_inputs + index;
  const DLTensor *tensor = &frame->frame.tensors[reg_index];
  PyArray_Descr *dtype = plan->code->registers[reg_index].descr;
  npy_intp shape[BYOC_MAX_NDIM];
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) shape[axis] = (npy_intp)tensor->shape[axis];
  Py_INCREF((PyObject *)dtype);
  return PyArray_NewFromDescr(&PyArray_Type, dtype, tensor->ndim, shape, NULL, NULL, 0, NULL);
}

/* Store a new reference to an array for each output; return -1 without an exception if an array cannot be created. */
static int make_outputs(const PlanObject *plan, const FrameObject *frame, PyObject *const *caller_outputs,
                        PyObject **outputs) {
  for (int32_t i = 0; i < plan->num_outputs; ++i) {
    outputs[i] = caller_outputs && caller_outputs[i] ? Py_NewRef(caller_outputs[i]) : make_output(plan, frame, i);
    if (!outputs[i]) {
      PyErr_Clear();
      while (i) Py_DECREF(outputs[--i]);
      return -1;
    }
  }
  return 0;
}

/* Return the result of a call; take over the references to the outputs. */
static PyObject *pack_outputs(Py_ssize_t count, PyObject **outputs) {
  if (count == 1) return outputs[0];
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (tuple)
      PyTuple_SetItem(tuple, i, outputs[i]);
    else
      Py_DECREF(outputs[i]);
  }
  return tuple;
}

/* Show arrays to Python's steps as registers. */
static void attach_arrays(FrameObject *frame, int32_t first, PyObject *const *arrays, int32_t count) {
  for (int32_t i = 0; i < count; ++i) frame->arrays[first + i] = Py_NewRef(arrays[i]);
}

/* Run a function on fitting arrays. */
static int run_with_arrays(const PlanObject *plan, FrameObject *frame, PyObject *const *inputs, PyObject *const *outputs) {
  byoc_frame_point(frame, 0, inputs, plan->num_inputs);
  byoc_frame_point(frame, plan->num_inputs, outputs, plan->num_outputs);
  byoc_frame_point_views(frame);
  if (!plan->code->has_steps) return byoc_frame_run_to_end(frame);
  attach_arrays(frame, 0, inputs, plan->num_inputs);
  attach_arrays(frame, plan->num_inputs, outputs, plan->num_outputs);
  const int status = byoc_frame_run_to_end(frame);
  byoc_frame_release_arguments(frame);
  return status;
}

static PyObject *run_in_frame(const PlanObject *plan, FrameObject *frame, PyObject *const *inputs,
                              PyObject *const *caller_outputs) {
  PyObject *stack_outputs[MAX_STACK_ARGUMENTS], **outputs = stack_outputs, *result = NULL;
  if (!can_read(plan, frame, inputs) || (caller_outputs && !can_write(plan, frame, inputs, caller_outputs))) return NULL;
  if (plan->num_outputs > MAX_STACK_ARGUMENTS && !(outputs = PyMem_Calloc((size_t)plan->num_outputs, sizeof *outputs)))
    return PyErr_NoMemory();
  if (!make_outputs(plan, frame, caller_outputs, outputs)) {
    if (!run_with_arrays(plan, frame, inputs, outputs)) {
      result = pack_outputs(plan->num_outputs, outputs);
    } else {
      for (int32_t i = 0; i < plan->num_outputs; ++i) Py_DECREF(outputs[i]);
    }
  }
  if (outputs != stack_outputs) PyMem_Free(outputs);
  return result;
}

PyObject *byoc_plan_run(PlanObject *plan, PyObject *const *inputs, PyObject *const *outputs) {
  FrameObject *frame = take_frame(plan);
  if (!frame) return NULL;
  PyObject *result = run_in_frame(plan, frame, inputs, outputs);
  return_frame(plan, frame);
  return result;
}

static PyObject *plan_run(PlanObject *self, PyObject *args) {
  PyObject *inputs, *outputs;
  if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &inputs, &PyList_Type, &outputs)) return NULL;
  if (PyList_Size(inputs) != self->num_inputs || PyList_Size(outputs) != self->num_outputs) Py_RETURN_NONE;
  const Py_ssize_t count = (Py_ssize_t)self->num_inputs + self->num_outputs;
  PyObject **arrays = PyMem_Calloc((size_t)count + 1, sizeof *arrays), *result = NULL;
  if (!arrays) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) {
    const int is_input = i < self->num_inputs;
    PyObject *array = PyList_GetItem(is_input ? inputs : outputs, is_input ? i : i - self->num_inputs);
    arrays[i] = is_input || array != Py_None ? Py_NewRef(array) : NULL;
  }
  result = byoc_plan_run(self, arrays, arrays + self->num_inputs);
  for (Py_ssize_t i = 0; i < count; ++i) Py_XDECREF(arrays[i]);
  PyMem_Free(arrays);
  if (!result && !PyErr_Occurred()) Py_RETURN_NONE;
  return result;
}

/* Create the first frame; leave a failed layout to the call. */
static PyObject *plan_prepare(PlanObject *self, PyObject *unused) {
  FrameObject *frame = take_frame(self);
  if (!frame) return NULL;
  const int is_laid_out = byoc_frame_compute(frame) && byoc_frame_lay_out(frame);
  return_frame(self, frame);
  return PyBool_FromLong(is_laid_out);
}

static int plan_traverse(PlanObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->code);
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
  Py_CLEAR(self->code);
  PyMem_Free(self->sources);
  PyMem_Free(self->state_inputs);
  PyMem_Free(self->frames);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyMethodDef plan_methods[] = {
    {"run", (PyCFunction)plan_run, METH_VARARGS,
     "run(inputs, outputs)\n--\n\nRun the function into the outputs (None: a new output); return the result, or None "
     "if Python must run the function: an array does not fit, or an output shares memory with another array."},
    {"prepare", (PyCFunction)plan_prepare, METH_NOARGS,
     "prepare()\n--\n\nMake a frame for the first call of a function without symbols; False if the layout fails."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, "Plan(code, num_inputs, num_outputs, sources, new_frame, states=())\n--\n\nThe data for calls of a "
                "function run completely by the extension; states are pairs of an output and an input in one buffer."},
    {Py_tp_new, plan_new},
    {Py_tp_methods, plan_methods},
    {Py_tp_traverse, plan_traverse},
    {Py_tp_clear, plan_clear},
    {Py_tp_dealloc, plan_dealloc},
    {0, NULL},
};

PyType_Spec byoc_plan_spec = {"byoc_core._native.Plan", sizeof(PlanObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                              plan_slots};
