#include "objects.h"
#include "threads.h"

#include <string.h>

/* Fills in a register; its shape and strides go to *sizes, which moves on. */
static int read_register(FrameObject *self, Py_ssize_t number, PyObject *item, int64_t **sizes, const int64_t *end) {
  unsigned long long address;
  int dtype_code, bits;
  Py_ssize_t itemsize;
  PyObject *shape, *strides;
  if (item == Py_None) return 0;
  if (!PyArg_ParseTuple(item, "KiinO!O;a register is (address, dtype code, bits, itemsize, shape, strides)", &address,
                        &dtype_code, &bits, &itemsize, &PyTuple_Type, &shape, &strides))
    return -1;
  Py_ssize_t ndim = PyTuple_Size(shape);
  int is_strided = strides != Py_None;
  if (is_strided && (!PyTuple_Check(strides) || PyTuple_Size(strides) != ndim)) {
    PyErr_SetString(PyExc_ValueError, "a register has not as many strides as axes");
    return -1;
  }
  if (end - *sizes < ndim * (1 + is_strided)) {
    PyErr_SetString(PyExc_RuntimeError, "registers changed while they were read");
    return -1;
  }
  DLTensor *tensor = &self->frame.tensors[number];
  tensor->data = (void *)(uintptr_t)address;
  tensor->device = (DLDevice){kDLCPU, 0};
  tensor->ndim = (int32_t)ndim;
  tensor->dtype = (DLDataType){(uint8_t)dtype_code, (uint8_t)bits, 1};
  self->frame.itemsizes[number] = itemsize;
  for (int part = 0; part <= is_strided; ++part) {
    if (part)
      tensor->strides = *sizes;
    else
      tensor->shape = *sizes;
    for (Py_ssize_t axis = 0; axis < ndim; ++axis) {
      long long size = PyLong_AsLongLong(PyTuple_GetItem(part ? strides : shape, axis));
      if (size == -1 && PyErr_Occurred()) return -1;
      *(*sizes)++ = size;
    }
  }
  return 0;
}

static Py_ssize_t count_sizes(PyObject *registers) {
  Py_ssize_t count = 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(registers); ++i) {
    PyObject *item = PyTuple_GetItem(registers, i);
    if (PyTuple_Check(item) && PyTuple_Size(item) == 6 && PyTuple_Check(PyTuple_GetItem(item, 4)))
      count += 2 * PyTuple_Size(PyTuple_GetItem(item, 4));
  }
  return count;
}

static int read_registers(FrameObject *self, PyObject *registers) {
  CodeObject *code = self->code;
  if (PyTuple_Size(registers) != code->num_registers) {
    PyErr_SetString(PyExc_ValueError, "a frame has as many registers as its code");
    return -1;
  }
  size_t num_registers = (size_t)code->num_registers, num_operands = (size_t)code->num_operands;
  size_t num_sizes = (size_t)count_sizes(registers);
  size_t tensors = num_registers * sizeof(DLTensor), operands = num_operands * sizeof(TVMFFIAny);
  char *block = PyMem_Calloc(1, tensors + operands + (num_registers + num_sizes + 1) * sizeof(int64_t));
  if (!block) {
    PyErr_NoMemory();
    return -1;
  }
  self->block = block;
  self->frame.code = code->instructions;
  self->frame.tensors = (DLTensor *)block;
  self->frame.operands = (TVMFFIAny *)(block + tensors);
  self->frame.itemsizes = (int64_t *)(block + tensors + operands);
  int64_t *sizes = self->frame.itemsizes + num_registers, *end = sizes + num_sizes;
  for (Py_ssize_t i = 0; i < code->num_registers; ++i) {
    if (read_register(self, i, PyTuple_GetItem(registers, i), &sizes, end)) return -1;
  }
  for (size_t i = 0; i < num_operands; ++i) {
    self->frame.operands[i].type_index = kTVMFFIDLTensorPtr;
    self->frame.operands[i].v_ptr = &self->frame.tensors[code->registers[i]];
  }
  return 0;
}

static int read_followers(FrameObject *self, PyObject *followers) {
  Py_ssize_t count = PyTuple_Size(followers);
  self->followers = PyMem_Calloc((size_t)count + 1, sizeof *self->followers);
  if (!self->followers) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    Follower *follower = &self->followers[i];
    long long offset;
    if (!PyArg_ParseTuple(PyTuple_GetItem(followers, i), "iiL;a follower is (view, base, offset)", &follower->view,
                          &follower->base, &offset))
      return -1;
    if (follower->view < 0 || follower->view >= self->code->num_registers || follower->base < 0 ||
        follower->base >= self->code->num_registers) {
      PyErr_SetString(PyExc_ValueError, "a follower names a register that does not exist");
      return -1;
    }
    follower->nbytes_offset = offset;
  }
  self->num_followers = count;
  return 0;
}

static PyObject *frame_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"code", "registers", "followers", "owners", NULL};
  PyObject *code, *registers, *followers, *owners;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O", names, byoc_code_type, &code, &PyTuple_Type, &registers,
                                   &PyTuple_Type, &followers, &owners))
    return NULL;
  FrameObject *self = (FrameObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->code = (CodeObject *)Py_NewRef(code);
  self->owners = Py_NewRef(owners);
  if (read_registers(self, registers) || read_followers(self, followers)) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject *)self;
}

void byoc_frame_point(FrameObject *frame, int32_t reg, PyArrayObject *array) {
  DLTensor *tensor = &frame->frame.tensors[reg];
  tensor->data = PyArray_DATA(array);
  for (int axis = 0; axis < tensor->ndim; ++axis) tensor->shape[axis] = PyArray_DIM(array, axis);
}

void byoc_frame_follow(FrameObject *frame) {
  for (Py_ssize_t i = 0; i < frame->num_followers; ++i) {
    const Follower *follower = &frame->followers[i];
    char *base = frame->frame.tensors[follower->base].data;
    frame->frame.tensors[follower->view].data = base + follower->nbytes_offset;
  }
}

int32_t byoc_frame_run(FrameObject *frame, int32_t index) {
  int32_t op = frame->frame.code[index].op;
  if (op == BYOC_PYTHON || op == BYOC_RET) return index;
  byoc_stop stop = {index, 0};
  const int num_threads = frame->code->num_threads;
  do {
    Py_BEGIN_ALLOW_THREADS;
    if (num_threads < 0) {
      stop = byoc_run(&frame->frame, stop.index);
    } else {
      const byoc_call call = byoc_threads_enter(num_threads);
      stop = byoc_run(&frame->frame, stop.index);
      byoc_threads_leave(call);
    }
    Py_END_ALLOW_THREADS;
    op = frame->frame.code[stop.index].op;
    if ((op == BYOC_GOTO || op == BYOC_IF) && PyErr_CheckSignals()) return -1;
  } while (op == BYOC_GOTO || op == BYOC_IF);
  if (!stop.status) return stop.index;
  PyObject *made = PyObject_CallFunction(frame->code->fail, "ii", (int)stop.index, (int)stop.status);
  if (made) {
    Py_DECREF(made);
    PyErr_SetString(PyExc_RuntimeError, "a failure was not raised");
  }
  return -1;
}

int byoc_frame_is_finished(const FrameObject *frame, int32_t index) { return frame->frame.code[index].op == BYOC_RET; }

static PyObject *frame_point(FrameObject *self, PyObject *args) {
  int first;
  PyObject *arrays;
  if (!PyArg_ParseTuple(args, "iO!", &first, &PyList_Type, &arrays)) return NULL;
  Py_ssize_t count = PyList_Size(arrays);
  if (first < 0 || first + count > self->code->num_registers) {
    PyErr_SetString(PyExc_ValueError, "there are not so many registers");
    return NULL;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *array = PyList_GetItem(arrays, i);
    if (array == Py_None) continue;
    if (!PyArray_Check(array)) {
      PyErr_SetString(PyExc_TypeError, "a register takes an array");
      return NULL;
    }
    DLTensor *tensor = &self->frame.tensors[first + i];
    PyArrayObject *given = (PyArrayObject *)array;
    if (tensor->ndim != PyArray_NDIM(given)) {
      PyErr_SetString(PyExc_ValueError, "an array has another rank than its register");
      return NULL;
    }
    byoc_frame_point(self, (int32_t)(first + i), given);
  }
  byoc_frame_follow(self);
  Py_RETURN_NONE;
}

static PyObject *frame_run(FrameObject *self, PyObject *args) {
  int index;
  if (!PyArg_ParseTuple(args, "i", &index)) return NULL;
  if (index < 0 || index >= self->code->num_instructions) {
    PyErr_SetString(PyExc_ValueError, "there is no such instruction");
    return NULL;
  }
  if (self->is_running) {
    PyErr_SetString(PyExc_RuntimeError, "the frame is running");
    return NULL;
  }
  self->is_running = 1;
  index = byoc_frame_run(self, index);
  self->is_running = 0;
  return index < 0 ? NULL : PyLong_FromLong(index);
}

static int frame_traverse(FrameObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->code);
  Py_VISIT(self->owners);
  return 0;
}

static int frame_clear(FrameObject *self) {
  Py_CLEAR(self->owners);
  return 0;
}

static void frame_dealloc(FrameObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  frame_clear(self);
  Py_CLEAR(self->code);
  PyMem_Free(self->block);
  PyMem_Free(self->followers);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyObject *frame_get_owners(FrameObject *self, void *closure) { return Py_NewRef(self->owners); }

static PyGetSetDef frame_getset[] = {
    {"owners", (getter)frame_get_owners, NULL, "What the frame holds.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef frame_methods[] = {
    {"point", (PyCFunction)frame_point, METH_VARARGS,
     "point(first, arrays)\n--\n\nLets registers from `first` on point to arrays of their rank; None leaves one as it is."},
    {"run", (PyCFunction)frame_run, METH_VARARGS,
     "run(index)\n--\n\nRuns instructions from `index` on; gives the first that ends the function or that Python has to do."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot frame_slots[] = {
    {Py_tp_doc, "Frame(code, registers, followers, owners)\n--\n\nThe memory of one running call."},
    {Py_tp_new, frame_new},
    {Py_tp_methods, frame_methods},
    {Py_tp_getset, frame_getset},
    {Py_tp_traverse, frame_traverse},
    {Py_tp_clear, frame_clear},
    {Py_tp_dealloc, frame_dealloc},
    {0, NULL},
};

PyType_Spec byoc_frame_spec = {"byoc_core._native.Frame", sizeof(FrameObject), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, frame_slots};
