/* Functions of the core on rows of numbers, shared by the threads of the call. */
#include "program.h"

enum { CHUNK = 1 << 14 }; /* numbers computed by a thread at a time */

typedef struct {
  VectorFunction function;
  const float *x;
  float *y;
  int64_t columns;
} RowTask;

static void compute_each(void *data, int64_t first, int64_t count) {
  const RowTask *task = data;
  task->function(task->x + first, task->y + first, count);
}

static void compute_rows(void *data, int64_t first, int64_t count) {
  const RowTask *task = data;
  for (int64_t row = first; row < first + count; ++row)
    task->function(task->x + row * task->columns, task->y + row * task->columns, task->columns);
}

void byoc_compute(const Api *api, VectorFunction function, const float *x, float *y, int64_t rows, int64_t columns) {
  RowTask task = {function, x, y, columns};
  if (!columns) {
    byoc_share(api, rows, CHUNK, rows > 2 * CHUNK, compute_each, &task);
    return;
  }
  byoc_share(api, rows, columns < CHUNK ? CHUNK / columns : 1, rows * columns > 2 * CHUNK, compute_rows, &task);
}
