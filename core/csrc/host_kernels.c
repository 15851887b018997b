/* Kernels of the host's ops, for byoc_core.runtime.graph.native_kernels. */
#include "host_kernels.h"

#include <stdlib.h>
#include <string.h>

#include "boxes.h"

/* Rows of image, class and box. */
typedef struct {
  int64_t *rows;
  int64_t count, capacity;
} rows_of_boxes;

enum { TAKEN = 0, OUT_OF_MEMORY = 1 };

static int take_box(void *context, int64_t image, int64_t class, int64_t box) {
  rows_of_boxes *found = context;
  if (found->count == found->capacity) {
    const int64_t capacity = 2 * found->capacity + 64;
    int64_t *rows = realloc(found->rows, (size_t)capacity * 3 * sizeof *rows);
    if (!rows) return OUT_OF_MEMORY;
    found->rows = rows;
    found->capacity = capacity;
  }
  int64_t *row = found->rows + 3 * found->count++;
  row[0] = image;
  row[1] = class;
  row[2] = box;
  return TAKEN;
}

/* Return the rows of image, class and box of the chosen boxes as bytes of int64; operands are contiguous. */
static PyObject *choose_boxes(PyObject *module, PyObject *arguments) {
  Py_buffer boxes, scores;
  long long num_images, num_classes, num_boxes, max_boxes;
  byoc_box_choice choice = {0};
  if (!PyArg_ParseTuple(arguments, "y*y*pLLLLddp:choose_boxes", &boxes, &scores, &choice.is_double, &num_images,
                        &num_classes, &num_boxes, &max_boxes, &choice.overlap, &choice.least_score, &choice.is_centre))
    return NULL;
  choice.boxes = boxes.buf;
  choice.scores = scores.buf;
  choice.num_images = num_images;
  choice.num_classes = num_classes;
  choice.num_boxes = num_boxes;
  choice.max_boxes = max_boxes;
  rows_of_boxes found = {0};
  PyObject *result = NULL;
  void *scratch = NULL;
  const Py_ssize_t itemsize = choice.is_double ? sizeof(double) : sizeof(float);
  if (boxes.len != num_images * num_boxes * 4 * itemsize ||
             scores.len != num_images * num_classes * num_boxes * itemsize) {
    PyErr_SetString(PyExc_ValueError, "choose_boxes: operands have other sizes");
  } else if (num_images * num_classes * num_boxes == 0) {
    result = PyByteArray_FromStringAndSize(NULL, 0);
  } else if (!(scratch = malloc(byoc_box_scratch_nbytes(num_boxes, choice.is_double)))) {
    PyErr_NoMemory();
  } else {
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = byoc_choose_boxes(&choice, scratch, take_box, &found);
    Py_END_ALLOW_THREADS
    if (status) PyErr_NoMemory();
    else result = PyByteArray_FromStringAndSize((const char *)found.rows, (Py_ssize_t)(found.count * 3 * sizeof(int64_t)));
  }
  free(found.rows);
  free(scratch);
  PyBuffer_Release(&boxes);
  PyBuffer_Release(&scores);
  return result;
}

PyMethodDef byoc_host_kernel_methods[] = {
    {"choose_boxes", choose_boxes, METH_VARARGS,
     "choose_boxes(boxes, scores, is_double, num_images, num_classes, num_boxes, max_boxes, overlap, least_score, "
     "is_centre)\n--\n\nReturn image, class and number of the chosen boxes, int64 in a bytearray."},
    {NULL, NULL, 0, NULL},
};
