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

extern PyTypeObject *byoc_program_type;
extern PyType_Spec byoc_program_spec, byoc_region_spec;

#endif /* BYOC_DNNL_OBJECTS_H_ */
