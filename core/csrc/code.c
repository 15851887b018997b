#include "objects.h"

static int read_instruction(CodeObject *self, PyObject *item, byoc_instruction *out, int32_t *num_operands) {
  PyObject *registers, *step;
  int op, target;
  unsigned long long function, context;
  if (!PyArg_ParseTuple(item, "iO!iKKO;an instruction is (op, registers, target, function, context, step)", &op,
                        &PyTuple_Type, &registers, &target, &function, &context, &step))
    return -1;
  Py_ssize_t count = PyTuple_Size(registers);
  if (op < 0 || op >= BYOC_NUM_OPS || target < 0 || target >= self->num_instructions || (op == BYOC_CALL && !function)) {
    PyErr_SetString(PyExc_ValueError, "an instruction has an unknown operation, a bad target or no function");
    return -1;
  }
  static const int min_operands[BYOC_NUM_OPS] = {[BYOC_COPY] = 2, [BYOC_ZERO] = 1,      [BYOC_INCREMENT] = 1,
                                                   [BYOC_IF] = 1,   [BYOC_LOOP_TEST] = 4};
  if (count < min_operands[op]) {
    PyErr_SetString(PyExc_ValueError, "an instruction has too few operands");
    return -1;
  }
  *out = (byoc_instruction){op,     *num_operands, (int32_t)count, target, (byoc_function)(uintptr_t)function,
                            (void *)(uintptr_t)context};
  if (step != Py_None) {
    self->steps[out - self->instructions] = Py_NewRef(step);
    self->has_steps = 1;
  }
  int32_t *operands = PyMem_Realloc(self->operands, (size_t)(*num_operands + count + 1) * sizeof *operands);
  if (!operands) {
    PyErr_NoMemory();
    return -1;
  }
  self->operands = operands;
  for (Py_ssize_t i = 0; i < count; ++i) {
    long index = PyLong_AsLong(PyTuple_GetItem(registers, i));
    if (index == -1 && PyErr_Occurred()) return -1;
    if (index < 0 || index >= self->num_registers || self->registers[index].memory_kind == BYOC_UNUSED) {
      PyErr_SetString(PyExc_ValueError, "an instruction names a register without memory");
      return -1;
    }
    self->operands[(*num_operands)++] = (int32_t)index;
  }
  return 0;
}

static PyObject *code_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"instructions", "registers", "sizes", "fail", "num_threads", "record", NULL};
  PyObject *instructions, *registers, *sizes, *fail, *record = Py_None;
  int num_threads = -1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O|iO", names, &PyTuple_Type, &instructions, &PyTuple_Type,
                                   &registers, &PyTuple_Type, &sizes, &fail, &num_threads, &record))
    return NULL;
  Py_ssize_t count = PyTuple_Size(instructions);
  if (count == 0 || count > INT32_MAX / 2) {
    PyErr_SetString(PyExc_ValueError, "a function needs at least one instruction");
    return NULL;
  }
  CodeObject *self = (CodeObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->fail = Py_NewRef(fail);
  self->record = record == Py_None ? NULL : Py_NewRef(record);
  self->num_threads = num_threads;
  if (byoc_read_sizes(self, sizes) || byoc_read_registers(self, registers)) {
    Py_DECREF(self);
    return NULL;
  }
  self->instructions = PyMem_Calloc((size_t)count, sizeof *self->instructions);
  self->steps = PyMem_Calloc((size_t)count, sizeof *self->steps);
  if (!self->instructions || !self->steps) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  self->num_instructions = (int32_t)count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (read_instruction(self, PyTuple_GetItem(instructions, i), &self->instructions[i], &self->num_operands)) {
      Py_DECREF(self);
      return NULL;
    }
  }
  byoc_instruction *last = &self->instructions[count - 1];
  if (last->op != BYOC_RET && last->op != BYOC_GOTO && last->op != BYOC_PYTHON) {
    Py_DECREF(self);
    PyErr_SetString(PyExc_ValueError, "the last instruction does not end the function");
    return NULL;
  }
  return (PyObject *)self;
}

static int code_traverse(CodeObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->fail);
  Py_VISIT(self->record);
  for (int32_t i = 0; i < self->num_instructions; ++i) Py_VISIT(self->steps[i]);
  for (int32_t i = 0; i < self->num_registers; ++i) Py_VISIT(self->registers[i].array);
  return 0;
}

static int code_clear(CodeObject *self) {
  Py_CLEAR(self->fail);
  Py_CLEAR(self->record);
  for (int32_t i = 0; i < self->num_instructions; ++i) Py_CLEAR(self->steps[i]);
  return 0;
}

static void code_dealloc(CodeObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  code_clear(self);
  PyMem_Free(self->instructions);
  PyMem_Free(self->steps);
  PyMem_Free(self->operands);
  byoc_free_registers(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyType_Slot code_slots[] = {
    {Py_tp_doc, "Code(instructions, registers, sizes, fail, num_threads=-1, record=None)\n--\n\nA function, without memory."},
    {Py_tp_new, code_new},
    {Py_tp_traverse, code_traverse},
    {Py_tp_clear, code_clear},
    {Py_tp_dealloc, code_dealloc},
    {0, NULL},
};

PyType_Spec byoc_code_spec = {"byoc_core._native.Code", sizeof(CodeObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                              code_slots};
