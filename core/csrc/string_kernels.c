/* Kernels of strings, for byoc_core.runtime.graph.native_strings and byoc_core.runtime.strings.
 *
 * Operands are contiguous arrays; integers are int64. A function returns None for operands other than described: the
 * caller's reference kernel then raises.
 */
#include "string_kernels.h"

#include <stdlib.h>
#include <string.h>

int64_t byoc_count_integers(const Py_buffer *buffer) {
  if (buffer->len % (Py_ssize_t)sizeof(int64_t) == 0) return buffer->len / (Py_ssize_t)sizeof(int64_t);
  PyErr_SetString(PyExc_ValueError, "a buffer is not of int64");
  return -1;
}

int byoc_read_strings(byoc_strings *strings, const Py_buffer *data, const Py_buffer *lengths) {
  const int64_t count = byoc_count_integers(lengths);
  if (count < 0) return -1;
  *strings = (byoc_strings){data->buf, lengths->buf, data->len, count};
  return 0;
}

static PyObject *bytes_of_integers(const int64_t *integers, int64_t count) {
  return PyByteArray_FromStringAndSize((const char *)integers, (Py_ssize_t)(count * (int64_t)sizeof *integers));
}

static int append_bytes(byoc_byte_list *list, const char *bytes, int64_t nbytes) {
  if (list->capacity - list->nbytes < nbytes) {
    const int64_t capacity = 2 * list->capacity + nbytes;
    char *larger = realloc(list->bytes, (size_t)capacity);
    if (!larger) {
      PyErr_NoMemory();
      return -1;
    }
    list->bytes = larger;
    list->capacity = capacity;
  }
  if (nbytes) memcpy(list->bytes + list->nbytes, bytes, (size_t)nbytes);
  list->nbytes += nbytes;
  return 0;
}

/* Append the UTF-8 of a string object and return the number of bytes; -1 with an exception. */
static int64_t append_text(byoc_byte_list *list, PyObject *text) {
  Py_ssize_t nbytes;
  const char *bytes = PyUnicode_AsUTF8AndSize(text, &nbytes);
  return !bytes || append_bytes(list, bytes, nbytes) ? -1 : nbytes;
}

/* Append the bytes of an item, a string or bytes, and return their number; -1 with an exception. */
static int64_t append_item(byoc_byte_list *list, PyObject *item) {
  if (PyUnicode_Check(item)) return append_text(list, item);
  const Py_ssize_t nbytes = PyBytes_Size(item);
  return nbytes < 0 || append_bytes(list, PyBytes_AsString(item), nbytes) ? -1 : nbytes;
}

static PyObject *pack_strings(PyObject *module, PyObject *arguments) {
  PyObject *items;
  Py_buffer lengths;
  if (!PyArg_ParseTuple(arguments, "O!w*:pack_strings", &PyList_Type, &items, &lengths)) return NULL;
  const Py_ssize_t count = PyList_Size(items);
  byoc_byte_list list = {0};
  PyObject *result = NULL;
  if (lengths.len != count * (Py_ssize_t)sizeof(int64_t)) {
    PyErr_SetString(PyExc_ValueError, "pack_strings: the lengths are of another number than the items");
    goto done;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *item = PyList_GetItem(items, i);
    if (!PyUnicode_Check(item) && !PyBytes_Check(item)) {
      result = Py_NewRef(Py_None);
      goto done;
    }
    const int64_t nbytes = append_item(&list, item);
    if (nbytes < 0) goto done;
    ((int64_t *)lengths.buf)[i] = nbytes;
  }
  result = PyByteArray_FromStringAndSize(list.bytes, (Py_ssize_t)list.nbytes);
done:
  free(list.bytes);
  PyBuffer_Release(&lengths);
  return result;
}

/* Append the text of malformed or other characters than ASCII, in the other case; return the bytes, -1 on failure. */
static int64_t append_changed(byoc_byte_list *list, const char *bytes, int64_t nbytes, const char *method) {
  PyObject *text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)nbytes, "replace");
  PyObject *changed = text ? PyObject_CallMethod(text, method, NULL) : NULL;
  const int64_t found = changed ? append_text(list, changed) : -1;
  Py_XDECREF(text);
  Py_XDECREF(changed);
  return found;
}

int byoc_change_case(const byoc_strings *strings, int is_upper, byoc_byte_list *list, int64_t *new_lengths) {
  *list = (byoc_byte_list){malloc((size_t)(strings->nbytes + 1)), 0, strings->nbytes + 1};
  if (!list->bytes) {
    PyErr_NoMemory();
    return -1;
  }
  const char first = is_upper ? 'a' : 'A', *text = (const char *)strings->data;
  for (int64_t i = 0; i < strings->count; ++i) {
    int64_t nbytes = strings->lengths[i];
    const char *next = text + nbytes;
    if (!byoc_is_ascii((const uint8_t *)text, nbytes)) {
      nbytes = append_changed(list, text, nbytes, is_upper ? "upper" : "lower");
    } else if (append_bytes(list, text, nbytes)) {
      nbytes = -1;
    } else {
      char *letters = list->bytes + list->nbytes - nbytes;
      for (int64_t j = 0; j < nbytes; ++j) letters[j] ^= (uint8_t)(letters[j] - first) < 26 ? 0x20 : 0;
    }
    if (nbytes < 0) return -1;
    new_lengths[i] = nbytes;
    text = next;
  }
  return 0;
}

static PyObject *change_case(PyObject *module, PyObject *arguments) {
  Py_buffer data, lengths, new_lengths;
  int is_upper;
  if (!PyArg_ParseTuple(arguments, "y*y*pw*:change_case", &data, &lengths, &is_upper, &new_lengths)) return NULL;
  byoc_strings strings;
  byoc_byte_list list = {0};
  PyObject *result = NULL;
  if (byoc_read_strings(&strings, &data, &lengths)) goto done;
  if (new_lengths.len != lengths.len) {
    PyErr_SetString(PyExc_ValueError, "change_case: the new lengths are of another number");
  } else if (!byoc_strings_fit(&strings)) {
    result = Py_NewRef(Py_None);
  } else if (!byoc_change_case(&strings, is_upper, &list, new_lengths.buf)) {
    result = PyByteArray_FromStringAndSize(list.bytes, (Py_ssize_t)list.nbytes);
  }
done:
  free(list.bytes);
  PyBuffer_Release(&data);
  PyBuffer_Release(&lengths);
  PyBuffer_Release(&new_lengths);
  return result;
}

/* The tokens of strings in rows of equal lengths: with marks around, and padding behind. */
typedef struct {
  int64_t *starts, *lengths;
  int64_t width;
} token_rows;

/* Arrange spans in rows; bytes `end` and `end + 1` are the marks, the padding stands behind. Return -1 without memory. */
static int arrange_rows(token_rows *rows, const byoc_spans *spans, const int64_t *counts, int64_t num_strings,
                        int has_marks, int64_t end, int64_t pad_nbytes) {
  int64_t width = 0;
  for (int64_t i = 0; i < num_strings; ++i) width = counts[i] > width ? counts[i] : width;
  has_marks = has_marks && width;
  width += 2 * has_marks;
  const size_t nbytes = (size_t)(num_strings * width) * sizeof(int64_t) + 1;
  *rows = (token_rows){malloc(nbytes), malloc(nbytes), width};
  if (!rows->starts || !rows->lengths) return -1;
  int64_t *start = rows->starts, *length = rows->lengths;
  for (int64_t i = 0, span = 0; i < num_strings; ++i) {
    const int64_t *row_end = start + width;
    if (has_marks) *start++ = end, *length++ = 1;
    for (int64_t j = 0; j < counts[i]; ++j, ++span) *start++ = spans->starts[span], *length++ = spans->lengths[span];
    if (has_marks) *start++ = end + 1, *length++ = 1;
    while (start < row_end) *start++ = end + 2, *length++ = pad_nbytes;
  }
  return 0;
}

static PyObject *find_runs(PyObject *module, PyObject *arguments) {
  Py_buffer data, lengths, members;
  long long min_length, pad_nbytes;
  int splits_runs, has_marks;
  if (!PyArg_ParseTuple(arguments, "y*y*y*LppL:find_runs", &data, &lengths, &members, &min_length, &splits_runs,
                        &has_marks, &pad_nbytes))
    return NULL;
  byoc_strings strings;
  byoc_spans spans = {0};
  token_rows rows = {0};
  int64_t *counts = NULL;
  PyObject *result = NULL;
  if (byoc_read_strings(&strings, &data, &lengths)) goto done;
  if (members.len != 256) {
    PyErr_SetString(PyExc_ValueError, "find_runs: the members are not stated for 256 bytes");
    goto done;
  }
  int status = BYOC_SPANS_NO_MEMORY;
  Py_BEGIN_ALLOW_THREADS
  if (!byoc_strings_fit(&strings)) {
    status = BYOC_SPANS_NOT_UTF8;
  } else if ((counts = malloc((size_t)(strings.count + 1) * sizeof *counts))) {
    status = byoc_find_runs(&strings, members.buf, min_length, splits_runs, &spans, counts);
    if (!status) status = arrange_rows(&rows, &spans, counts, strings.count, has_marks, strings.nbytes, pad_nbytes);
  }
  Py_END_ALLOW_THREADS
  if (status == BYOC_SPANS_NOT_UTF8) {
    result = Py_NewRef(Py_None);
  } else if (status) {
    PyErr_NoMemory();
  } else {
    PyObject *starts = bytes_of_integers(rows.starts, strings.count * rows.width);
    PyObject *nbytes = bytes_of_integers(rows.lengths, strings.count * rows.width);
    if (starts && nbytes) result = Py_BuildValue("LOO", (long long)rows.width, starts, nbytes);
    Py_XDECREF(starts);
    Py_XDECREF(nbytes);
  }
done:
  free(spans.starts);
  free(spans.lengths);
  free(rows.starts);
  free(rows.lengths);
  free(counts);
  PyBuffer_Release(&data);
  PyBuffer_Release(&lengths);
  PyBuffer_Release(&members);
  return result;
}

/* Return the rows at places of the data, one behind the other; None if a place is outside. */
static PyObject *join_rows(const Py_buffer *data, const int64_t *starts, const int64_t *lengths, int64_t count) {
  int64_t nbytes = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (starts[i] < 0 || lengths[i] < 0 || lengths[i] > data->len || starts[i] > data->len - lengths[i] ||
        nbytes > INT64_MAX - lengths[i])
      return Py_NewRef(Py_None);
    nbytes += lengths[i];
  }
  PyObject *result = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)nbytes);
  if (!result) return NULL;
  char *target = PyByteArray_AsString(result);
  for (int64_t i = 0; i < count; ++i) {
    memcpy(target, (const char *)data->buf + starts[i], (size_t)lengths[i]);
    target += lengths[i];
  }
  return result;
}

static PyObject *take_spans(PyObject *module, PyObject *arguments) {
  Py_buffer data, starts, lengths;
  if (!PyArg_ParseTuple(arguments, "y*y*y*:take_spans", &data, &starts, &lengths)) return NULL;
  PyObject *result = NULL;
  const int64_t count = byoc_count_integers(&starts);
  if (count >= 0) {
    if (starts.len != lengths.len) result = Py_NewRef(Py_None);
    else result = join_rows(&data, starts.buf, lengths.buf, count);
  }
  PyBuffer_Release(&data);
  PyBuffer_Release(&starts);
  PyBuffer_Release(&lengths);
  return result;
}

static PyObject *take_ragged(PyObject *module, PyObject *arguments) {
  Py_buffer data, lengths, indices;
  long long itemsize;
  if (!PyArg_ParseTuple(arguments, "y*y*y*L:take_ragged", &data, &lengths, &indices, &itemsize)) return NULL;
  PyObject *result = NULL;
  int64_t *ends = NULL, *rows = NULL;
  const int64_t num_rows = byoc_count_integers(&lengths), count = byoc_count_integers(&indices);
  if (num_rows < 0 || count < 0) goto done;
  ends = malloc((size_t)(num_rows + 1) * sizeof *ends);
  rows = malloc((size_t)(count + 1) * 2 * sizeof *rows);
  if (!ends || !rows) {
    PyErr_NoMemory();
    goto done;
  }
  const int64_t *length = lengths.buf, *index = indices.buf;
  int64_t *starts = rows, *nbytes = rows + count;
  int fits = itemsize > 0;
  ends[0] = 0;
  for (int64_t i = 0; fits && i < num_rows; ++i) {
    fits = length[i] >= 0 && length[i] <= data.len / itemsize - ends[i];
    if (fits) ends[i + 1] = ends[i] + length[i];
  }
  for (int64_t i = 0; fits && i < count; ++i) {
    fits = index[i] >= 0 && index[i] < num_rows;
    if (!fits) break;
    starts[i] = ends[index[i]] * itemsize;
    nbytes[i] = length[index[i]] * itemsize;
  }
  result = fits ? join_rows(&data, starts, nbytes, count) : Py_NewRef(Py_None);
done:
  free(ends);
  free(rows);
  PyBuffer_Release(&data);
  PyBuffer_Release(&lengths);
  PyBuffer_Release(&indices);
  return result;
}

PyMethodDef byoc_string_kernel_methods[] = {
    {"pack_strings", pack_strings, METH_VARARGS,
     "pack_strings(items, lengths)\n--\n\nReturn the UTF-8 of all items, strings or bytes, and write the number of "
     "bytes of each; None if an item is neither."},
    {"change_case", change_case, METH_VARARGS,
     "change_case(data, lengths, is_upper, new_lengths)\n--\n\nReturn the strings in lower or upper case, and write the "
     "number of bytes of each; None if the lengths do not fit."},
    {"find_runs", find_runs, METH_VARARGS,
     "find_runs(data, lengths, is_member, min_length, splits_runs, has_marks, pad_nbytes)\n--\n\nReturn the number of "
     "tokens of a row, and the first byte and number of bytes of each token; None for other strings than UTF-8."},
    {"take_spans", take_spans, METH_VARARGS,
     "take_spans(data, starts, lengths)\n--\n\nReturn the bytes at places; None if a place is outside."},
    {"take_ragged", take_ragged, METH_VARARGS,
     "take_ragged(data, lengths, indices, itemsize)\n--\n\nReturn rows of several lengths, by index, one behind the "
     "other; None if a row is outside the data or an index outside the rows."},
    {NULL, NULL, 0, NULL},
};
