#include "objects.h"

/* A function for callers: native if the arguments fit the plan, else executed by Python. */
typedef struct {
  PyObject_HEAD
  PyObject *fallback;
  PlanObject *plan;
} EntryObject;

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"plan", "fallback", NULL};
  PyObject *plan, *fallback;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O", names, byoc_plan_type, &plan, &fallback)) return NULL;
  EntryObject *self = (EntryObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->plan = (PlanObject *)Py_NewRef(plan);
  self->fallback = Py_NewRef(fallback);
  return (PyObject *)self;
}

/* Return NULL without an exception if Python must run the function. */
static PyObject *call_plan(PlanObject *plan, PyObject *args) {
  PyObject *stack_inputs[16], **inputs = stack_inputs;
  Py_ssize_t count = plan->num_inputs;
  if (PyTuple_Size(args) != count) return NULL;
  if (count > 16 && !(inputs = PyMem_Calloc((size_t)count, sizeof *inputs))) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) inputs[i] = PyTuple_GetItem(args, i);
  PyObject *result = byoc_plan_run(plan, inputs, NULL);
  if (inputs != stack_inputs) PyMem_Free(inputs);
  return result;
}

static PyObject *entry_call(EntryObject *self, PyObject *args, PyObject *kwargs) {
  if (!kwargs || !PyDict_Size(kwargs)) {
    PyObject *result = call_plan(self->plan, args);
    if (result || PyErr_Occurred()) return result;
  }
  return PyObject_Call(self->fallback, args, kwargs);
}

static int entry_traverse(EntryObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->fallback);
  Py_VISIT(self->plan);
  return 0;
}

static int entry_clear(EntryObject *self) {
  Py_CLEAR(self->fallback);
  Py_CLEAR(self->plan);
  return 0;
}

static void entry_dealloc(EntryObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  entry_clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyType_Slot entry_slots[] = {
    {Py_tp_doc, "Entry(plan, fallback)\n--\n\nA function for callers: native if the arguments fit the plan, else "
                "fallback(*arguments)."},
    {Py_tp_new, entry_new},
    {Py_tp_call, entry_call},
    {Py_tp_traverse, entry_traverse},
    {Py_tp_clear, entry_clear},
    {Py_tp_dealloc, entry_dealloc},
    {0, NULL},
};

PyType_Spec byoc_entry_spec = {"byoc_core._native.Entry", sizeof(EntryObject), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, entry_slots};
