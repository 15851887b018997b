/* Places: the processors of a team's threads, kept separate.
 *
 * A kernel may wake a thread on the processor of the waking thread although other processors are idle, and leave both
 * threads there for milliseconds; for example, guest kernels packing work onto few virtual processors. During the work
 * of a team, a worker on a taken processor limits itself to the processors not taken by the team. Afterwards the worker
 * stays off the processor of the opening thread, so the kernel wakes the worker elsewhere from then on. A worker bound
 * by others, to processors not allowed for the opening thread, is never allowed further processors.
 */
#ifndef BYOC_PLACES_H_
#define BYOC_PLACES_H_

#include "byoc_ffi.h"

#include <stdatomic.h>

/* 1,024 processors, as in a cpu_set_t; further processors are ignored. */
enum { BYOC_WORD_BITS = 8 * sizeof(long), BYOC_PROCESSOR_WORDS = 1024 / BYOC_WORD_BITS };

/* A set of processors: a cpu_set_t. */
typedef struct {
  unsigned long words[BYOC_PROCESSOR_WORDS];
} byoc_processors;

/* The processors taken by the threads of a team; the opening thread, and the thread's processor then, or -1. */
typedef struct {
  _Atomic unsigned long words[BYOC_PROCESSOR_WORDS];
  int opener, home;
} byoc_places;

/* Begin a team: the processor of this thread is taken. */
BYOC_LOCAL void byoc_open_places(byoc_places *places);

/* Read the processors allowed for this thread. Return 0 on failure, if the system has more processors. */
BYOC_LOCAL int byoc_read_allowed(byoc_processors *allowed);

/* Take the processor of this worker. If another thread of the team has taken the processor, limit the worker to allowed
 * processors not taken by the team. Return 1 if the worker is limited: byoc_leave_place must follow. If all allowed
 * processors are taken, the worker has no limits. */
BYOC_LOCAL int byoc_take_place(byoc_places *places);

/* End the limits of a worker; the worker stays off the processor of the opening thread. */
BYOC_LOCAL void byoc_leave_place(const byoc_places *places);

/* Return whether this worker may run on the processor of the opening thread. */
BYOC_LOCAL int byoc_may_be_home(const byoc_places *places);

/* Keep the opening thread of the team off the processors taken by other threads. Return 1 if the thread is limited:
 * byoc_allow must follow. */
BYOC_LOCAL int byoc_keep_home(byoc_places *places, const byoc_processors *allowed);

/* Move another thread (a byoc_thread_id()) to the processor of this thread. Return nonzero on success: a
 * byoc_free_worker by the moved thread must follow. */
BYOC_LOCAL int byoc_bring(int thread);

/* Move this worker, brought by byoc_bring, to other allowed processors, if any. A byoc_free_worker must follow. */
BYOC_LOCAL void byoc_leave_processor(const byoc_processors *allowed);

/* Allow this worker the processors read earlier by byoc_read_allowed, without limits of earlier teams. */
BYOC_LOCAL void byoc_free_worker(const byoc_places *places, const byoc_processors *allowed);

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
