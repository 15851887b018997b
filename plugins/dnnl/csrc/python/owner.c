/* Owners of objects of oneDNN: capsules that free the object at once, without a call of Python. */
#include "objects.h"

static atomic_int is_ending; /* the process ends: the system frees everything, and libraries may be unloaded before */

static void free_object(PyObject *owner) {
  int (*destroy)(void *) = (int (*)(void *))(uintptr_t)PyCapsule_GetContext(owner);
  if (!atomic_load(&is_ending)) (void)destroy(PyCapsule_GetPointer(owner, NULL));
}

PyObject *byoc_own(PyObject *module, PyObject *const *args, Py_ssize_t num_args) {
  if (num_args != 2) return PyErr_Format(PyExc_TypeError, "own takes 2 addresses, got %zd", num_args);
  void *addresses[2];
  for (int i = 0; i < 2; ++i) {
    addresses[i] = PyLong_AsVoidPtr(args[i]);
    if (PyErr_Occurred()) return NULL;
    if (!addresses[i]) return PyErr_Format(PyExc_ValueError, "an address is 0");
  }
  PyObject *owner = PyCapsule_New(addresses[0], NULL, NULL);
  if (!owner) return NULL;
  if (PyCapsule_SetContext(owner, addresses[1]) || PyCapsule_SetDestructor(owner, free_object)) Py_CLEAR(owner);
  return owner;
}

PyObject *byoc_stop_freeing(PyObject *module, PyObject *unused) {
  atomic_store(&is_ending, 1);
  Py_RETURN_NONE;
}
