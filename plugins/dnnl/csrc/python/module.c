/* The extension module `byoc_dnnl._native`: runs the primitives of a region in a single call. */
#include "objects.h"

static PyObject *add_type(PyObject *module, PyType_Spec *spec) {
  PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
  if (type && PyModule_AddType(module, (PyTypeObject *)type)) Py_CLEAR(type);
  return type;
}

static PyMethodDef methods[] = {
    {"describe", (PyCFunction)(void (*)(void))byoc_describe, METH_FASTCALL,
     "Return the numbers of a memory description of oneDNN."},
    {"own", (PyCFunction)(void (*)(void))byoc_own, METH_FASTCALL,
     "Return an owner of an object of oneDNN, given the addresses of the object and of the function that frees it."},
    {"stop_freeing", byoc_stop_freeing, METH_NOARGS, "Keep the objects of owners collected later: the process ends."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "byoc_dnnl._native",
    .m_doc = "Run the primitives of a region in a single run, without the interpreter lock.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void) {
  static const struct {
    const char *name;
    int value;
  } constants[] = {
      {"ARGUMENT", ARGUMENT},
      {"CONSTANT", CONSTANT},
      {"ARENA", ARENA},
      {"EXECUTE", EXECUTE},
      {"CHECK", CHECK},
      {"COMPUTE", COMPUTE},
      {"POOL", POOL},
      {"QUANTISE", QUANTISE},
      {"MULTIPLY", MULTIPLY},
      {"PANEL_COLUMNS", BYOC_PANEL_COLUMNS},
  };
  if (byoc_register_fork_handlers()) return PyErr_NoMemory();
  PyObject *module = PyModule_Create(&definition);
  if (!module) return NULL;
  for (size_t i = 0; i < sizeof constants / sizeof *constants; ++i)
    if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value)) goto fail;
  byoc_program_type = (PyTypeObject *)add_type(module, &byoc_program_spec);
  PyObject *region_type = add_type(module, &byoc_region_spec), *queue_type = add_type(module, &byoc_queue_spec);
  Py_XDECREF(region_type);
  Py_XDECREF(queue_type);
  if (!byoc_program_type || !region_type || !queue_type) goto fail;
  return module;
fail:
  Py_DECREF(module);
  return NULL;
}
