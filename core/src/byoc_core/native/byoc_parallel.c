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
  int is_complete;
} openmp;

static pthread_once_t resolve_once = PTHREAD_ONCE_INIT;
static int is_team_lost, without_teams;

/* A forked child has no threads of the parent, but libgomp would wait for these threads. So the team of the forking
 * thread is dissolved before the fork; the next loop creates a new team. If the team cannot be dissolved, the child
 * never uses a team. */
static void before_fork(void) { is_team_lost = without_teams || !openmp.pause || openmp.pause(SOFT_PAUSE) != 0; }
static void in_child(void) { without_teams = is_team_lost; }

static int find(void *library, const char *name, void *pointer) {
  void *address = dlsym(library, name);
  memcpy(pointer, &address, sizeof(address));
  return address != NULL;
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
  openmp.is_complete = find(library, "GOMP_parallel", &openmp.parallel) &&
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

static void run_part(const struct loop *loop, int64_t part, int64_t num_parts) {
  const int64_t blocks = (loop->num_items - 1) / loop->grain + 1;
  const int64_t begin = blocks * part / num_parts * loop->grain;
  const int64_t end = byoc_min(loop->num_items, blocks * (part + 1) / num_parts * loop->grain);
  if (begin < end) {
    loop->range(begin, end, loop->data);
  }
}

static void run_own_part(void *argument) {
  run_part((const struct loop *)argument, openmp.thread_num(), openmp.num_threads());
}

/* A thread of a team other than the calling thread. */
struct worker {
  struct worker *next;
  int thread, is_moved;          /* is_moved: moved by the calling thread */
  int64_t cpu_ns;                /* at the last check */
  _Atomic uint64_t num_finished; /* loops */
};

/* A team kept awake for the loops of a body. The calling thread writes `loop`, then increments `sequence`; the other
 * threads run their parts and decrement `unfinished`. */
struct team {
  byoc_body body;
  void *data;
  const struct loop *loop; /* NULL after the end of the body */
  int64_t num_parts;
  byoc_places places;
  struct worker *_Atomic workers;
  int is_starved; /* some threads get no processor time */
  _Atomic uint64_t sequence;
  _Atomic int64_t unfinished;
};

/* The team of this thread's current body, outside the loops of the body. */
static _Thread_local struct team *awake_team;

static void share_loop(struct team *team, const struct loop *loop) {
  team->loop = loop;
  atomic_store_explicit(&team->unfinished, team->num_parts - 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&team->sequence, 1, memory_order_release);
}

static void work(struct team *team, int64_t part, int64_t num_parts) {
  struct worker self = {atomic_load(&team->workers), byoc_thread_id(), 0, 0, 0};
  byoc_processors allowed;
  int has_moved = 0;
  if (byoc_read_allowed(&allowed)) {
    while (!atomic_compare_exchange_weak(&team->workers, &self.next, &self)) {
    }
    has_moved = byoc_take_place(&team->places, &allowed);
  }
  for (uint64_t num_finished = 0;; ++num_finished) {
    for (int round = 0; atomic_load_explicit(&team->sequence, memory_order_acquire) == num_finished;
         round += round < BYOC_SPINS) {
      byoc_wait_once(round);
    }
    const struct loop *loop = team->loop;
    if (!loop) {
      break;
    }
    run_part(loop, part, num_parts);
    atomic_store_explicit(&self.num_finished, num_finished + 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&team->unfinished, 1, memory_order_release);
  }
  if (has_moved || self.is_moved) {
    byoc_allow(&allowed);
  }
}

static void run_team(void *argument) {
  struct team *team = (struct team *)argument;
  const int64_t part = openmp.thread_num(), num_parts = openmp.num_threads();
  if (part != 0) {
    work(team, part, num_parts);
    return;
  }
  team->num_parts = num_parts;
  awake_team = team;
  team->body(team->data);
  awake_team = NULL;
  if (!team->is_starved) {
    share_loop(team, NULL);
  }
}

enum { LATE_NS = 200000 };

/* Move workers to this processor if their work waits and the workers have not run for a while: another thread occupies
 * their processor, perhaps for milliseconds. Here the workers run when this thread yields the processor. */
static void move_starved_workers(struct team *team, int64_t *checked_ns) {
  const int64_t now = byoc_now_ns();
  const uint64_t num_begun = atomic_load_explicit(&team->sequence, memory_order_relaxed);
  if (*checked_ns && now - *checked_ns < LATE_NS) {
    return;
  }
  for (struct worker *worker = atomic_load(&team->workers); worker; worker = worker->next) {
    const int64_t cpu_ns = byoc_thread_ns(worker->thread);
    const int is_needed = atomic_load_explicit(&worker->num_finished, memory_order_relaxed) != num_begun;
    const int is_idle = *checked_ns && cpu_ns >= 0 && cpu_ns - worker->cpu_ns < LATE_NS / 4;
    if (is_needed && is_idle && byoc_bring(worker->thread)) {
      worker->is_moved = team->is_starved = 1;
    }
    worker->cpu_ns = cpu_ns;
  }
  *checked_ns = now;
}

static void run_on_awake_team(struct team *team, const struct loop *loop) {
  int64_t checked_ns = 0;
  awake_team = NULL; /* a loop inside the loop runs in the thread encountering the inner loop */
  share_loop(team, loop);
  run_part(loop, 0, team->num_parts);
  for (int round = 0; atomic_load_explicit(&team->unfinished, memory_order_acquire) != 0; round += round < BYOC_SPINS) {
    if (round < BYOC_SPINS || !team->is_starved) {
      byoc_wait_once(round);
    } else {
      byoc_sleep_once();
    }
    if (round == BYOC_SPINS) {
      move_starved_workers(team, &checked_ns);
    }
  }
  if (team->is_starved) {
    team->num_parts = 1;
    share_loop(team, NULL); /* the other threads leave and free the processor */
  }
  awake_team = team;
}

static int has_team(void) {
  (void)pthread_once(&resolve_once, resolve);
  return openmp.is_complete && !without_teams && openmp.max_threads() > 1 && !openmp.in_parallel();
}

void byoc_share_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  if (num_items > grain && awake_team && awake_team->num_parts > 1) {
    const struct loop loop = {num_items, grain, range, data};
    run_on_awake_team(awake_team, &loop);
  } else if (num_items > 0) {
    range(0, num_items, data);
  }
}

void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  if (num_items > grain && !awake_team && has_team()) {
    struct loop loop = {num_items, grain, range, data};
    openmp.parallel(run_own_part, &loop, 0, 0);
  } else {
    byoc_share_for(num_items, grain, range, data);
  }
}

/* The number of next bodies of this thread without a team, and this number after the next starved team. */
static _Thread_local int bodies_without_team, next_without_team = 1;

enum { MAX_WITHOUT_TEAM = 64 };

static void run_without_team(struct team *team) {
  awake_team = team;
  team->body(team->data);
  awake_team = NULL;
}

void byoc_with_team(byoc_body body, void *data) {
  if (awake_team || !has_team()) {
    body(data);
    return;
  }
  struct team team = {.body = body, .data = data, .num_parts = 1};
  if (bodies_without_team > 0) {
    --bodies_without_team;
    run_without_team(&team);
    return;
  }
  byoc_open_places(&team.places);
  openmp.parallel(run_team, &team, 0, 0);
  bodies_without_team = team.is_starved ? next_without_team : 0;
  next_without_team = team.is_starved ? (int)byoc_min(2 * next_without_team, MAX_WITHOUT_TEAM) : 1;
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
