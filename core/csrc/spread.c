#include "spread.h"

#include "byoc_places.h"

#include <stdatomic.h>
#include <stddef.h>

struct team {
  byoc_places places;
  atomic_int num_come, num_moved;
};

/* Per thread: whether the thread has moved, and the processor affinity before the move. */
static _Thread_local int moved;
static _Thread_local byoc_processors before;

static byoc_regions openmp; /* written completely before `parallel` */
static void (*_Atomic parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);

void byoc_spread_set_openmp(byoc_regions functions) {
  openmp = functions;
  atomic_store(&parallel, functions.parallel);
}

static void gather(void *argument) {
  struct team *team = argument;
  if (openmp.thread_num() != 0) {
    moved = byoc_read_allowed(&before) && byoc_take_place(&team->places, &before);
    atomic_fetch_add(&team->num_moved, moved);
    atomic_fetch_add(&team->num_come, 1);
    return;
  }
  /* Stay awake until all threads have arrived; otherwise this thread might be woken on the processor of another
   * thread. */
  const int num_others = openmp.num_threads() - 1;
  for (int round = 0; atomic_load(&team->num_come) < num_others; round += round < BYOC_SPINS) byoc_wait_once(round);
}

/* Restore each thread separately: during regions of other sizes, libgomp may have replaced moved threads with new
 * threads. */
static void disperse(void *unused) {
  (void)unused;
  if (moved) byoc_allow(&before);
  moved = 0;
}

int byoc_spread_run(int (*body)(void *data), void *data) {
  void (*region)(void (*)(void *), void *, unsigned, unsigned) = atomic_load(&parallel);
  const int num_threads = region ? openmp.max_threads() : 1;
  if (num_threads <= 1) return body(data);
  struct team team = {.num_moved = 0};
  byoc_open_places(&team.places);
  region(gather, &team, 0, 0);
  if (atomic_load(&team.num_moved) == 0) return body(data);
  /* This thread may fall asleep in a region of the body, and must not be woken on the processor of the other thread
   * either. In larger teams, libgomp may create threads during the body; these would inherit the affinity of this
   * thread. */
  moved = num_threads == 2 && byoc_read_allowed(&before) && byoc_keep_home(&team.places, &before);
  const int result = body(data);
  region(disperse, NULL, 0, 0);
  return result;
}
