/* Loops on the threads of libgomp, called through pointers: generated code needs no -fopenmp with any compiler. */
#include "byoc_parallel.h"
#include "byoc_places.h"

#include <string.h>

#if defined(__linux__)
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

/* Weak: before glibc 2.34, the library with these functions is not loaded in every process. */
extern void *dlopen(const char *name, int flags) __attribute__((weak));
extern void *dlsym(void *library, const char *name) __attribute__((weak));

enum { SOFT_PAUSE = 1 };

static struct {
  void (*parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);
  int (*max_threads)(void);
  int (*num_threads)(void);
  int (*thread_num)(void);
  int (*in_parallel)(void);
  int (*pause)(int kind); /* OpenMP 5.0; may be missing */
  int complete;
} openmp;

static pthread_once_t resolved = PTHREAD_ONCE_INIT;
static int team_lost, alone;

/* A forked child has no threads of the parent, but libgomp would wait for these threads. So the team of the forking
 * thread is dissolved before the fork; the next loop creates a new team. If the team cannot be dissolved, the child
 * never uses a team. */
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

static void do_part(const struct loop *loop, int64_t part, int64_t parts) {
  const int64_t blocks = (loop->num_items - 1) / loop->grain + 1;
  const int64_t begin = blocks * part / parts * loop->grain;
  const int64_t end = byoc_min(loop->num_items, blocks * (part + 1) / parts * loop->grain);
  if (begin < end) {
    loop->range(begin, end, loop->data);
  }
}

static void run_part(void *argument) { do_part((const struct loop *)argument, openmp.thread_num(), openmp.num_threads()); }

/* A thread of a team other than the calling thread. */
struct helper {
  struct helper *next;
  int thread, is_brought; /* is_brought: moved by the calling thread */
  int64_t used_ns;
  _Atomic uint64_t done; /* number of loops */
};

/* A team kept awake for the loops of a body. The calling thread writes `loop`, then increments `sequence`; the other
 * threads run their parts and decrement `unfinished`. */
struct team {
  byoc_body body;
  void *data;
  const struct loop *loop; /* NULL after the end of the body */
  int64_t parts;
  byoc_places places;
  struct helper *_Atomic helpers;
  int is_deserted; /* some threads get no processor time */
  _Atomic uint64_t sequence;
  _Atomic int64_t unfinished;
};

/* The team of this thread's current body, outside the loops of the body. */
static _Thread_local struct team *awake;

static void share_loop(struct team *team, const struct loop *loop) {
  team->loop = loop;
  atomic_store_explicit(&team->unfinished, team->parts - 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&team->sequence, 1, memory_order_release);
}

static void help(struct team *team, int64_t part, int64_t parts) {
  struct helper self = {atomic_load(&team->helpers), byoc_thread_id(), 0, 0, 0};
  byoc_processors allowed;
  int moved = 0;
  if (byoc_read_allowed(&allowed)) {
    while (!atomic_compare_exchange_weak(&team->helpers, &self.next, &self)) {
    }
    moved = byoc_take_place(&team->places, &allowed);
  }
  for (uint64_t done = 0;; ++done) {
    for (int round = 0; atomic_load_explicit(&team->sequence, memory_order_acquire) == done; round += round < BYOC_SPINS) {
      byoc_wait_once(round);
    }
    const struct loop *loop = team->loop;
    if (!loop) {
      break;
    }
    do_part(loop, part, parts);
    atomic_store_explicit(&self.done, done + 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&team->unfinished, 1, memory_order_release);
  }
  if (moved || self.is_brought) {
    byoc_allow(&allowed);
  }
}

static void run_team(void *argument) {
  struct team *team = (struct team *)argument;
  const int64_t part = openmp.thread_num(), parts = openmp.num_threads();
  if (part != 0) {
    help(team, part, parts);
    return;
  }
  team->parts = parts;
  awake = team;
  team->body(team->data);
  awake = NULL;
  if (!team->is_deserted) {
    share_loop(team, NULL);
  }
}

enum { LATE_NS = 200000 };

/* Move helpers to this processor if their work waits and the helpers have not run for a while: another thread occupies
 * their processor, perhaps for milliseconds. Here the helpers run when this thread yields the processor. */
static void bring_helpers(struct team *team, int64_t *since_ns) {
  const int64_t now = byoc_now_ns();
  const uint64_t begun = atomic_load_explicit(&team->sequence, memory_order_relaxed);
  if (*since_ns && now - *since_ns < LATE_NS) {
    return;
  }
  for (struct helper *helper = atomic_load(&team->helpers); helper; helper = helper->next) {
    const int64_t used_ns = byoc_thread_ns(helper->thread);
    const int is_needed = atomic_load_explicit(&helper->done, memory_order_relaxed) != begun;
    const int has_rested = *since_ns && used_ns >= 0 && used_ns - helper->used_ns < LATE_NS / 4;
    if (is_needed && has_rested && byoc_bring(helper->thread)) {
      helper->is_brought = team->is_deserted = 1;
    }
    helper->used_ns = used_ns;
  }
  *since_ns = now;
}

static void run_awake(struct team *team, const struct loop *loop) {
  int64_t since_ns = 0;
  awake = NULL; /* a loop inside the loop runs in the thread encountering the inner loop */
  share_loop(team, loop);
  do_part(loop, 0, team->parts);
  for (int round = 0; atomic_load_explicit(&team->unfinished, memory_order_acquire) != 0; round += round < BYOC_SPINS) {
    if (round < BYOC_SPINS || !team->is_deserted) {
      byoc_wait_once(round);
    } else {
      byoc_sleep_once();
    }
    if (round == BYOC_SPINS) {
      bring_helpers(team, &since_ns);
    }
  }
  if (team->is_deserted) {
    team->parts = 1;
    share_loop(team, NULL); /* the other threads leave and free the processor */
  }
  awake = team;
}

static int has_team(void) {
  (void)pthread_once(&resolved, resolve);
  return openmp.complete && !alone && openmp.max_threads() > 1 && !openmp.in_parallel();
}

void byoc_share_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  if (num_items > grain && awake && awake->parts > 1) {
    const struct loop loop = {num_items, grain, range, data};
    run_awake(awake, &loop);
  } else if (num_items > 0) {
    range(0, num_items, data);
  }
}

void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  if (num_items > grain && !awake && has_team()) {
    struct loop loop = {num_items, grain, range, data};
    openmp.parallel(run_part, &loop, 0, 0);
  } else {
    byoc_share_for(num_items, grain, range, data);
  }
}

/* The number of next bodies of this thread without a team, and this number after the next deserted team. */
static _Thread_local int bodies_alone, next_alone = 1;

enum { MOST_ALONE = 64 };

static void run_alone(struct team *team) {
  awake = team;
  team->body(team->data);
  awake = NULL;
}

void byoc_with_team(byoc_body body, void *data) {
  if (awake || !has_team()) {
    body(data);
    return;
  }
  struct team team = {.body = body, .data = data, .parts = 1};
  if (bodies_alone > 0) {
    --bodies_alone;
    run_alone(&team);
    return;
  }
  byoc_open_places(&team.places);
  openmp.parallel(run_team, &team, 0, 0);
  bodies_alone = team.is_deserted ? next_alone : 0;
  next_alone = team.is_deserted ? (int)byoc_min(2 * next_alone, MOST_ALONE) : 1;
}

#else /* other systems: without libgomp */

void byoc_share_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  (void)grain;
  if (num_items > 0) {
    range(0, num_items, data);
  }
}

void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  byoc_share_for(num_items, grain, range, data);
}

void byoc_with_team(byoc_body body, void *data) { body(data); }

#endif
