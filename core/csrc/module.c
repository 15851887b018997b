/* The extension module `byoc_core._native`: runs the native calls of a program in a single run. */
#define BYOC_IMPORTS_NUMPY
#include "host_kernels.h"
#include "objects.h"
#include "recorder.h"
#include "string_kernels.h"
#include "team.h"
#include "vector_functions.h"

PyTypeObject *byoc_code_type, *byoc_frame_type, *byoc_plan_type;

static PyObject *add_type(PyObject *module, PyType_Spec *spec) {
  PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
  if (type && PyModule_AddType(module, (PyTypeObject *)type)) Py_CLEAR(type);
  return type;
}

/* Return the addresses of a function for all instruction sets of the processor, the fastest last. */
static PyObject *addresses_of(int function) {
  const byoc_vector_function *tables[BYOC_MAX_VECTOR_TABLES];
  const int count = byoc_find_vector_tables(tables);
  PyObject *addresses = PyTuple_New(count);
  for (int i = 0; addresses && i < count; ++i) {
    PyObject *address = PyLong_FromVoidPtr((void *)(uintptr_t)tables[i][function]);
    if (!address || PyTuple_SetItem(addresses, i, address)) Py_CLEAR(addresses);
  }
  return addresses;
}

static int add_vector_functions(PyObject *module) {
  PyObject *functions = PyDict_New();
  int failed = !functions;
  for (int i = 0; i < BYOC_NUM_VECTOR_FUNCTIONS && !failed; ++i) {
    PyObject *addresses = addresses_of(i);
    failed = !addresses || PyDict_SetItemString(functions, byoc_vector_names[i], addresses);
    Py_XDECREF(addresses);
  }
  failed = failed || PyModule_AddObjectRef(module, "VECTOR_FUNCTIONS", functions);
  Py_XDECREF(functions);
  return failed ? -1 : 0;
}

static int add_address(PyObject *module, const char *name, void (*function)(void)) {
  PyObject *address = PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)function);
  const int status = address ? PyModule_AddObjectRef(module, name, address) : -1;
  Py_XDECREF(address);
  return status;
}

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "byoc_core._native",
    .m_doc = "Run the native calls of a program in a single run, without the interpreter lock.",
    .m_size = -1,
    .m_methods = byoc_threads_methods,
};

PyMODINIT_FUNC PyInit__native(void) {
  static const struct {
    const char *name;
    int value;
  } operations[] = {
      {"PYTHON", BYOC_PYTHON}, {"RET", BYOC_RET},   {"CALL", BYOC_CALL},
      {"COPY", BYOC_COPY},     {"ZERO", BYOC_ZERO}, {"INCREMENT", BYOC_INCREMENT},
      {"LOOP_TEST", BYOC_LOOP_TEST}, {"IF", BYOC_IF}, {"GOTO", BYOC_GOTO},
      {"ARGUMENT", BYOC_ARGUMENT}, {"CONSTANT", BYOC_CONSTANT},
      {"TENSOR", BYOC_TENSOR}, {"VIEW", BYOC_VIEW},
      {"SIZE_CONSTANT", BYOC_SIZE_CONSTANT}, {"SIZE_UNKNOWN", BYOC_SIZE_UNKNOWN},
      {"SIZE_ADD", BYOC_SIZE_ADD}, {"SIZE_MULTIPLY", BYOC_SIZE_MULTIPLY},
      {"SIZE_FLOORDIV", BYOC_SIZE_FLOORDIV}, {"SIZE_MOD", BYOC_SIZE_MOD},
      {"SIZE_MAX", BYOC_SIZE_MAX}, {"SIZE_MIN", BYOC_SIZE_MIN},
      {"SIZE_BROADCAST", BYOC_SIZE_BROADCAST},
  };
  import_array();
  PyObject *module = PyModule_Create(&definition);
  if (!module) return NULL;
  for (size_t i = 0; i < sizeof operations / sizeof *operations; ++i) {
    if (PyModule_AddIntConstant(module, operations[i].name, operations[i].value)) goto fail;
  }
  if (add_address(module, "TEAM_RUNNER", (void (*)(void))byoc_team_run) ||
      add_address(module, "PART_MARKER", (void (*)(void))byoc_mark_part) ||
      PyModule_AddFunctions(module, byoc_recorder_methods) ||
      PyModule_AddFunctions(module, byoc_host_kernel_methods) ||
      PyModule_AddFunctions(module, byoc_string_kernel_methods) ||
      PyModule_AddFunctions(module, byoc_text_kernel_methods) ||
      PyModule_AddFunctions(module, byoc_value_object_methods) || add_vector_functions(module) ||
      byoc_add_native_types(module))
    goto fail;
  byoc_code_type = (PyTypeObject *)add_type(module, &byoc_code_spec);
  byoc_frame_type = (PyTypeObject *)add_type(module, &byoc_frame_spec);
  byoc_plan_type = (PyTypeObject *)add_type(module, &byoc_plan_spec);
  byoc_key_table_type = (PyTypeObject *)add_type(module, &byoc_key_table_spec);
  byoc_gram_tree_type = (PyTypeObject *)add_type(module, &byoc_gram_tree_spec);
  PyObject *entry_type = add_type(module, &byoc_entry_spec);
  PyObject *bound_type = add_type(module, &byoc_bound_spec);
  if (!byoc_code_type || !byoc_frame_type || !byoc_plan_type || !byoc_key_table_type || !byoc_gram_tree_type ||
      !entry_type || !bound_type)
    goto fail;
  Py_DECREF(entry_type);
  Py_DECREF(bound_type);
  return module;
fail:
  Py_DECREF(module);
  return NULL;
}
