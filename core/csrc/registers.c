#include "objects.h"

/* Read the index of a size. */
static int read_size_index(const CodeObject *self, PyObject *item, int32_t *out) {
  const long index = PyLong_AsLong(item);
  if (index == -1 && PyErr_Occurred()) return -1;
  if (index < 0 || index >= (long)self->num_symbols + self->num_operations) {
    PyErr_SetString(PyExc_ValueError, "the number of a size is out of range");
    return -1;
  }
  *out = (int32_t)index;
  return 0;
}

static int read_operation(const CodeObject *self, int32_t index, PyObject *item, byoc_size_operation *out) {
  int op, left, right;
  long long value;
  if (!PyArg_ParseTuple(item, "iiiL;an operation is (op, left, right, value)", &op, &left, &right, &value)) return -1;
  const int32_t num_earlier = self->num_symbols + index;
  const int is_constant = op == BYOC_SIZE_CONSTANT || op == BYOC_SIZE_UNKNOWN;
  if (op < 0 || op >= BYOC_NUM_SIZE_OPS || left < 0 || right < 0 ||
      (!is_constant && (left >= num_earlier || right >= num_earlier))) {
    PyErr_SetString(PyExc_ValueError, "an operation is unknown, or reads a later operation");
    return -1;
  }
  *out = (byoc_size_operation){op, is_constant ? 0 : left, is_constant ? 0 : right, value};
  return 0;
}

int byoc_read_sizes(CodeObject *self, PyObject *sizes) {
  int num_symbols;
  PyObject *operations, *storages;
  if (!PyArg_ParseTuple(sizes, "iO!O!;sizes are (number of symbols, operations, storages)", &num_symbols, &PyTuple_Type,
                        &operations, &PyTuple_Type, &storages))
    return -1;
  const Py_ssize_t num_operations = PyTuple_Size(operations), num_storages = PyTuple_Size(storages);
  if (num_symbols < 0 || num_symbols > INT32_MAX / 4 || num_operations > INT32_MAX / 4 || num_storages > INT32_MAX / 4) {
    PyErr_SetString(PyExc_ValueError, "a function has too many sizes");
    return -1;
  }
  self->operations = PyMem_Calloc((size_t)num_operations + 1, sizeof *self->operations);
  self->storages = PyMem_Calloc((size_t)num_storages + 1, sizeof *self->storages);
  if (!self->operations || !self->storages) {
    PyErr_NoMemory();
    return -1;
  }
  self->num_symbols = num_symbols;
  for (Py_ssize_t i = 0; i < num_operations; ++i)
    if (read_operation(self, (int32_t)i, PyTuple_GetItem(operations, i), &self->operations[i])) return -1;
  self->num_operations = (int32_t)num_operations;
  for (Py_ssize_t i = 0; i < num_storages; ++i)
    if (read_size_index(self, PyTuple_GetItem(storages, i), &self->storages[i])) return -1;
  self->num_storages = (int32_t)num_storages;
  return 0;
}

static int read_dims(const CodeObject *self, Register *out, PyObject *shape, PyObject *strides) {
  const Py_ssize_t ndim = PyTuple_Size(shape);
  const int is_strided = strides != Py_None;
  if (ndim > BYOC_MAX_NDIM || (is_strided && (!PyTuple_Check(strides) || PyTuple_Size(strides) != ndim))) {
    PyErr_SetString(PyExc_ValueError, "a register has too many axes, or another number of strides than axes");
    return -1;
  }
  out->ndim = (int32_t)ndim;
  out->is_strided = is_strided;
  out->dims = PyMem_Calloc((size_t)(2 * ndim + 1), sizeof *out->dims);
  if (!out->dims) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < ndim * (1 + is_strided); ++i) {
    PyObject *item = i < ndim ? PyTuple_GetItem(shape, i) : PyTuple_GetItem(strides, i - ndim);
    if (read_size_index(self, item, &out->dims[i])) return -1;
  }
  return 0;
}

/* Return whether the memory of a register exists. */
static int has_memory(const CodeObject *self, const Register *reg, Py_ssize_t count) {
  switch (reg->memory_kind) {
    case BYOC_TENSOR:
      return reg->owner >= 0 && reg->owner < self->num_storages;
    case BYOC_VIEW:
      return reg->owner >= 0 && reg->owner < count && self->registers[reg->owner].memory_kind != BYOC_VIEW &&
             self->registers[reg->owner].memory_kind != BYOC_UNUSED;
    case BYOC_CONSTANT:
      return PyArray_Check(reg->array);
    default:
      return reg->memory_kind == BYOC_ARGUMENT;
  }
}

static int read_register(CodeObject *self, Py_ssize_t index, PyObject *item) {
  Register *out = &self->registers[index];
  int dtype_code, bits, offset;
  Py_ssize_t itemsize;
  PyArray_Descr *descr;
  PyObject *shape, *strides, *array;
  if (item == Py_None) return 0;
  if (!PyArg_ParseTuple(item,
                        "iiiinO!O!OiO;a register is (memory kind, owner, dtype code, bits, itemsize, dtype, shape, strides, "
                        "offset, array)",
                        &out->memory_kind, &out->owner, &dtype_code, &bits, &itemsize, &PyArrayDescr_Type, &descr,
                        &PyTuple_Type, &shape, &strides, &offset, &array))
    return -1;
  out->dtype = (DLDataType){(uint8_t)dtype_code, (uint8_t)bits, 1};
  out->itemsize = itemsize;
  Py_INCREF((PyObject *)descr);
  out->descr = descr;
  out->array = Py_NewRef(array);
  if (offset < 0 || offset >= self->num_symbols + self->num_operations) {
    PyErr_SetString(PyExc_ValueError, "a register has no offset");
    return -1;
  }
  out->offset = offset;
  if (read_dims(self, out, shape, strides)) return -1;
  if (!has_memory(self, out, index)) {
    PyErr_SetString(PyExc_ValueError, "a register lies outside all storages");
    return -1;
  }
  return 0;
}

int byoc_read_registers(CodeObject *self, PyObject *registers) {
  const Py_ssize_t count = PyTuple_Size(registers);
  if (count > INT32_MAX / 4) {
    PyErr_SetString(PyExc_ValueError, "a function has too many registers");
    return -1;
  }
  self->registers = PyMem_Calloc((size_t)count + 1, sizeof *self->registers);
  self->argument_views = PyMem_Calloc((size_t)count + 1, sizeof *self->argument_views);
  if (!self->registers || !self->argument_views) {
    PyErr_NoMemory();
    return -1;
  }
  self->num_registers = (int32_t)count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (read_register(self, i, PyTuple_GetItem(registers, i))) return -1;
    const Register *reg = &self->registers[i];
    if (reg->memory_kind == BYOC_VIEW && self->registers[reg->owner].memory_kind == BYOC_ARGUMENT)
      self->argument_views[self->num_argument_views++] = (int32_t)i;
  }
  return 0;
}

void byoc_free_registers(CodeObject *self) {
  for (int32_t i = 0; i < self->num_registers; ++i) {
    Py_XDECREF((PyObject *)self->registers[i].descr);
    Py_XDECREF(self->registers[i].array);
    PyMem_Free(self->registers[i].dims);
  }
  PyMem_Free(self->registers);
  PyMem_Free(self->argument_views);
  PyMem_Free(self->operations);
  PyMem_Free(self->storages);
}
