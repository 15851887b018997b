#include "team.h"

#include "byoc_places.h"

#include <stdatomic.h>
#include <stddef.h>

struct team {
  byoc_places places;
  atomic_int num_arrived, num_moved;
};

/* Per thread: whether the thread has moved, and the processor affinity before the move. */
static _Thread_local int has_moved;
static _Thread_local byoc_processors saved_affinity;

static byoc_openmp_functions openmp; /* written completely before `parallel` */
static void (*_Atomic parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);

void byoc_team_set_openmp(byoc_openmp_functions functions) {
  openmp = functions;
  atomic_store(&parallel, functions.parallel);
}

static void separate_threads(void *argument) {
  struct team *team = argument;
  if (openmp.thread_num() != 0) {
    has_moved = byoc_read_allowed(&saved_affinity) && byoc_take_place(&team->places, &saved_affinity);
    atomic_fetch_add(&team->num_moved, has_moved);
    atomic_fetch_add(&team->num_arrived, 1);
    return;
  }
  /* Stay awake until all threads have arrived; otherwise this thread might be woken on the processor of another
   * thread. */
  const int num_workers = openmp.num_threads() - 1;
  for (int round = 0; atomic_load(&team->num_arrived) < num_workers; round += round < BYOC_SPINS) byoc_wait_once(round);
}

/* Restore each thread separately: during regions of other sizes, libgomp may have replaced moved threads with new
 * threads. */
static void restore_affinity(void *unused) {
  (void)unused;
  if (has_moved) byoc_allow(&saved_affinity);
  has_moved = 0;
}

int byoc_team_run(int (*body)(void *data), void *data) {
  void (*region)(void (*)(void *), void *, unsigned, unsigned) = atomic_load(&parallel);
  const int num_threads = region ? openmp.max_threads() : 1;
  if (num_threads <= 1) return body(data);
  struct team team = {.num_moved = 0};
  byoc_open_places(&team.places);
  region(separate_threads, &team, 0, 0);
  if (atomic_load(&team.num_moved) == 0) return body(data);
  /* This thread may fall asleep in a region of the body, and must not be woken on the processor of the other thread
   * either. In larger teams, libgomp may create threads during the body; these would inherit the affinity of this
   * thread. */
  has_moved = num_threads == 2 && byoc_read_allowed(&saved_affinity) && byoc_keep_home(&team.places, &saved_affinity);
  const int result = body(data);
  region(restore_affinity, NULL, 0, 0);
  return result;
}
