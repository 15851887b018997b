/* The interpreter is looked up among the libraries of the process; no part of Python is linked. */
#include "byoc_python.h"

#include <stdlib.h>
#include <string.h>

static int32_t fail_without_python(const byoc_python_function *function, const char *problem) {
  return byoc_fail("RuntimeError", "function `%s`: %s, and %s", function->name, function->reason, problem);
}

#if defined(_WIN32)

int32_t byoc_run_in_python(const byoc_python_function *function, const TVMFFIAny *args, int32_t num_args) {
  (void)args;
  if (byoc_check_count(function->name, num_args, function->num_arguments)) return -1;
  return fail_without_python(function, "a library does not look for Python on Windows");
}

#else

/* Weak: before glibc 2.34, the library with dlsym is not loaded in every process. */
extern void *dlsym(void *library, const char *name) __attribute__((weak));
#if defined(__APPLE__)
#define ANY_LIBRARY ((void *)-2)
#else
#define ANY_LIBRARY ((void *)0)
#endif

/* Functions of Python's limited API, identical in all versions. */
typedef struct {
  int (*is_initialized)(void);
  int (*ensure)(void);
  void (*release)(int state);
  void *(*import)(const char *name);
  void *(*call_method)(void *object, const char *name, const char *format, ...);
  long (*as_long)(void *number);
  void (*release_object)(void *object);
  void (*clear_error)(void);
} python;

static int find(const char *name, void *pointer) {
  void *address = dlsym ? dlsym(ANY_LIBRARY, name) : NULL;
  memcpy(pointer, &address, sizeof(address));
  return address != NULL;
}

static int find_python(python *api) {
  return find("Py_IsInitialized", &api->is_initialized) && find("PyGILState_Ensure", &api->ensure) &&
         find("PyGILState_Release", &api->release) && find("PyImport_ImportModule", &api->import) &&
         find("PyObject_CallMethod", &api->call_method) && find("PyLong_AsLong", &api->as_long) &&
         find("Py_DecRef", &api->release_object) && find("PyErr_Clear", &api->clear_error) && api->is_initialized();
}

/* Size of a buffer for the name and text of an exception, each zero-terminated, filled in by Python. */
enum { ERROR_NBYTES = 1024 };

static int32_t call(const python *api, const byoc_python_function *function, const DLTensor *const *tensors) {
  void *module = api->import("byoc_core.artifact.embedded");
  if (!module) {
    api->clear_error();
    return fail_without_python(function, "this process's Python cannot import byoc_core.artifact.embedded "
                                         "(pip install byoc-core)");
  }
  char error[ERROR_NBYTES] = "RuntimeError\0it failed without a message";
  void *result = api->call_method(
      module, "call", "(KKsKiKi)", (unsigned long long)(uintptr_t)function->artifact,
      (unsigned long long)function->artifact_nbytes, function->name, (unsigned long long)(uintptr_t)tensors,
      (int)function->num_arguments, (unsigned long long)(uintptr_t)error, (int)sizeof error);
  api->release_object(module);
  const long status = result ? api->as_long(result) : -1;
  if (result) {
    api->release_object(result);
  } else {
    api->clear_error();
  }
  return status ? byoc_fail(error, "%s", error + strlen(error) + 1) : 0;
}

int32_t byoc_run_in_python(const byoc_python_function *function, const TVMFFIAny *args, int32_t num_args) {
  python api = {0};
  if (byoc_check_count(function->name, num_args, function->num_arguments)) return -1;
  if (!find_python(&api)) return fail_without_python(function, "this process has no Python");
  const DLTensor **tensors = malloc(((size_t)num_args + 1) * sizeof *tensors);
  if (!tensors) return byoc_fail("MemoryError", "function `%s`: out of memory", function->name);
  int32_t status = 0;
  for (int32_t i = 0; i < num_args && !status; ++i) {
    tensors[i] = byoc_tensor(function->name, function->argument_names[i], &args[i]);
    if (!tensors[i]) status = -1;
  }
  if (!status) {
    const int state = api.ensure();
    status = call(&api, function, tensors);
    api.release(state);
  }
  free(tensors);
  return status;
}

#endif
