/* Results of compiled models as Python objects: arrays of strings, and lists of dictionaries.
 *
 * A function returns None for operands other than described: the caller's code in Python then decides.
 */
#include "string_kernels.h"

#include <string.h>

enum { RECENT_SLOTS = 64, LONGEST_RECENT = 64 };

/* Strings decoded before, found by their bytes: results often repeat a few labels. The objects are borrowed. */
typedef struct {
  const uint8_t *texts[RECENT_SLOTS];
  int64_t lengths[RECENT_SLOTS];
  PyObject *objects[RECENT_SLOTS];
} RecentStrings;

static size_t recent_slot(const uint8_t *text, int64_t length) {
  uint64_t hash = (uint64_t)length;
  for (int64_t i = 0; i < length; ++i) hash = (hash ^ text[i]) * 0x9E3779B97F4A7C15u;
  return (size_t)(hash >> 58); /* RECENT_SLOTS is 2 to the power of 6 */
}

/* Return a new reference to the string of some bytes of UTF-8; NULL with an exception. */
static PyObject *decode_string(RecentStrings *recent, const uint8_t *text, int64_t length) {
  if (length > LONGEST_RECENT) return PyUnicode_DecodeUTF8((const char *)text, (Py_ssize_t)length, "replace");
  const size_t slot = recent_slot(text, length);
  if (recent->objects[slot] && recent->lengths[slot] == length && !memcmp(recent->texts[slot], text, (size_t)length))
    return Py_NewRef(recent->objects[slot]);
  PyObject *found = PyUnicode_DecodeUTF8((const char *)text, (Py_ssize_t)length, "replace");
  recent->texts[slot] = text;
  recent->lengths[slot] = length;
  recent->objects[slot] = found;
  return found;
}

static int is_carray_of(PyObject *object, int type_number) {
  if (!PyArray_Check(object)) return 0;
  PyArrayObject *array = (PyArrayObject *)object;
  return PyArray_TYPE(array) == type_number && PyArray_ISCARRAY_RO(array);
}

static PyObject *unpack_strings(PyObject *module, PyObject *arguments) {
  PyObject *data, *lengths;
  if (!PyArg_ParseTuple(arguments, "OO:unpack_strings", &data, &lengths)) return NULL;
  if (!is_carray_of(data, NPY_UINT8) || !is_carray_of(lengths, NPY_INT64)) return Py_NewRef(Py_None);
  PyArrayObject *shaped = (PyArrayObject *)lengths;
  const byoc_strings strings = {PyArray_DATA((PyArrayObject *)data), PyArray_DATA(shaped),
                                PyArray_SIZE((PyArrayObject *)data), PyArray_SIZE(shaped)};
  if (!byoc_strings_fit(&strings)) return Py_NewRef(Py_None);
  PyObject *result = PyArray_SimpleNew(PyArray_NDIM(shaped), PyArray_DIMS(shaped), NPY_OBJECT);
  if (!result) return NULL;
  PyObject **items = PyArray_DATA((PyArrayObject *)result);
  RecentStrings recent = {0};
  const uint8_t *text = strings.data;
  for (int64_t i = 0; i < strings.count; ++i) {
    PyObject *item = decode_string(&recent, text, strings.lengths[i]);
    if (!item) {
      Py_DECREF(result);
      return NULL;
    }
    PyObject *former = items[i]; /* NULL or None, by the version of numpy */
    items[i] = item;
    Py_XDECREF(former);
    text += strings.lengths[i];
  }
  return result;
}

/* Return a new number of an array of float32, float64 or int64; NULL with an exception. */
static PyObject *number_at(const void *values, int type_number, int64_t index) {
  if (type_number == NPY_FLOAT32) return PyFloat_FromDouble((double)((const float *)values)[index]);
  if (type_number == NPY_FLOAT64) return PyFloat_FromDouble(((const double *)values)[index]);
  return PyLong_FromLongLong((long long)((const int64_t *)values)[index]);
}

/* Return a dictionary with None for each key of a tuple; NULL with an exception. */
static PyObject *dictionary_of(PyObject *keys) {
  const Py_ssize_t count = PyTuple_Size(keys);
  PyObject *result = PyDict_New();
  for (Py_ssize_t i = 0; result && i < count; ++i) {
    if (PyDict_SetItem(result, PyTuple_GetItem(keys, i), Py_None)) Py_CLEAR(result);
  }
  return result;
}

/* Return a list of dictionaries, one for each row of values, by the keys of a tuple; NULL with an exception. */
static PyObject *dictionaries_of(PyObject *keys, PyArrayObject *array) {
  const void *values = PyArray_DATA(array);
  const Py_ssize_t count = (Py_ssize_t)PyArray_DIM(array, 0), width = PyTuple_Size(keys);
  const int type_number = PyArray_TYPE(array);
  /* A copy of a dictionary takes its table of keys over; only the values change. */
  PyObject *pattern = dictionary_of(keys), *result = pattern ? PyList_New(count) : NULL;
  for (Py_ssize_t row = 0; result && row < count; ++row) {
    PyObject *map = PyDict_Copy(pattern);
    for (Py_ssize_t i = 0; map && i < width; ++i) {
      PyObject *number = number_at(values, type_number, row * width + i);
      if (!number || PyDict_SetItem(map, PyTuple_GetItem(keys, i), number)) Py_CLEAR(map);
      Py_XDECREF(number);
    }
    if (!map || PyList_SetItem(result, row, map)) Py_CLEAR(result);
  }
  Py_XDECREF(pattern);
  return result;
}

static PyObject *unpack_maps(PyObject *module, PyObject *arguments) {
  PyObject *keys, *object;
  if (!PyArg_ParseTuple(arguments, "O!O:unpack_maps", &PyList_Type, &keys, &object)) return NULL;
  if (!is_carray_of(object, NPY_FLOAT32) && !is_carray_of(object, NPY_FLOAT64) && !is_carray_of(object, NPY_INT64))
    return Py_NewRef(Py_None);
  PyArrayObject *array = (PyArrayObject *)object;
  if (PyArray_NDIM(array) != 2 || PyArray_DIM(array, 1) != PyList_Size(keys)) return Py_NewRef(Py_None);
  PyObject *kept = PyList_AsTuple(keys); /* the hash of a key is code in Python, which may change the list */
  PyObject *result = kept ? dictionaries_of(kept, array) : NULL;
  Py_XDECREF(kept);
  return result;
}

PyMethodDef byoc_value_object_methods[] = {
    {"unpack_strings", unpack_strings, METH_VARARGS,
     "unpack_strings(data, lengths)\n--\n\nReturn the array of strings in the shape of the lengths; None if the lengths "
     "do not fit, or an array is not contiguous uint8 or int64. Equal strings may be the same object."},
    {"unpack_maps", unpack_maps, METH_VARARGS,
     "unpack_maps(keys, values)\n--\n\nReturn a dictionary for each row of values: float32, float64 or int64, with a "
     "column for each key, contiguous; None for other values."},
    {NULL, NULL, 0, NULL},
};
