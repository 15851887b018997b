/* Work on many elements, shared by the threads of the call. */
#include "objects.h"

#include <stdatomic.h>

typedef struct {
  Body body;
  void *data;
  int64_t count, chunk;
  atomic_llong next; /* the first element not yet taken by a thread */
} Work;

/* The loop of each thread over chunks. */
static void run_chunks(void *data) {
  Work *work = data;
  for (;;) {
    const int64_t first = atomic_fetch_add_explicit(&work->next, work->chunk, memory_order_relaxed);
    if (first >= work->count) return;
    const int64_t num_left = work->count - first;
    work->body(work->data, first, num_left < work->chunk ? num_left : work->chunk);
  }
}

void byoc_share(const Api *api, int64_t count, int64_t chunk, int is_large, Body body, void *data) {
  const int num_threads = is_large && count > chunk && api->max_threads && api->parallel ? api->max_threads() : 1;
  if (num_threads <= 1) {
    body(data, 0, count);
    return;
  }
  Work work = {.body = body, .data = data, .count = count, .chunk = chunk};
  api->parallel(run_chunks, &work, (unsigned)num_threads, 0);
}
