/* Loops on the threads of libgomp, called through pointers: generated code needs no -fopenmp with any compiler. */
#include "byoc_parallel.h"
#include "byoc_places.h"

#include <string.h>

#if defined(__linux__)
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

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
  int is_complete, spins_as_told; /* by the environment: idle workers may be awake for any time */
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

static int is_set(const char *variable) {
  const char *value = getenv(variable);
  return value && *value;
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
  openmp.spins_as_told = is_set("GOMP_SPINCOUNT") || is_set("OMP_WAIT_POLICY");
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

static int64_t num_blocks(const struct loop *loop) { return (loop->num_items - 1) / loop->grain + 1; }

static void run_blocks(const struct loop *loop, int64_t begin, int64_t end) {
  if (begin < end) {
    loop->range(begin * loop->grain, byoc_min(loop->num_items, end * loop->grain), loop->data);
  }
}

enum { MOST_PARTS = 64 }; /* of a loop; further threads share parts */

/* A thread of a team other than the calling thread. */
enum worker_state { ABSENT, WAITING, WORKING };

struct worker {
  atomic_flag lock; /* of the fields below; the calling thread does not wait for the lock */
  enum worker_state state;
  int is_moved; /* by the calling thread */
  int thread;
  int64_t cpu_ns; /* at the last check */
};

/* A team kept awake for the loops of a body.
 *
 * The blocks of a loop are divided into `parts` of neighbouring blocks: the first block of a part is in the low half of
 * a word, the end in the high half. Each thread takes pieces from the front of the thread's own part, then from the back
 * of other parts. So a loop does not wait for a thread unable to run, except for a piece already taken.
 *
 * The calling thread writes the loop and the parts, then opens the gate. The gate is a word of flags, the number of
 * other threads in the loop (low half), and the number of the loop (high half). Threads enter through the open gate
 * only. The calling thread closes the gate when all pieces are taken, and waits for the threads in the loop. */
struct team {
  byoc_body body;
  void *data;
  int64_t num_parts;
  _Atomic uint64_t gate;
  const struct loop *loop;
  uint64_t least_blocks; /* of a piece, if the part has as many */
  _Atomic uint64_t parts[MOST_PARTS];
  struct worker workers[MOST_PARTS]; /* by number of the thread; further workers are not brought */
  byoc_places places;
  _Atomic uint64_t num_present; /* workers before the end of the body */
  _Atomic int64_t num_arrived;
  int64_t lost_ns, ended_ns; /* time waiting for threads unable to run; the end of the body, if threads are missing */
};

static const uint64_t IS_CLOSED = (uint64_t)1 << 31, HAS_ENDED = (uint64_t)1 << 30, NUM_INSIDE = ((uint64_t)1 << 30) - 1;

/* The team of this thread's current body, outside the loops of the body. */
static _Thread_local struct team *awake_team;

static uint64_t part_word(uint64_t begin, uint64_t end) { return end << 32 | begin; }

/* Take a piece of a part: half of the rest, but no piece smaller than `least_blocks`. Return 0 if nothing is left. */
static int take_piece(struct team *team, int64_t part, int is_own, int64_t *begin, int64_t *end) {
  _Atomic uint64_t *word = &team->parts[part];
  uint64_t rest = atomic_load_explicit(word, memory_order_relaxed);
  for (;;) {
    const uint64_t first = rest & UINT32_MAX, last = rest >> 32, blocks = last - first;
    if (first >= last) {
      return 0;
    }
    const uint64_t half = (blocks + 1) / 2, wanted = half < team->least_blocks ? team->least_blocks : half;
    const uint64_t taken = wanted < blocks ? wanted : blocks;
    const uint64_t left = is_own ? part_word(first + taken, last) : part_word(first, last - taken);
    if (atomic_compare_exchange_weak_explicit(word, &rest, left, memory_order_relaxed, memory_order_relaxed)) {
      *begin = (int64_t)(is_own ? first : last - taken);
      *end = *begin + (int64_t)taken;
      return 1;
    }
  }
}

/* Run pieces until all are taken, beginning with a thread's own part. */
static void run_pieces(struct team *team, int64_t own) {
  const struct loop *loop = team->loop;
  for (int64_t k = 0; k < team->num_parts; ++k) {
    const int64_t part = (own + k) % team->num_parts;
    for (int64_t begin, end; take_piece(team, part, k == 0, &begin, &end);) {
      run_blocks(loop, begin, end);
    }
  }
}

static void open_gate(struct team *team, uint64_t flags) {
  const uint64_t number = (atomic_load_explicit(&team->gate, memory_order_relaxed) >> 32) + 1;
  atomic_store_explicit(&team->gate, number << 32 | flags, memory_order_release);
}

/* Enter the loop of a gate read before; return 0 if the loop is over. */
static int enter(struct team *team, uint64_t gate) {
  for (const uint64_t number = gate >> 32; gate >> 32 == number && !(gate & IS_CLOSED);) {
    if (atomic_compare_exchange_weak_explicit(&team->gate, &gate, gate + 1, memory_order_acquire,
                                              memory_order_relaxed)) {
      return 1;
    }
  }
  return 0;
}

/* Change the state of this thread; return whether the calling thread has moved this thread meanwhile. */
static int change_state(struct worker *self, enum worker_state state) {
  while (atomic_flag_test_and_set_explicit(&self->lock, memory_order_acquire)) {
    byoc_wait_once(BYOC_SPINS);
  }
  const int is_moved = self->is_moved;
  self->state = state;
  self->is_moved = 0;
  atomic_flag_clear_explicit(&self->lock, memory_order_release);
  return is_moved;
}

static void work(struct team *team, int64_t number) {
  struct worker untracked = {ATOMIC_FLAG_INIT, ABSENT, 0, 0, 0};
  byoc_processors allowed;
  const int is_limited = byoc_take_place(&team->places);
  const int is_movable = number < MOST_PARTS && byoc_read_allowed(&allowed);
  struct worker *self = is_movable ? &team->workers[number] : &untracked;
  int has_been_brought = 0;
  self->thread = byoc_thread_id();
  (void)change_state(self, WAITING);
  atomic_fetch_add(&team->num_present, 1);
  atomic_fetch_add(&team->num_arrived, 1);
  for (uint64_t gate, seen = 0;; seen = gate >> 32) {
    for (int round = 0; (gate = atomic_load_explicit(&team->gate, memory_order_acquire)) >> 32 == seen;
         round += round < BYOC_SPINS) {
      byoc_wait_once(round);
    }
    if (gate & HAS_ENDED) {
      break;
    }
    int is_moved = change_state(self, WORKING);
    if (enter(team, gate)) {
      run_pieces(team, number % team->num_parts);
      atomic_fetch_sub_explicit(&team->gate, 1, memory_order_release);
    }
    is_moved |= change_state(self, WAITING);
    if (is_moved) {
      has_been_brought = 1;
      byoc_leave_processor(&allowed);
    }
  }
  has_been_brought |= change_state(self, ABSENT);
  if (has_been_brought) {
    byoc_free_worker(&team->places, &allowed);
  } else if (is_limited) {
    byoc_leave_place(&team->places);
  }
  atomic_fetch_sub_explicit(&team->num_present, 1, memory_order_release);
}

enum { LATE_NS = 200000 };

/* Move workers with a state of at least `state` to this processor if the workers have not run since the last check:
 * another thread occupies their processor, perhaps for milliseconds. Here the workers run when this thread sleeps.
 * Return the number of moved workers. */
static int bring_late_workers(struct team *team, enum worker_state state, int has_checked) {
  int num_moved = 0;
  for (struct worker *worker = team->workers; worker < team->workers + MOST_PARTS; ++worker) {
    if (atomic_flag_test_and_set_explicit(&worker->lock, memory_order_acquire)) {
      continue;
    }
    if (worker->state >= state) {
      const int64_t cpu_ns = byoc_thread_ns(worker->thread);
      if (has_checked && cpu_ns >= 0 && cpu_ns - worker->cpu_ns < LATE_NS / 4 && byoc_bring(worker->thread)) {
        worker->is_moved = 1;
        ++num_moved;
      }
      worker->cpu_ns = cpu_ns;
    }
    atomic_flag_clear_explicit(&worker->lock, memory_order_release);
  }
  return num_moved;
}

/* Wait until some bits of a word are 0: all workers with a state of at least `state` must lower the state first. */
static void await_workers(struct team *team, const _Atomic uint64_t *word, uint64_t bits, enum worker_state state) {
  int64_t begin_ns = 0, checked_ns = 0;
  int num_moved = 0;
  for (int round = 0; (atomic_load_explicit(word, memory_order_acquire) & bits) != 0; round += round < BYOC_SPINS) {
    if (round < BYOC_SPINS || !num_moved) {
      byoc_wait_once(round);
    } else {
      byoc_sleep_once();
    }
    if (round == BYOC_SPINS) {
      const int64_t now = byoc_now_ns();
      if (!checked_ns || now - checked_ns >= LATE_NS) {
        begin_ns = begin_ns ? begin_ns : now;
        num_moved += bring_late_workers(team, state, checked_ns != 0);
        checked_ns = now;
      }
    }
  }
  if (num_moved) {
    team->lost_ns += byoc_now_ns() - begin_ns;
  }
}

/* Run a loop on the awake team of this thread. The smallest piece is a quarter of a part; but a whole part, if there is
 * little work, or if the part has few blocks: such loops have work at the begin of each piece, as rows of a halo. */
static void run_on_awake_team(struct team *team, struct loop *loop, int has_enough_work) {
  enum { NUM_PIECES = 4, LEAST_BLOCKS = 16 };
  while (loop->num_items / loop->grain >= INT32_MAX) {
    loop->grain *= 2;
  }
  const int64_t blocks = num_blocks(loop);
  const int64_t part_blocks = (blocks - 1) / team->num_parts + 1;
  const int64_t num_pieces = has_enough_work && part_blocks >= LEAST_BLOCKS ? NUM_PIECES : 1;
  awake_team = NULL; /* a loop inside the loop runs in the thread encountering the inner loop */
  team->loop = loop;
  team->least_blocks = (uint64_t)((part_blocks - 1) / num_pieces + 1);
  for (int64_t part = 0; part < team->num_parts; ++part) {
    const int64_t begin = blocks * part / team->num_parts, end = blocks * (part + 1) / team->num_parts;
    atomic_store_explicit(&team->parts[part], part_word((uint64_t)begin, (uint64_t)end), memory_order_relaxed);
  }
  open_gate(team, 0);
  run_pieces(team, 0);
  atomic_fetch_or_explicit(&team->gate, IS_CLOSED, memory_order_relaxed);
  await_workers(team, &team->gate, NUM_INSIDE, WORKING);
  awake_team = team;
}

static void run_team(void *argument) {
  struct team *team = (struct team *)argument;
  const int64_t number = openmp.thread_num(), num_threads = openmp.num_threads();
  if (number != 0) {
    work(team, number);
    return;
  }
  team->num_parts = byoc_min(num_threads, MOST_PARTS);
  awake_team = team;
  team->body(team->data);
  awake_team = NULL;
  open_gate(team, HAS_ENDED);
  await_workers(team, &team->num_present, UINT64_MAX, WAITING);
  if (atomic_load(&team->num_arrived) < num_threads - 1) {
    team->ended_ns = byoc_now_ns();
  }
}

static int has_team(void) {
  (void)pthread_once(&resolve_once, resolve);
  return openmp.is_complete && !without_teams && openmp.max_threads() > 1 && !openmp.in_parallel();
}

/* Run a loop on the awake team of this thread if any, else in this thread. */
static void share_loop(struct loop *loop, int has_enough_work) {
  if (loop->num_items > loop->grain && awake_team && awake_team->num_parts > 1) {
    run_on_awake_team(awake_team, loop, has_enough_work);
  } else if (loop->num_items > 0) {
    loop->range(0, loop->num_items, loop->data);
  }
}

void byoc_share_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  struct loop loop = {num_items, grain, range, data};
  share_loop(&loop, 0);
}

enum { COST_OF_LOSS = 16, MOST_LOSS_NS = 100000000, MOST_BALANCE_NS = 100000000 };
enum { PAUSE_NS = 20000, LONG_PAUSE_NS = 5000000 };

/* Of this thread, by bodies of this library: the ends of the last body and of the last team, the work done alone since
 * the last pause, in picoseconds, and the work needed then to wake a team.
 *
 * The balance is a credit and the time of all bodies, less 16 times the time lost waiting for threads unable to run.
 * While negative, bodies run without a team: the lost time is a sixteenth of all time, apart from the credit. */
static _Thread_local struct {
  int64_t last_end_ns, last_team_ns;
  double alone_ps, waking_ps;
  int64_t balance_ns;
} history = {.balance_ns = MOST_BALANCE_NS};

/* Return whether to wake the team for an amount of work: together with the work done alone since the last pause, the
 * work takes longer on one thread than a wakeup. Idle workers of libgomp are asleep after some tens of microseconds
 * (byoc_core.runtime.threads.openmp.SPIN_COUNT); after milliseconds their processors sleep deeply, with cold caches. */
static int is_worth_waking(double work_ps, int64_t now_ns) {
  const int64_t idle_ns = now_ns - history.last_team_ns;
  if (openmp.spins_as_told || idle_ns < PAUSE_NS) {
    return 1;
  }
  if (now_ns - history.last_end_ns >= PAUSE_NS) {
    history.alone_ps = 0.;
    history.waking_ps = idle_ns < LONG_PAUSE_NS ? 120e6 : 300e6;
  }
  history.alone_ps += work_ps;
  return history.alone_ps >= history.waking_ps;
}

static void run_without_team(struct team *team) {
  awake_team = team;
  team->body(team->data);
  awake_team = NULL;
}

void byoc_with_team(byoc_body body, void *data, double work_ps) {
  if (awake_team || !has_team()) {
    body(data);
    return;
  }
  struct team team = {.body = body, .data = data, .num_parts = 1};
  const int64_t begin_ns = byoc_now_ns();
  int64_t lost_ns = 0;
  const int is_worthwhile = is_worth_waking(work_ps, begin_ns); /* counts the work in any case */
  if (history.balance_ns < 0 || !is_worthwhile) {
    run_without_team(&team);
  } else {
    byoc_open_places(&team.places);
    openmp.parallel(run_team, &team, 0, 0);
    history.last_team_ns = byoc_now_ns();
    const int64_t missing_ns = team.ended_ns ? history.last_team_ns - team.ended_ns : 0;
    lost_ns = team.lost_ns + (missing_ns > LATE_NS ? missing_ns : 0);
  }
  history.last_end_ns = byoc_now_ns();
  history.balance_ns = byoc_min(history.balance_ns + history.last_end_ns - begin_ns, MOST_BALANCE_NS) -
                       COST_OF_LOSS * byoc_min(lost_ns, MOST_LOSS_NS);
}

/* Run whole parts, the same parts with and without a team: bits may depend on the parts of a caller's `range`. */
static void run_loop(void *data) {
  struct loop *loop = (struct loop *)data;
  if (awake_team && awake_team->num_parts > 1) {
    run_on_awake_team(awake_team, loop, 0);
    return;
  }
  const int64_t blocks = num_blocks(loop), num_parts = byoc_min(openmp.max_threads(), MOST_PARTS);
  for (int64_t part = 0; part < num_parts; ++part) {
    run_blocks(loop, blocks * part / num_parts, blocks * (part + 1) / num_parts);
  }
}

void byoc_parallel_for(int64_t num_items, int64_t grain, byoc_range range, const void *data) {
  const double unknown_work_ps = 1e15; /* enough to wake a team */
  struct loop loop = {num_items, grain, range, data};
  if (num_items > grain && !awake_team && has_team()) {
    byoc_with_team(run_loop, &loop, unknown_work_ps);
  } else {
    share_loop(&loop, 1);
  }
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

void byoc_with_team(byoc_body body, void *data, double work_ps) {
  (void)work_ps;
  body(data);
}

#endif
