/* The extension's types. */
#ifndef BYOC_DNNL_OBJECTS_H_
#define BYOC_DNNL_OBJECTS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "program.h"

/* A program, with the Python objects behind its tables. */
typedef struct {
  PyObject_HEAD
  Program program;
  PyObject *owner; /* keeps the objects behind the tables alive */
  PyObject *error; /* error(operation, step, status) returns an exception */
} ProgramObject;

/* describe(query, get_size, desc): the numbers of a memory description, given the addresses of oneDNN's
 * dnnl_memory_desc_query and dnnl_memory_desc_get_size, as a tuple: kind, dtype, sizes, padded sizes, strides, offset,
 * sizes and axes of blocks. */
PyObject *byoc_describe(PyObject *module, PyObject *const *args, Py_ssize_t num_args);

/* own(object, destroy): an owner of an object of oneDNN: frees the object by the function at an address when collected.
 * stop_freeing(): owners collected later free nothing. */
PyObject *byoc_own(PyObject *module, PyObject *const *args, Py_ssize_t num_args);
PyObject *byoc_stop_freeing(PyObject *module, PyObject *unused);

extern PyTypeObject *byoc_program_type;
extern PyType_Spec byoc_program_spec, byoc_region_spec, byoc_queue_spec;

#endif /* BYOC_DNNL_OBJECTS_H_ */
