/* The functions of threads.h for Python, as needed by byoc_core.runtime.threads.worker_accounts. */
#include "objects.h"
#include "team.h"
#include "threads.h"

static PyObject *threads_enter(PyObject *module, PyObject *requested) {
  const long num_threads = PyLong_AsLong(requested);
  if (num_threads == -1 && PyErr_Occurred()) return NULL;
  const byoc_call call = byoc_threads_enter((int)num_threads);
  return Py_BuildValue("(iii)", call.previous, call.workers, call.setting);
}

static PyObject *threads_leave(PyObject *module, PyObject *token) {
  byoc_call call;
  if (!PyArg_ParseTuple(token, "iii", &call.previous, &call.workers, &call.setting)) return NULL;
  byoc_threads_leave(call);
  Py_RETURN_NONE;
}

static PyObject *threads_number(PyObject *module, PyObject *unused) { return PyLong_FromLong(byoc_threads_number()); }

static PyObject *threads_set_limit(PyObject *module, PyObject *max_threads) {
  const long limit = PyLong_AsLong(max_threads);
  if (limit == -1 && PyErr_Occurred()) return NULL;
  byoc_threads_set_limit((int)limit);
  Py_RETURN_NONE;
}

static PyObject *threads_set_openmp(PyObject *module, PyObject *addresses) {
  unsigned long long max_threads, set_num_threads, pause, parallel, num_threads, thread_num;
  if (!PyArg_ParseTuple(addresses, "KKKKKK", &max_threads, &set_num_threads, &pause, &parallel, &num_threads, &thread_num))
    return NULL;
  byoc_openmp_functions functions = {0};
  if (parallel && num_threads && thread_num) {
    functions.parallel = (void (*)(void (*)(void *), void *, unsigned, unsigned))(uintptr_t)parallel;
    functions.max_threads = (int (*)(void))(uintptr_t)max_threads;
    functions.num_threads = (int (*)(void))(uintptr_t)num_threads;
    functions.thread_num = (int (*)(void))(uintptr_t)thread_num;
  }
  byoc_team_set_openmp(functions);
  byoc_threads_set_openmp((int (*)(void))(uintptr_t)max_threads, (void (*)(int))(uintptr_t)set_num_threads,
                          (int (*)(int))(uintptr_t)pause);
  Py_RETURN_NONE;
}

static PyObject *threads_reset_after_fork(PyObject *module, PyObject *without_workers) {
  const int is_without_workers = PyObject_IsTrue(without_workers);
  if (is_without_workers < 0) return NULL;
  byoc_threads_reset_after_fork(is_without_workers);
  Py_RETURN_NONE;
}

PyMethodDef byoc_threads_methods[] = {
    {"threads_enter", threads_enter, METH_O, "threads_enter(requested)\n--\n\nBegin a call in this thread."},
    {"threads_leave", threads_leave, METH_O, "threads_leave(token)\n--\n\nEnd a call in this thread."},
    {"threads_number", threads_number, METH_NOARGS,
     "threads_number()\n--\n\nReturn the number of threads of the current call in this thread."},
    {"threads_set_limit", threads_set_limit, METH_O,
     "threads_set_limit(max_threads)\n--\n\nSet the number of threads of the process."},
    {"threads_set_openmp", threads_set_openmp, METH_O,
     "threads_set_openmp(addresses)\n--\n\nStore the addresses of six OpenMP functions; see threads.h, team.h."},
    {"threads_reset_after_fork", threads_reset_after_fork, METH_O,
     "threads_reset_after_fork(without_workers)\n--\n\nForget the other threads: a forked child has none of these."},
    {NULL, NULL, 0, NULL},
};
