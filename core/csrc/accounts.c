/* The functions of threads.h for Python, as needed by byoc_core.runtime.threads.worker_accounts. */
#include "objects.h"
#include "spread.h"
#include "threads.h"

static PyObject *threads_enter(PyObject *module, PyObject *wanted) {
  const long number = PyLong_AsLong(wanted);
  if (number == -1 && PyErr_Occurred()) return NULL;
  const byoc_call call = byoc_threads_enter((int)number);
  return Py_BuildValue("(iii)", call.previous, call.workers, call.setting);
}

static PyObject *threads_leave(PyObject *module, PyObject *token) {
  byoc_call call;
  if (!PyArg_ParseTuple(token, "iii", &call.previous, &call.workers, &call.setting)) return NULL;
  byoc_threads_leave(call);
  Py_RETURN_NONE;
}

static PyObject *threads_number(PyObject *module, PyObject *unused) { return PyLong_FromLong(byoc_threads_number()); }

static PyObject *threads_set_limit(PyObject *module, PyObject *number) {
  const long limit = PyLong_AsLong(number);
  if (limit == -1 && PyErr_Occurred()) return NULL;
  byoc_threads_set_limit((int)limit);
  Py_RETURN_NONE;
}

static PyObject *threads_set_openmp(PyObject *module, PyObject *addresses) {
  unsigned long long max_threads, set_num_threads, pause, parallel, num_threads, thread_num;
  if (!PyArg_ParseTuple(addresses, "KKKKKK", &max_threads, &set_num_threads, &pause, &parallel, &num_threads, &thread_num))
    return NULL;
  byoc_regions regions = {0};
  if (parallel && num_threads && thread_num) {
    regions.parallel = (void (*)(void (*)(void *), void *, unsigned, unsigned))(uintptr_t)parallel;
    regions.max_threads = (int (*)(void))(uintptr_t)max_threads;
    regions.num_threads = (int (*)(void))(uintptr_t)num_threads;
    regions.thread_num = (int (*)(void))(uintptr_t)thread_num;
  }
  byoc_spread_set_openmp(regions);
  byoc_threads_set_openmp((int (*)(void))(uintptr_t)max_threads, (void (*)(int))(uintptr_t)set_num_threads,
                          (int (*)(int))(uintptr_t)pause);
  Py_RETURN_NONE;
}

static PyObject *threads_start_anew(PyObject *module, PyObject *alone) {
  const int truth = PyObject_IsTrue(alone);
  if (truth < 0) return NULL;
  byoc_threads_start_anew(truth);
  Py_RETURN_NONE;
}

PyMethodDef byoc_threads_methods[] = {
    {"threads_enter", threads_enter, METH_O, "threads_enter(wanted)\n--\n\nBegin a call in this thread."},
    {"threads_leave", threads_leave, METH_O, "threads_leave(token)\n--\n\nEnd a call in this thread."},
    {"threads_number", threads_number, METH_NOARGS,
     "threads_number()\n--\n\nReturn the number of threads of the current call in this thread."},
    {"threads_set_limit", threads_set_limit, METH_O,
     "threads_set_limit(number)\n--\n\nSet the number of threads of the process."},
    {"threads_set_openmp", threads_set_openmp, METH_O,
     "threads_set_openmp(addresses)\n--\n\nStore the addresses of six OpenMP functions; see threads.h, spread.h."},
    {"threads_start_anew", threads_start_anew, METH_O,
     "threads_start_anew(alone)\n--\n\nForget the other threads: a forked child has none of these."},
    {NULL, NULL, 0, NULL},
};
