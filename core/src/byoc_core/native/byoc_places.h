/* Places: the processors of a team's threads, kept separate during the work of the team.
 *
 * A kernel may wake a thread on the processor of the waking thread although other processors are idle, and leave both
 * threads there for milliseconds; for example, guest kernels packing work onto few virtual processors. A thread on a
 * taken processor moves away, and stays away until the team has finished. If all threads have processors of their own,
 * no affinity is set.
 */
#ifndef BYOC_PLACES_H_
#define BYOC_PLACES_H_

#include "byoc_ffi.h"

#include <stdatomic.h>

enum { BYOC_PROCESSOR_WORDS = 32 }; /* 1,024 processors, as in a cpu_set_t; further processors are ignored */

/* The processors permitted for a thread: a cpu_set_t. */
typedef struct {
  uint64_t set[BYOC_PROCESSOR_WORDS / 2];
} byoc_processors;

/* The processors taken by the threads of a team; `home` is the processor of the opening thread, or -1. */
typedef struct {
  _Atomic uint32_t words[BYOC_PROCESSOR_WORDS];
  int home;
} byoc_places;

/* Begin a team: the processor of this thread is taken. */
BYOC_LOCAL void byoc_open_places(byoc_places *places);

/* Read the processor affinity of this thread. Return 0 on failure, if the system has more processors. */
BYOC_LOCAL int byoc_read_allowed(byoc_processors *allowed);

/* Take the processor of this thread. If another thread of the team has taken the processor, move to an allowed
 * processor not taken by the team, if any. Return 1 after a move: byoc_allow must follow. */
BYOC_LOCAL int byoc_take_place(byoc_places *places, const byoc_processors *allowed);

/* Keep the opening thread of the team off the processors taken by other threads; returns as byoc_take_place. */
BYOC_LOCAL int byoc_keep_home(byoc_places *places, const byoc_processors *allowed);

/* Move another thread (a byoc_thread_id()) to the processor of this thread. Return nonzero on success: a byoc_allow by
 * the moved thread must follow. */
BYOC_LOCAL int byoc_bring(int thread);

/* Move this thread, brought by byoc_bring, to other allowed processors, if any. A byoc_allow by this thread must follow.
 */
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
