/* Memory descriptions as Python objects. */
#include "objects.h"

#include <string.h>

#include "layout.h"

static PyObject *tuple_of(const int64_t *numbers, int64_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int64_t i = 0; tuple && i < count; ++i) {
    PyObject *number = PyLong_FromLongLong(numbers[i]);
    if (!number || PyTuple_SetItem(tuple, i, number)) Py_CLEAR(tuple);
  }
  return tuple;
}

PyObject *byoc_describe(PyObject *module, PyObject *const *args, Py_ssize_t num_args) {
  if (num_args != 3) return PyErr_Format(PyExc_TypeError, "describe takes 3 addresses, got %zd", num_args);
  void *addresses[3];
  for (int i = 0; i < 3; ++i) {
    addresses[i] = PyLong_AsVoidPtr(args[i]);
    if (PyErr_Occurred()) return NULL;
  }
  Onednn onednn = {0};
  memcpy(&onednn.memory_desc_query, &addresses[0], sizeof addresses[0]);
  memcpy(&onednn.memory_desc_get_size, &addresses[1], sizeof addresses[1]);
  Layout layout;
  if (!byoc_query_layout(&onednn, addresses[2], &layout))
    return PyErr_Format(PyExc_OverflowError, "a number of a memory description is out of range");
  const int64_t rank = layout.rank, rank_in_memory = layout.kind == FORMAT_KIND_BLOCKED ? rank : 0;
  return Py_BuildValue("LLNNNLNN", (long long)layout.kind, (long long)layout.dtype, tuple_of(layout.sizes, rank),
                       tuple_of(layout.padded_sizes, rank_in_memory), tuple_of(layout.strides, rank_in_memory),
                       (long long)layout.offset, tuple_of(layout.blocks, layout.num_blocks),
                       tuple_of(layout.block_axes, layout.num_blocks));
}
