#include "objects.h"

#include <pthread.h>

/* A function whose frame points to its inputs and outputs for good. */
typedef struct {
  PyObject_HEAD
  FrameObject *frame;
  PyObject *results, *fallback;
  PyThread_type_lock lock; /* held while the frame runs */
  unsigned num_forks;      /* of the process that took it last */
  unsigned long runner;    /* the thread that runs the frame, where one does */
  int is_running;
} BoundObject;

static unsigned num_forks; /* that lead from the process that loaded the extension to this one */

static void in_child(void) { ++num_forks; }
static void count_forks(void) { (void)pthread_atfork(NULL, NULL, in_child); }

/* Takes the lock; fails in the thread that has it. */
static int begin(BoundObject *self) {
  const unsigned long thread = PyThread_get_thread_ident();
  if (self->is_running && self->runner == thread && self->num_forks == num_forks) {
    PyErr_SetString(PyExc_RuntimeError, "a bound function is called while it runs in this thread");
    return -1;
  }
  int is_taken = PyThread_acquire_lock(self->lock, NOWAIT_LOCK);
  if (!is_taken && self->num_forks != num_forks) {
    /* A thread has it that this forked process does not have. What is locked cannot be freed. */
    PyThread_type_lock lock = PyThread_allocate_lock();
    if (!lock) {
      PyErr_NoMemory();
      return -1;
    }
    self->lock = lock;
    is_taken = PyThread_acquire_lock(lock, NOWAIT_LOCK);
  }
  if (!is_taken) {
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS;
  }
  self->runner = thread;
  self->num_forks = num_forks;
  self->is_running = 1;
  return 0;
}

static void end(BoundObject *self) {
  self->is_running = 0;
  PyThread_release_lock(self->lock);
}

static PyObject *bound_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"frame", "results", "fallback", NULL};
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  PyObject *frame, *results, *fallback;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO", names, byoc_frame_type, &frame, &results, &fallback))
    return NULL;
  (void)pthread_once(&once, count_forks);
  BoundObject *self = (BoundObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->num_forks = num_forks;
  self->frame = (FrameObject *)Py_NewRef(frame);
  self->results = Py_NewRef(results);
  self->fallback = Py_NewRef(fallback);
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
  if (begin(self)) return NULL;
  int32_t index = byoc_frame_run(self->frame, 0);
  end(self);
  if (index < 0) return NULL;
  return byoc_frame_is_finished(self->frame, index) ? Py_NewRef(self->results) : PyObject_CallNoArgs(self->fallback);
}

static int bound_traverse(BoundObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->frame);
  Py_VISIT(self->results);
  Py_VISIT(self->fallback);
  return 0;
}

static int bound_clear(BoundObject *self) {
  Py_CLEAR(self->results);
  Py_CLEAR(self->fallback);
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
    {Py_tp_doc, "Bound(frame, results, fallback)\n--\n\nRuns a frame whose registers all point somewhere; gives `results`, or "
                "what fallback() gives where the frame stops before its end. Calls from several threads wait for each "
                "other; one inside another fails."},
    {Py_tp_new, bound_new},
    {Py_tp_call, bound_call},
    {Py_tp_traverse, bound_traverse},
    {Py_tp_clear, bound_clear},
    {Py_tp_dealloc, bound_dealloc},
    {0, NULL},
};

PyType_Spec byoc_bound_spec = {"byoc_core._native.Bound", sizeof(BoundObject), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, bound_slots};
