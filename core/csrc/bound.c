#include "objects.h"

#include <pthread.h>

/* A function with a frame pointing permanently to fixed inputs and outputs. */
typedef struct {
  PyObject_HEAD
  FrameObject *frame;
  PyObject *results;
  PyThread_type_lock lock;      /* held while the frame runs */
  unsigned num_forks;           /* of the last process to take the lock */
  unsigned long running_thread; /* the thread running the frame, if any */
  int is_running;
} BoundObject;

static unsigned num_forks; /* forks between the process loading the extension and this process */

static void count_fork(void) { ++num_forks; }
static void register_fork_handler(void) { (void)pthread_atfork(NULL, NULL, count_fork); }

/* Take the lock; fail in the thread holding the lock. */
static int acquire_frame(BoundObject *self) {
  const unsigned long thread = PyThread_get_thread_ident();
  if (self->is_running && self->running_thread == thread && self->num_forks == num_forks) {
    PyErr_SetString(PyExc_RuntimeError, "a bound function cannot be called inside itself in one thread");
    return -1;
  }
  int is_locked = PyThread_acquire_lock(self->lock, NOWAIT_LOCK);
  if (!is_locked && self->num_forks != num_forks) {
    /* The holder is a thread missing in this forked process. A locked lock cannot be freed. */
    PyThread_type_lock lock = PyThread_allocate_lock();
    if (!lock) {
      PyErr_NoMemory();
      return -1;
    }
    self->lock = lock;
    is_locked = PyThread_acquire_lock(lock, NOWAIT_LOCK);
  }
  if (!is_locked) {
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS;
  }
  self->running_thread = thread;
  self->num_forks = num_forks;
  self->is_running = 1;
  return 0;
}

static void release_frame(BoundObject *self) {
  self->is_running = 0;
  PyThread_release_lock(self->lock);
}

/* Point a laid-out frame to arrays, kept alive by the frame. */
static int attach_arrays(FrameObject *frame, PyObject *arrays) {
  const Py_ssize_t count = PyTuple_Size(arrays);
  if (count > frame->code->num_registers || !frame->is_laid_out) {
    PyErr_SetString(PyExc_ValueError, "too many arrays for the registers of the frame, or the frame is not laid out");
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *array = PyTuple_GetItem(arrays, i);
    const Register *reg = &frame->code->registers[i];
    if (!PyArray_Check(array) || reg->memory_kind != BYOC_ARGUMENT || reg->ndim != PyArray_NDIM((PyArrayObject *)array)) {
      PyErr_SetString(PyExc_TypeError, "a register needs an array of equal rank");
      return -1;
    }
    PyObject *replaced = frame->arrays[i];
    frame->arrays[i] = Py_NewRef(array);
    Py_XDECREF(replaced);
  }
  byoc_frame_point(frame, 0, frame->arrays, count);
  byoc_frame_point_views(frame);
  return 0;
}

static PyObject *bound_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"frame", "arrays", "results", NULL};
  static pthread_once_t fork_handler_once = PTHREAD_ONCE_INIT;
  PyObject *frame, *arrays, *results;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O", names, byoc_frame_type, &frame, &PyTuple_Type, &arrays, &results))
    return NULL;
  if (attach_arrays((FrameObject *)frame, arrays)) return NULL;
  (void)pthread_once(&fork_handler_once, register_fork_handler);
  BoundObject *self = (BoundObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->num_forks = num_forks;
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
  if (PyTuple_Size(args) || (kwargs && PyDict_Size(kwargs))) {
    PyErr_SetString(PyExc_TypeError, "a bound function takes no arguments: its buffers are fixed");
    return NULL;
  }
  if (acquire_frame(self)) return NULL;
  const int status = byoc_frame_run_to_end(self->frame);
  release_frame(self);
  return status ? NULL : Py_NewRef(self->results);
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
    {Py_tp_doc, "Bound(frame, arrays, results)\n--\n\nRun a laid-out frame on these arrays and return `results`. Calls "
                "from several threads wait for each other; a nested call fails."},
    {Py_tp_new, bound_new},
    {Py_tp_call, bound_call},
    {Py_tp_traverse, bound_traverse},
    {Py_tp_clear, bound_clear},
    {Py_tp_dealloc, bound_dealloc},
    {0, NULL},
};

PyType_Spec byoc_bound_spec = {"byoc_core._native.Bound", sizeof(BoundObject), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, bound_slots};
