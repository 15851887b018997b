/* Places: the processors of a team's threads, kept separate during the work of the team.
 *
 * A kernel may wake a thread on the processor of the waking thread although other processors are idle, and leave both
 * threads there for milliseconds; for example, guest kernels packing work onto few virtual processors. A worker on a
 * taken processor limits itself to the processors not taken by the team, and stays limited for later teams, so that the
 * kernel wakes the worker elsewhere from then on. If all threads have processors of their own, no affinity is set.
 */
#ifndef BYOC_PLACES_H_
#define BYOC_PLACES_H_

#include "byoc_ffi.h"

#include <stdatomic.h>

enum { BYOC_PROCESSOR_WORDS = 16 }; /* 1,024 processors, as in a cpu_set_t; further processors are ignored */

/* The processors permitted for a thread: a cpu_set_t. */
typedef struct {
  uint64_t set[BYOC_PROCESSOR_WORDS];
} byoc_processors;

/* The processors taken by the threads of a team; `home` is the processor of the opening thread, or -1. */
typedef struct {
  _Atomic uint64_t words[BYOC_PROCESSOR_WORDS];
  int home, opener;
} byoc_places;

/* Begin a team: the processor of this thread is taken. */
BYOC_LOCAL void byoc_open_places(byoc_places *places);

/* Read the processor affinity of this thread. Return 0 on failure, if the system has more processors. */
BYOC_LOCAL int byoc_read_allowed(byoc_processors *allowed);

/* Take the processor of this worker. If another thread of the team has taken the processor, limit the worker to
 * processors not taken by the team, if any, of the processors allowed for the worker or the opening thread. */
BYOC_LOCAL void byoc_take_place(byoc_places *places);

/* Return whether this worker may run on the processor of the opening thread. */
BYOC_LOCAL int byoc_may_be_home(const byoc_places *places);

/* Allow this worker the given processors, and all allowed for the opening thread. */
BYOC_LOCAL void byoc_lift_limits(const byoc_places *places, const byoc_processors *allowed);

/* Keep the opening thread of the team off the processors taken by other threads. Return 1 if the thread is limited:
 * byoc_allow must follow. */
BYOC_LOCAL int byoc_keep_home(byoc_places *places, const byoc_processors *allowed);

/* Move another thread (a byoc_thread_id()) to the processor of this thread. Return nonzero on success: a
 * byoc_lift_limits by the moved thread must follow. */
BYOC_LOCAL int byoc_bring(int thread);

/* Move this worker, brought by byoc_bring, to other allowed processors, if any. A byoc_lift_limits by this worker must
 * follow. */
BYOC_LOCAL void byoc_leave_processor(const byoc_processors *allowed);

/* Restore the processor affinity read earlier by byoc_read_allowed in this thread. */
BYOC_LOCAL void byoc_allow(const byoc_processors *allowed);

/* Return the number of this thread. */
BYOC_LOCAL int byoc_thread_id(void);

/* Return nanoseconds, of a monotonic clock, and of the run time of a thread of this process; negative if unknown. */
BYOC_LOCAL int64_t byoc_now_ns(void);
BYOC_LOCAL int64_t byoc_thread_ns(int thread);

/* Wait for a moment, in the given round of waiting for another thread of the team. The other thread answers within
 * microseconds, unless other programs occupy the processors. After BYOC_SPINS rounds of spinning, yield the processor
 * to other threads. */
enum { BYOC_SPINS = 2000 };
BYOC_LOCAL void byoc_wait_once(int round);

/* Leave the processor to other threads for some tens of microseconds. */
BYOC_LOCAL void byoc_sleep_once(void);

#endif /* BYOC_PLACES_H_ */
