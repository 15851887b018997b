/* Loops on the threads of libgomp, through pointers: generated code needs no -fopenmp, whatever compiler builds it. */
#include "byoc_parallel.h"

#include <string.h>

#if defined(__linux__)
#include <dlfcn.h>
#include <pthread.h>

/* Weak: before glibc 2.34 a program need not hold the library that they are in. */
extern void *dlopen(const char *name, int flags) __attribute__((weak));
extern void *dlsym(void *library, const char *name) __attribute__((weak));

enum { SOFT_PAUSE = 1 };

static struct {
  void (*parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);
  int (*max_threads)(void);
  int (*num_threads)(void);
  int (*thread_num)(void);
  int (*in_parallel)(void);
  int (*pause)(int kind); /* may be missing: OpenMP 5.0 */
  int complete;
} openmp;

static pthread_once_t resolved = PTHREAD_ONCE_INIT;
static int team_lost, alone;

/* A forked child has none of its parent's threads, and libgomp would wait for them. So the team of the thread that
 * forks is dissolved before; the next loop makes it anew. Where that cannot be, the child stays alone. */
static void before_fork(void) { team_lost = alone || !openmp.pause || openmp.pause(SOFT_PAUSE) != 0; }
static void in_child(void) { alone = team_lost; }

static int find(void *library, const char *name, void *pointer) {
  void *found = dlsym(library, name);
  memcpy(pointer, &found, sizeof(found));
  return found != NULL;
}

static void resolve(void) {
  if (!dlopen || !dlsym) {
    return;
  }
  void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    return;
  }
  (void)find(library, "omp_pause_resource_all", &openmp.pause);
  openmp.complete = find(library, "GOMP_parallel", &openmp.parallel) &&
                    find(library, "omp_get_max_threads", &openmp.max_threads) &&
                    find(library, "omp_get_num_threads", &openmp.num_threads) &&
                    find(library, "omp_get_thread_num", &openmp.thread_num) &&
                    find(library, "omp_in_parallel", &openmp.in_parallel) &&
                    pthread_atfork(before_fork, NULL, in_child) == 0;
}

struct loop {
  int64_t num_items, grain;
  byoc_range range;
  const void *data;
};

static void run_part(void *argument) {
  const struct loop *loop = (const struct loop *)argument;
  const int64_t parts = openmp.num_threads(), part = openmp.thread_num();
  const int64_t blocks = (loop->num_items - 1) / loop->grain + 1;
  const int64_t begin = blocks * part / parts * loop->grain;
  const int64_t end = byoc_min(loop->num_items, blocks * (part + 1) / parts * loop->grain);
  if (begin < end) {
    loop->range(begin, end, loop->data);
  }
}

void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  if (num_items > grain) {
    (void)pthread_once(&resolved, resolve);
    if (openmp.complete && !alone && openmp.max_threads() > 1 && !openmp.in_parallel()) {
      struct loop loop = {num_items, grain, range, data};
      openmp.parallel(run_part, &loop, 0, 0);
      return;
    }
  }
  if (num_items > 0) {
    range(0, num_items, data);
  }
}

#else /* other systems: their OpenMP libraries are not libgomp */

void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  (void)grain;
  if (num_items > 0) {
    range(0, num_items, data);
  }
}

#endif
