#include "team.h"

#include "byoc_places.h"

#include <stdatomic.h>
#include <stddef.h>

struct team {
  byoc_places places;
  atomic_int num_arrived, num_limited, num_away; /* away from the processor of the calling thread for good */
};

static _Thread_local int is_limited; /* this worker, by the current team */

static byoc_openmp_functions openmp; /* written completely before `parallel` */
static void (*_Atomic parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);

void byoc_team_set_openmp(byoc_openmp_functions functions) {
  openmp = functions;
  atomic_store(&parallel, functions.parallel);
}

static void separate_threads(void *argument) {
  struct team *team = argument;
  if (openmp.thread_num() != 0) {
    is_limited = byoc_take_place(&team->places);
    atomic_fetch_add(&team->num_limited, is_limited);
    atomic_fetch_add(&team->num_away, !byoc_may_be_home(&team->places));
    atomic_fetch_add(&team->num_arrived, 1);
    return;
  }
  /* Stay awake until all threads have arrived; otherwise this thread might be woken on the processor of another
   * thread. */
  const int num_workers = openmp.num_threads() - 1;
  for (int round = 0; atomic_load(&team->num_arrived) < num_workers; round += round < BYOC_SPINS) byoc_wait_once(round);
}

/* Each worker looks for itself: during regions of other sizes, libgomp may have replaced limited workers by new ones. */
static void leave_places(void *team) {
  if (is_limited) byoc_leave_place(&((struct team *)team)->places);
  is_limited = 0;
}

int byoc_team_run(int (*body)(void *data), void *data) {
  void (*region)(void (*)(void *), void *, unsigned, unsigned) = atomic_load(&parallel);
  const int num_threads = region ? openmp.max_threads() : 1;
  if (num_threads <= 1) return body(data);
  struct team team = {.num_arrived = 0};
  byoc_open_places(&team.places);
  region(separate_threads, &team, 0, 0);
  /* This thread may fall asleep in a region of the body, and must not be woken on the processor of the other thread
   * either, unless the other thread can leave. In larger teams, libgomp may create threads during the body; these would
   * inherit the affinity of this thread. */
  byoc_processors allowed;
  const int is_kept = num_threads == 2 && atomic_load(&team.num_away) && byoc_read_allowed(&allowed) &&
                      byoc_keep_home(&team.places, &allowed);
  const int result = body(data);
  if (is_kept) byoc_allow(&allowed);
  /* A single worker is limited by the processor of this thread alone, and stays so. */
  if (num_threads > 2 && atomic_load(&team.num_limited)) region(leave_places, &team, 0, 0);
  return result;
}
