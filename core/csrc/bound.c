#include "objects.h"

/* A function whose frame points to its inputs and outputs for good. */
typedef struct {
  PyObject_HEAD
  FrameObject *frame;
  PyObject *results;
  PyThread_type_lock lock; /* held while the frame runs */
} BoundObject;

static PyObject *bound_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"frame", "results", NULL};
  PyObject *frame, *results;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O", names, byoc_frame_type, &frame, &results)) return NULL;
  BoundObject *self = (BoundObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->frame = (FrameObject *)Py_NewRef(frame);
  self->results = Py_NewRef(results);
  self->lock = PyThread_allocate_lock();
  if (!self->lock) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return (PyObject *)self;
}

static PyObject *bound_call(BoundObject *self, PyObject *args, PyObject *kwargs) {
  if (PyTuple_Size(args) || kwargs) {
    PyErr_SetString(PyExc_TypeError, "a bound function takes no arguments: its buffers are fixed");
    return NULL;
  }
  if (!PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS;
  }
  int32_t index = byoc_frame_run(self->frame, 0);
  PyThread_release_lock(self->lock);
  if (index < 0) return NULL;
  if (!byoc_frame_is_finished(self->frame, index)) {
    PyErr_SetString(PyExc_RuntimeError, "a bound function has an instruction that is not native");
    return NULL;
  }
  return Py_NewRef(self->results);
}

static int bound_traverse(BoundObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->frame);
  Py_VISIT(self->results);
  return 0;
}

static int bound_clear(BoundObject *self) {
  Py_CLEAR(self->results);
  return 0;
}

static void bound_dealloc(BoundObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  bound_clear(self);
  Py_CLEAR(self->frame);
  if (self->lock) PyThread_free_lock(self->lock);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyType_Slot bound_slots[] = {
    {Py_tp_doc, "Bound(frame, results)\n--\n\nRuns a frame whose registers all point somewhere; gives `results`. Calls from "
                "several threads wait for each other."},
    {Py_tp_new, bound_new},
    {Py_tp_call, bound_call},
    {Py_tp_traverse, bound_traverse},
    {Py_tp_clear, bound_clear},
    {Py_tp_dealloc, bound_dealloc},
    {0, NULL},
};

PyType_Spec byoc_bound_spec = {"byoc_core._native.Bound", sizeof(BoundObject), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, bound_slots};
