/* Creation queues as Python objects. */
#include "objects.h"

#include "creation.h"

typedef struct {
  PyObject_HEAD
  CreationQueue queue;
  PyObject *owner; /* keeps the library alive */
  PyObject *descs; /* a list: keeps the descriptors alive; NULL once finished */
} QueueObject;

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"create", "destroy", "set_num_threads", "num_threads", "max_creating", "owner", NULL};
  unsigned long long create, destroy, set_num_threads;
  int num_threads, max_creating;
  PyObject *owner;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KKKiiO", names, &create, &destroy, &set_num_threads, &num_threads,
                                   &max_creating, &owner))
    return NULL;
  if (!create || !destroy || num_threads < 1 || max_creating < 0) {
    PyErr_SetString(PyExc_ValueError, "a queue needs the addresses of functions, and numbers of threads");
    return NULL;
  }
  QueueObject *self = (QueueObject *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  CreationQueue *queue = &self->queue;
  queue->creator = (Creator){(int (*)(void **, const void *))(uintptr_t)create, (int (*)(void *))(uintptr_t)destroy,
                             (void (*)(int))(uintptr_t)set_num_threads};
  queue->num_threads = num_threads;
  queue->max_creating = max_creating < MAX_CREATING_THREADS ? max_creating : MAX_CREATING_THREADS;
  self->owner = Py_NewRef(owner);
  if (byoc_open_queue(queue)) {
    queue->creator.create = NULL; /* nothing to close */
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  self->descs = PyList_New(0);
  if (!self->descs) Py_CLEAR(self);
  return (PyObject *)self;
}

static PyObject *queue_add(QueueObject *self, PyObject *args) {
  unsigned long long address;
  PyObject *desc;
  if (!PyArg_ParseTuple(args, "KO", &address, &desc)) return NULL;
  if (!self->descs || !address) {
    PyErr_SetString(PyExc_ValueError, self->descs ? "a descriptor has no address" : "the queue is finished");
    return NULL;
  }
  if (PyList_Append(self->descs, desc)) return NULL;
  if (byoc_add_creation(&self->queue, (const void *)(uintptr_t)address)) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

static void finish(QueueObject *self) {
  Py_BEGIN_ALLOW_THREADS;
  byoc_finish_queue(&self->queue);
  Py_END_ALLOW_THREADS;
}

/* Returns (address, status) of each creation; the caller owns the primitives. */
static PyObject *queue_finish(QueueObject *self, PyObject *args) {
  int is_canceled = 0;
  if (!PyArg_ParseTuple(args, "|p", &is_canceled)) return NULL;
  PyObject *descs = self->descs;
  self->descs = NULL; /* no other thread finishes or adds */
  if (!descs) {
    PyErr_SetString(PyExc_ValueError, "the queue is finished");
    return NULL;
  }
  if (is_canceled) byoc_cancel_creations(&self->queue);
  finish(self);
  const int32_t count = self->queue.num_creations;
  PyObject *result = PyList_New(count);
  for (int32_t i = 0; result && i < count; ++i) {
    const Creation *creation = &self->queue.creations[i];
    PyObject *pair = Py_BuildValue("Ki", (unsigned long long)(uintptr_t)creation->primitive, (int)creation->status);
    if (!pair || PyList_SetItem(result, i, pair)) Py_CLEAR(result);
  }
  for (int32_t i = 0; result && i < count; ++i) self->queue.creations[i].primitive = NULL;
  Py_DECREF(descs);
  return result;
}

static void queue_dealloc(QueueObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  if (self->queue.creator.create) {
    byoc_cancel_creations(&self->queue);
    finish(self);
    byoc_close_queue(&self->queue);
  }
  Py_CLEAR(self->descs);
  Py_CLEAR(self->owner);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyMethodDef queue_methods[] = {
    {"add", (PyCFunction)queue_add, METH_VARARGS,
     "add(address, desc)\n--\n\nAdd the creation of a primitive, given the descriptor and its address."},
    {"finish", (PyCFunction)queue_finish, METH_VARARGS,
     "finish(is_canceled=False)\n--\n\nCreate the remaining primitives, or cancel them; return the address and the "
     "status of each. The address of a failed or canceled creation is 0."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot queue_slots[] = {
    {Py_tp_doc, "Queue(create, destroy, set_num_threads, num_threads, max_creating, owner)\n--\n\n"
                "Primitives being created by threads beside Python."},
    {Py_tp_new, queue_new},
    {Py_tp_methods, queue_methods},
    {Py_tp_dealloc, queue_dealloc},
    {0, NULL},
};

PyType_Spec byoc_queue_spec = {"byoc_dnnl._native.Queue", sizeof(QueueObject), 0, Py_TPFLAGS_DEFAULT, queue_slots};
