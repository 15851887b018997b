#include "spread.h"

#include "byoc_places.h"

#include <stdatomic.h>
#include <stddef.h>

/* A thread that has moved. */
struct worker {
  struct worker *next;
  int thread;
  byoc_processors before;
};

struct team {
  byoc_places places;
  struct worker *_Atomic moved;
  atomic_int num_come;
};

static byoc_regions openmp; /* as a whole before `parallel` */
static void (*_Atomic parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);

void byoc_spread_set_openmp(byoc_regions functions) {
  openmp = functions;
  atomic_store(&parallel, functions.parallel);
}

static void take_place(struct team *team) {
  static _Thread_local struct worker worker;
  if (!byoc_read_allowed(&worker.before) || !byoc_take_place(&team->places, &worker.before)) return;
  worker.thread = byoc_thread_id();
  worker.next = atomic_load(&team->moved);
  while (!atomic_compare_exchange_weak(&team->moved, &worker.next, &worker)) continue;
}

static void gather(void *argument) {
  struct team *team = argument;
  if (openmp.thread_num() != 0) {
    take_place(team);
    atomic_fetch_add(&team->num_come, 1);
    return;
  }
  /* Awake until all have come, or it might be woken on the processor of one of them. */
  const int num_others = openmp.num_threads() - 1;
  for (int round = 0; atomic_load(&team->num_come) < num_others; round += round < BYOC_SPINS) byoc_wait_once(round);
}

int byoc_spread_run(int (*body)(void *data), void *data) {
  void (*region)(void (*)(void *), void *, unsigned, unsigned) = atomic_load(&parallel);
  if (!region || openmp.max_threads() <= 1) return body(data);
  struct team team = {.moved = NULL};
  byoc_open_places(&team.places);
  region(gather, &team, 0, 0);
  struct worker *worker = atomic_load(&team.moved);
  if (!worker) return body(data);
  /* This thread may fall asleep in a region of the body, and is not to be woken beside another one either. */
  byoc_processors before;
  const int is_kept = byoc_read_allowed(&before) && byoc_keep_home(&team.places, &before);
  const int result = body(data);
  if (is_kept) byoc_allow(0, &before);
  for (; worker; worker = worker->next) byoc_allow(worker->thread, &worker->before);
  return result;
}
