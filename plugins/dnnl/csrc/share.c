/* Work on many elements, shared by the threads of the call. */
#include "program.h"

#include <stdatomic.h>

enum { MAX_PARTS = 64 }; /* further threads share parts */

typedef struct {
  atomic_llong next; /* the first element not yet taken by a thread */
  int64_t end;
} Part;

typedef struct {
  const Api *api;
  Body body;
  void *data;
  int64_t chunk;
  int num_parts;
  Part parts[MAX_PARTS];
} Work;

static void run_part(const Work *work, Part *part) {
  for (;;) {
    const int64_t first = atomic_fetch_add_explicit(&part->next, work->chunk, memory_order_relaxed);
    if (first >= part->end) return;
    const int64_t num_left = part->end - first;
    work->body(work->data, first, num_left < work->chunk ? num_left : work->chunk);
  }
}

/* Each thread takes chunks of its own part, then of the parts of others. oneDNN divides images the same way, so the own
 * part is near in the caches of the thread. */
static void run_parts(void *data) {
  Work *work = data;
  const int own = work->api->thread_num();
  for (int i = 0; i < work->num_parts; ++i) run_part(work, &work->parts[(own + i) % work->num_parts]);
}

void byoc_share(const Api *api, int64_t count, int64_t chunk, int is_large, Body body, void *data) {
  const int is_shared = is_large && count > chunk && api->max_threads && api->parallel && api->thread_num;
  const int num_threads = is_shared ? api->max_threads() : 1;
  if (num_threads <= 1) {
    body(data, 0, count);
    return;
  }
  Work work = {.api = api, .body = body, .data = data, .chunk = chunk};
  work.num_parts = num_threads < MAX_PARTS ? num_threads : MAX_PARTS;
  int64_t begin = 0;
  for (int i = 0; i < work.num_parts; ++i) {
    work.parts[i].end = begin + (count - begin) / (work.num_parts - i);
    atomic_init(&work.parts[i].next, begin);
    begin = work.parts[i].end;
  }
  api->parallel(run_parts, &work, (unsigned)num_threads, 0);
}
