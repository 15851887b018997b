#include "objects.h"

enum { ALIGNMENT = 64 };

/* Return the next table of a block, with `count` elements; `nbytes` is a multiple of 8. */
static char *next_table(char **next, size_t count, size_t nbytes) {
  char *start = *next;
  *next += count * nbytes;
  return start;
}

static size_t count_dims(const CodeObject *code) {
  size_t count = 0;
  for (int32_t i = 0; i < code->num_registers; ++i)
    count += (size_t)code->registers[i].ndim * (size_t)(1 + code->registers[i].is_strided);
  return count;
}

/* Allocate a single block for all tables of known size. */
static int make_block(FrameObject *self) {
  const CodeObject *code = self->code;
  const size_t num_registers = (size_t)code->num_registers, num_operands = (size_t)code->num_operands;
  const size_t num_sizes = (size_t)code->num_symbols + (size_t)code->num_operations + 1, num_dims = count_dims(code);
  const size_t num_storages = (size_t)code->num_storages;
  char *next = PyMem_Calloc(1, num_registers * (sizeof(DLTensor) + sizeof(int64_t) + sizeof(PyObject *)) +
                                  num_operands * sizeof(TVMFFIAny) + (num_sizes + num_dims) * sizeof(int64_t) +
                                  (num_storages + 1) * sizeof(char *));
  if (!next) return -1;
  self->block = next;
  self->frame.code = code->instructions;
  self->frame.tensors = (DLTensor *)next_table(&next, num_registers, sizeof(DLTensor));
  self->frame.operands = (TVMFFIAny *)next_table(&next, num_operands, sizeof(TVMFFIAny));
  self->frame.itemsizes = (int64_t *)next_table(&next, num_registers, sizeof(int64_t));
  self->sizes = (int64_t *)next_table(&next, num_sizes, sizeof(int64_t));
  int64_t *dims = (int64_t *)next_table(&next, num_dims, sizeof(int64_t));
  self->storage_starts = (char **)next_table(&next, num_storages, sizeof(char *));
  self->arrays = (PyObject **)next_table(&next, num_registers, sizeof(PyObject *));
  for (size_t i = 0; i < num_registers; ++i) {
    const Register *reg = &code->registers[i];
    self->frame.tensors[i] = (DLTensor){
        .device = {kDLCPU, 0},
        .ndim = reg->ndim,
        .dtype = reg->dtype,
        .shape = dims,
        .strides = reg->is_strided ? dims + reg->ndim : NULL,
    };
    self->frame.itemsizes[i] = reg->itemsize;
    dims += reg->ndim * (1 + reg->is_strided);
  }
  for (size_t i = 0; i < num_operands; ++i) {
    self->frame.operands[i].type_index = kTVMFFIDLTensorPtr;
    self->frame.operands[i].v_ptr = &self->frame.tensors[code->operands[i]];
  }
  return 0;
}

static PyObject *frame_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"code", NULL};
  PyObject *code;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", names, byoc_code_type, &code)) return NULL;
  FrameObject *self = (FrameObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->code = (CodeObject *)Py_NewRef(code);
  if (make_block(self)) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return (PyObject *)self;
}

int byoc_frame_compute(FrameObject *frame) {
  const CodeObject *code = frame->code;
  frame->is_laid_out = 0;
  return byoc_compute_sizes(code->operations, code->num_operations, code->num_symbols, frame->sizes);
}

/* Provide an arena of at least `nbytes` bytes. A replaced arena is larger by an extra eighth: otherwise sizes rising by
 * 1 would take new memory in each call. */
static int provide_arena(FrameObject *frame, int64_t nbytes) {
  npy_intp arena_nbytes = (npy_intp)nbytes;
  if (nbytes < 0 || nbytes > PTRDIFF_MAX - nbytes / 8 - ALIGNMENT) return 0;
  if (frame->arena) {
    if (PyArray_NBYTES((PyArrayObject *)frame->arena) >= arena_nbytes + ALIGNMENT) return 1;
    arena_nbytes += arena_nbytes / 8;
  }
  arena_nbytes += ALIGNMENT;
  Py_CLEAR(frame->arena);
  frame->arena = PyArray_SimpleNew(1, &arena_nbytes, NPY_UINT8);
  if (!frame->arena) PyErr_Clear();
  return frame->arena != NULL;
}

/* Compute the start of each storage; return 0 if a size is negative, or memory is missing. */
static int lay_out_storages(FrameObject *frame) {
  const CodeObject *code = frame->code;
  int64_t total = 0;
  for (int32_t i = 0; i < code->num_storages; ++i) {
    int64_t nbytes = frame->sizes[code->storages[i]];
    if (nbytes < 0 || __builtin_add_overflow(nbytes, ALIGNMENT - 1, &nbytes)) return 0;
    nbytes &= -(int64_t)ALIGNMENT;
    if (__builtin_add_overflow(total, nbytes, &total)) return 0;
  }
  if (!provide_arena(frame, total)) return 0;
  char *start = PyArray_BYTES((PyArrayObject *)frame->arena);
  start += (ALIGNMENT - (uintptr_t)start % ALIGNMENT) % ALIGNMENT;
  for (int32_t i = 0; i < code->num_storages; ++i) {
    frame->storage_starts[i] = start;
    start += (frame->sizes[code->storages[i]] + ALIGNMENT - 1) & -(int64_t)ALIGNMENT;
  }
  return 1;
}

/* Set the shape and strides of a register; return 0 if an axis has a negative size. */
static int set_dims(const FrameObject *frame, int32_t index) {
  const Register *reg = &frame->code->registers[index];
  int64_t *dims = frame->frame.tensors[index].shape;
  for (int32_t i = 0; i < reg->ndim * (1 + reg->is_strided); ++i) {
    dims[i] = frame->sizes[reg->dims[i]];
    if (i < reg->ndim && dims[i] < 0) return 0;
  }
  return 1;
}

int byoc_frame_lay_out(FrameObject *frame) {
  const CodeObject *code = frame->code;
  byoc_frame_release_arrays(frame);
  for (int32_t i = 0; i < code->num_registers; ++i)
    if (!set_dims(frame, i)) return 0;
  if (!lay_out_storages(frame)) return 0;
  for (int32_t i = 0; i < code->num_registers; ++i) {
    const Register *reg = &code->registers[i];
    char *base = NULL;
    if (reg->memory_kind == BYOC_TENSOR) base = frame->storage_starts[reg->owner];
    if (reg->memory_kind == BYOC_VIEW) base = frame->frame.tensors[reg->owner].data;
    if (reg->memory_kind == BYOC_CONSTANT) base = PyArray_BYTES((PyArrayObject *)reg->array);
    frame->frame.tensors[i].data = base ? base + frame->sizes[reg->offset] : NULL;
  }
  frame->is_laid_out = 1;
  return 1;
}

void byoc_frame_point(FrameObject *frame, int32_t first, PyObject *const *arrays, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyArrayObject *array = (PyArrayObject *)arrays[i];
    if (!array) continue;
    DLTensor *tensor = &frame->frame.tensors[first + i];
    tensor->data = PyArray_DATA(array);
    for (int axis = 0; axis < tensor->ndim; ++axis) tensor->shape[axis] = PyArray_DIM(array, axis);
  }
}

void byoc_frame_point_views(FrameObject *frame) {
  for (int32_t i = 0; i < frame->code->num_argument_views; ++i) {
    const int32_t index = frame->code->argument_views[i];
    const Register *reg = &frame->code->registers[index];
    frame->frame.tensors[index].data = (char *)frame->frame.tensors[reg->owner].data + frame->sizes[reg->offset];
  }
}

void byoc_frame_release_arguments(FrameObject *frame) {
  const CodeObject *code = frame->code;
  for (int32_t i = 0; i < code->num_registers && code->registers[i].memory_kind == BYOC_ARGUMENT; ++i)
    Py_CLEAR(frame->arrays[i]);
  for (int32_t i = 0; i < code->num_argument_views; ++i) Py_CLEAR(frame->arrays[code->argument_views[i]]);
}

void byoc_frame_release_arrays(FrameObject *frame) {
  for (int32_t i = 0; i < frame->code->num_registers; ++i) Py_CLEAR(frame->arrays[i]);
}

static PyObject *make_array(FrameObject *frame, int32_t index, PyObject *base) {
  const Register *reg = &frame->code->registers[index];
  const DLTensor *tensor = &frame->frame.tensors[index];
  npy_intp shape[BYOC_MAX_NDIM], strides[BYOC_MAX_NDIM];
  for (int32_t axis = 0; axis < reg->ndim; ++axis) {
    shape[axis] = (npy_intp)tensor->shape[axis];
    if (reg->is_strided) strides[axis] = (npy_intp)(tensor->strides[axis] * reg->itemsize);
  }
  const int flags = PyArray_ISWRITEABLE((PyArrayObject *)base) ? NPY_ARRAY_CARRAY : NPY_ARRAY_CARRAY_RO;
  Py_INCREF((PyObject *)reg->descr);
  PyObject *array = PyArray_NewFromDescr(&PyArray_Type, reg->descr, reg->ndim, shape,
                                         reg->is_strided ? strides : NULL, tensor->data, flags, NULL);
  if (!array) return NULL;
  if (PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(base))) Py_CLEAR(array);
  return array;
}

PyObject *byoc_frame_array(FrameObject *frame, int32_t index) {
  const Register *reg = &frame->code->registers[index];
  if (reg->memory_kind == BYOC_CONSTANT) return Py_NewRef(reg->array);
  if (!frame->arrays[index]) {
    PyObject *base = NULL;
    if (reg->memory_kind == BYOC_VIEW) base = byoc_frame_array(frame, reg->owner);
    if (reg->memory_kind == BYOC_TENSOR) base = Py_NewRef(frame->arena);
    if (!base) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "an argument is missing");
      return NULL;
    }
    PyObject *array = make_array(frame, index, base);
    Py_DECREF(base);
    if (!array) return NULL;
    frame->arrays[index] = array;
  }
  return Py_NewRef(frame->arrays[index]);
}

static PyObject *frame_lay_out(FrameObject *self, PyObject *args) {
  PyObject *sizes;
  if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &sizes)) return NULL;
  if (PyTuple_Size(sizes) != self->code->num_symbols) {
    PyErr_SetString(PyExc_ValueError, "a frame needs a size for each symbol");
    return NULL;
  }
  self->is_laid_out = 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(sizes); ++i) {
    const long long size = PyLong_AsLongLong(PyTuple_GetItem(sizes, i));
    if (size == -1 && PyErr_Occurred()) return NULL;
    self->sizes[i] = size;
  }
  return PyBool_FromLong(byoc_frame_compute(self) && byoc_frame_lay_out(self));
}

static PyObject *frame_point(FrameObject *self, PyObject *args) {
  int first;
  PyObject *array_list;
  if (!PyArg_ParseTuple(args, "iO!", &first, &PyList_Type, &array_list)) return NULL;
  const Py_ssize_t count = PyList_Size(array_list);
  if (first < 0 || first + count > self->code->num_registers) {
    PyErr_SetString(PyExc_ValueError, "too many arrays for the registers of the frame");
    return NULL;
  }
  PyObject **arrays = PyMem_Calloc((size_t)count + 1, sizeof *arrays);
  if (!arrays) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *array = PyList_GetItem(array_list, i);
    if (array == Py_None) continue;
    arrays[i] = array;
    if (!PyArray_Check(array) || self->frame.tensors[first + i].ndim != PyArray_NDIM((PyArrayObject *)array)) {
      PyErr_SetString(PyExc_TypeError, "a register needs an array of equal rank");
      PyMem_Free(arrays);
      return NULL;
    }
  }
  byoc_frame_point(self, (int32_t)first, arrays, count);
  byoc_frame_point_views(self);
  PyMem_Free(arrays);
  Py_RETURN_NONE;
}

static PyObject *frame_run(FrameObject *self, PyObject *args) {
  int index;
  if (!PyArg_ParseTuple(args, "i", &index)) return NULL;
  if (index < 0 || index >= self->code->num_instructions) {
    PyErr_SetString(PyExc_ValueError, "the instruction number is out of range");
    return NULL;
  }
  if (self->is_running || !self->is_laid_out) {
    PyErr_SetString(PyExc_RuntimeError, self->is_running ? "the frame is running" : "the frame is not laid out");
    return NULL;
  }
  self->is_running = 1;
  index = byoc_frame_run(self, index);
  self->is_running = 0;
  return index < 0 ? NULL : PyLong_FromLong(index);
}

static PyObject *frame_get_arena(FrameObject *self, void *closure) {
  return Py_NewRef(self->arena ? self->arena : Py_None);
}

static int frame_traverse(FrameObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->code);
  Py_VISIT(self->arena);
  for (int32_t i = 0; self->block && i < self->code->num_registers; ++i) Py_VISIT(self->arrays[i]);
  return 0;
}

static int frame_clear(FrameObject *self) {
  if (self->block) byoc_frame_release_arrays(self);
  return 0;
}

static void frame_dealloc(FrameObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  frame_clear(self);
  Py_CLEAR(self->arena);
  Py_CLEAR(self->code);
  PyMem_Free(self->block);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyGetSetDef frame_getset[] = {
    {"arena", (getter)frame_get_arena, NULL, "The bytes of intermediates; None before `lay_out`.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef frame_methods[] = {
    {"lay_out", (PyCFunction)frame_lay_out, METH_VARARGS,
     "lay_out(sizes)\n--\n\nSet the shapes and addresses of registers for the sizes of the symbols; False if a size has no "
     "value, or there is not enough memory."},
    {"point", (PyCFunction)frame_point, METH_VARARGS,
     "point(first, arrays)\n--\n\nPoint registers from `first` on to arrays of equal rank; None leaves a register unchanged."},
    {"run", (PyCFunction)frame_run, METH_VARARGS,
     "run(index)\n--\n\nRun instructions from `index` on; return the first instruction for Python, or the end of the function."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot frame_slots[] = {
    {Py_tp_doc, "Frame(code)\n--\n\nThe memory of a running call."},
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
