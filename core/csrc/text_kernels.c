/* Types for look-ups of strings and counts of n-grams, for byoc_core.runtime.graph.native_strings.
 *
 * Operands are contiguous arrays; integers are int64.
 */
#include "string_kernels.h"

#include <stdlib.h>
#include <string.h>

#include "ngrams.h"

PyTypeObject *byoc_key_table_type, *byoc_gram_tree_type;

/* A table of keys for look-ups of strings. */
typedef struct {
  PyObject_HEAD
  Py_buffer data, lengths;
  byoc_key_table table;
} KeyTableObject;

/* Known n-grams. */
typedef struct {
  PyObject_HEAD
  byoc_gram_tree tree;
  int64_t num_columns;
} GramTreeObject;

static PyObject *key_table_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  Py_buffer data, lengths;
  if (!PyArg_ParseTuple(arguments, "y*y*:KeyTable", &data, &lengths)) return NULL;
  byoc_strings keys;
  byoc_key_table table = {0};
  KeyTableObject *self = NULL;
  if (byoc_read_strings(&keys, &data, &lengths)) goto fail;
  if (!byoc_strings_fit(&keys)) {
    PyErr_SetString(PyExc_ValueError, "KeyTable: the lengths do not fit the bytes");
    goto fail;
  }
  if (byoc_key_table_build(&table, &keys)) {
    PyErr_NoMemory();
    goto fail;
  }
  self = (KeyTableObject *)PyType_GenericAlloc(type, 0);
  if (!self) goto fail;
  self->data = data;
  self->lengths = lengths;
  self->table = table;
  return (PyObject *)self;
fail:
  byoc_key_table_free(&table);
  PyBuffer_Release(&data);
  PyBuffer_Release(&lengths);
  return NULL;
}

static void key_table_dealloc(KeyTableObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  byoc_key_table_free(&self->table);
  PyBuffer_Release(&self->data);
  PyBuffer_Release(&self->lengths);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyObject *key_table_find(KeyTableObject *self, PyObject *arguments) {
  Py_buffer data, lengths, indices;
  if (!PyArg_ParseTuple(arguments, "y*y*w*:find", &data, &lengths, &indices)) return NULL;
  byoc_strings strings;
  PyObject *result = NULL;
  if (!byoc_read_strings(&strings, &data, &lengths)) {
    if (indices.len != lengths.len) {
      PyErr_SetString(PyExc_ValueError, "find: the indices are of another number than the strings");
    } else {
      int fits;
      Py_BEGIN_ALLOW_THREADS
      fits = byoc_strings_fit(&strings);
      if (fits) byoc_key_table_find(&self->table, &strings, indices.buf);
      Py_END_ALLOW_THREADS
      result = PyBool_FromLong(fits);
    }
  }
  PyBuffer_Release(&data);
  PyBuffer_Release(&lengths);
  PyBuffer_Release(&indices);
  return result;
}

static PyMethodDef key_table_methods[] = {
    {"find", (PyCFunction)key_table_find, METH_VARARGS,
     "find(data, lengths, indices)\n--\n\nWrite the index of the first key equal to each string, the number of keys if no "
     "key is equal; return False if the lengths do not fit."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot key_table_slots[] = {
    {Py_tp_doc, "KeyTable(data, lengths)\n--\n\nStrings as keys of look-ups; the arrays must stay unchanged."},
    {Py_tp_new, key_table_new},
    {Py_tp_methods, key_table_methods},
    {Py_tp_dealloc, key_table_dealloc},
    {0, NULL},
};

PyType_Spec byoc_key_table_spec = {"byoc_core._native.KeyTable", sizeof(KeyTableObject), 0, Py_TPFLAGS_DEFAULT,
                                   key_table_slots};

static PyObject *gram_tree_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  Py_buffer items, sizes, columns;
  long long num_columns;
  if (!PyArg_ParseTuple(arguments, "y*y*y*L:GramTree", &items, &sizes, &columns, &num_columns)) return NULL;
  byoc_gram_tree tree = {0};
  GramTreeObject *self = NULL;
  const int64_t num_items = byoc_count_integers(&items), num_grams = byoc_count_integers(&sizes);
  if (num_items >= 0 && num_grams >= 0) {
    int status = BYOC_GRAMS_MALFORMED;
    if (columns.len == sizes.len)
      status = byoc_gram_tree_build(&tree, items.buf, num_items, sizes.buf, columns.buf, num_grams, num_columns);
    if (status == BYOC_GRAMS_MALFORMED) PyErr_SetString(PyExc_ValueError, "GramTree: the n-grams do not fit");
    else if (status) PyErr_NoMemory();
    else if ((self = (GramTreeObject *)PyType_GenericAlloc(type, 0))) {
      self->tree = tree;
      self->num_columns = num_columns;
    } else {
      byoc_gram_tree_free(&tree);
    }
  }
  PyBuffer_Release(&items);
  PyBuffer_Release(&sizes);
  PyBuffer_Release(&columns);
  return (PyObject *)self;
}

static void gram_tree_dealloc(GramTreeObject *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  byoc_gram_tree_free(&self->tree);
  PyObject_Free(self);
  Py_DECREF(type);
}

static int is_gram_choice(const byoc_gram_choice *choice) {
  return choice->min_length >= 1 && choice->max_length >= choice->min_length && choice->max_skip >= 0 &&
         choice->max_skip <= INT64_MAX / 2;
}

static PyObject *gram_tree_count(GramTreeObject *self, PyObject *arguments) {
  Py_buffer rows, counts;
  long long num_rows, min_length, max_length, max_skip;
  if (!PyArg_ParseTuple(arguments, "y*LLLLw*:count", &rows, &num_rows, &min_length, &max_length, &max_skip, &counts))
    return NULL;
  PyObject *result = NULL;
  const int64_t num_items = byoc_count_integers(&rows);
  const byoc_gram_choice choice = {min_length, max_length, max_skip};
  if (num_items < 0) {
  } else if (num_rows < 1 || num_items % num_rows || !is_gram_choice(&choice) ||
             counts.len / (Py_ssize_t)sizeof(float) / num_rows != self->num_columns ||
             counts.len % ((Py_ssize_t)sizeof(float) * num_rows)) {
    PyErr_SetString(PyExc_ValueError, "count: the operands are of other sizes");
  } else {
    const int64_t size = num_items / num_rows;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = 0; row < num_rows; ++row)
      byoc_count_grams(&self->tree, &choice, (const int64_t *)rows.buf + row * size, size,
                       (float *)counts.buf + row * self->num_columns);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
  }
  PyBuffer_Release(&rows);
  PyBuffer_Release(&counts);
  return result;
}

static PyMethodDef gram_tree_methods[] = {
    {"count", (PyCFunction)gram_tree_count, METH_VARARGS,
     "count(rows, num_rows, min_length, max_length, max_skip, counts)\n--\n\nAdd the n-grams of each row to float32 "
     "counts by row and column."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot gram_tree_slots[] = {
    {Py_tp_doc, "GramTree(items, sizes, columns, num_columns)\n--\n\nKnown n-grams, and the column of each."},
    {Py_tp_new, gram_tree_new},
    {Py_tp_methods, gram_tree_methods},
    {Py_tp_dealloc, gram_tree_dealloc},
    {0, NULL},
};

PyType_Spec byoc_gram_tree_spec = {"byoc_core._native.GramTree", sizeof(GramTreeObject), 0, Py_TPFLAGS_DEFAULT,
                                   gram_tree_slots};

/* The choice of tokens, and the numbers of the strings around them. */
typedef struct {
  const uint8_t *is_member; /* see byoc_find_runs */
  int64_t min_length;
  int splits_runs, has_marks;
  int64_t marks[2], padding; /* indices among the keys */
} token_choice;

/* Count the n-grams of the tokens of strings. Return a status of byoc_find_runs. */
static int count_token_grams(const byoc_strings *strings, const token_choice *tokens, const byoc_key_table *keys,
                             const byoc_gram_tree *tree, const byoc_gram_choice *grams, int64_t num_columns,
                             float *counts) {
  byoc_spans spans = {0};
  int64_t *row = NULL, *widths = malloc((size_t)(strings->count + 1) * sizeof *widths), width = 0;
  int status = BYOC_SPANS_NO_MEMORY;
  if (widths) status = byoc_find_runs(strings, tokens->is_member, tokens->min_length, tokens->splits_runs, &spans, widths);
  if (status) goto done;
  for (int64_t i = 0; i < strings->count; ++i) width = widths[i] > width ? widths[i] : width;
  const int has_marks = tokens->has_marks && width;
  width += 2 * has_marks;
  row = malloc((size_t)(width + 1) * sizeof *row);
  if (!row) {
    status = BYOC_SPANS_NO_MEMORY;
    goto done;
  }
  for (int64_t i = 0, span = 0; i < strings->count; ++i) {
    int64_t *item = row;
    if (has_marks) *item++ = tokens->marks[0];
    for (int64_t j = 0; j < widths[i]; ++j, ++span)
      *item++ = byoc_key_table_index(keys, strings->data + spans.starts[span], spans.lengths[span]);
    if (has_marks) *item++ = tokens->marks[1];
    while (item < row + width) *item++ = tokens->padding;
    byoc_count_grams(tree, grams, row, width, counts + i * num_columns);
  }
done:
  free(spans.starts);
  free(spans.lengths);
  free(widths);
  free(row);
  return status;
}

enum { KEEP_CASE = 0, LOWER_CASE = 1, UPPER_CASE = 2 };

static PyObject *count_tokens(PyObject *module, PyObject *arguments) {
  Py_buffer data, lengths, members, padding, counts;
  KeyTableObject *keys;
  GramTreeObject *tree;
  token_choice tokens = {0};
  long long min_characters, min_length, max_length, max_skip;
  int letters;
  if (!PyArg_ParseTuple(arguments, "O!O!y*y*iy*Lppy*LLLw*:count_tokens", byoc_key_table_type, &keys,
                        byoc_gram_tree_type, &tree, &data, &lengths, &letters, &members, &min_characters,
                        &tokens.splits_runs, &tokens.has_marks, &padding, &min_length, &max_length, &max_skip, &counts))
    return NULL;
  byoc_strings strings;
  byoc_byte_list changed = {0};
  int64_t *new_lengths = NULL;
  PyObject *result = NULL;
  if (byoc_read_strings(&strings, &data, &lengths)) goto done;
  const byoc_gram_choice grams = {min_length, max_length, max_skip};
  if (members.len != 256 || !is_gram_choice(&grams) ||
      counts.len != strings.count * tree->num_columns * (int64_t)sizeof(float)) {
    PyErr_SetString(PyExc_ValueError, "count_tokens: the operands are of other sizes");
    goto done;
  }
  int status = BYOC_SPANS_NOT_UTF8;
  if (byoc_strings_fit(&strings)) {
    if (letters != KEEP_CASE) {
      new_lengths = malloc((size_t)(strings.count + 1) * sizeof *new_lengths);
      if (!new_lengths) {
        PyErr_NoMemory();
        goto done;
      }
      if (byoc_change_case(&strings, letters == UPPER_CASE, &changed, new_lengths)) goto done;
      strings = (byoc_strings){(const uint8_t *)changed.bytes, new_lengths, changed.nbytes, strings.count};
    }
    tokens.is_member = members.buf;
    tokens.min_length = min_characters;
    tokens.marks[0] = byoc_key_table_index(&keys->table, (const uint8_t *)"\x02", 1);
    tokens.marks[1] = byoc_key_table_index(&keys->table, (const uint8_t *)"\x03", 1);
    tokens.padding = byoc_key_table_index(&keys->table, padding.buf, padding.len);
    Py_BEGIN_ALLOW_THREADS
    status = count_token_grams(&strings, &tokens, &keys->table, &tree->tree, &grams, tree->num_columns, counts.buf);
    Py_END_ALLOW_THREADS
  }
  if (status == BYOC_SPANS_NO_MEMORY) PyErr_NoMemory();
  else result = PyBool_FromLong(status == BYOC_SPANS_FOUND);
done:
  free(changed.bytes);
  free(new_lengths);
  PyBuffer_Release(&data);
  PyBuffer_Release(&lengths);
  PyBuffer_Release(&members);
  PyBuffer_Release(&padding);
  PyBuffer_Release(&counts);
  return result;
}

PyMethodDef byoc_text_kernel_methods[] = {
    {"count_tokens", count_tokens, METH_VARARGS,
     "count_tokens(keys, tree, data, lengths, letters, is_member, min_characters, splits_runs, has_marks, padding, min_length, "
     "max_length, max_skip, counts)\n--\n\nAdd the n-grams of the tokens of each string to float32 counts by string and "
     "column. `letters` is 0 to keep the case, 1 for lower case, 2 for upper case. Return False for lengths that do not "
     "fit, and for other strings than UTF-8."},
    {NULL, NULL, 0, NULL},
};
