/* Places: the processors of a team's threads, kept distinct while the threads work together.
 *
 * A kernel may wake a thread on the processor of the waking thread in spite of idle processors, and leave both threads there
 * for milliseconds; kernels of guests with few virtual processors do. A thread on a taken processor moves to another
 * processor and stays there until the team has finished. If all threads have separate processors, nothing is set.
 */
#ifndef BYOC_PLACES_H_
#define BYOC_PLACES_H_

#include "byoc_ffi.h"

#include <stdatomic.h>

enum { BYOC_PROCESSOR_WORDS = 32 }; /* 1,024 processors, the size of a cpu_set_t; further processors are ignored */

/* The allowed processors of a thread: a cpu_set_t. */
typedef struct {
  uint64_t set[BYOC_PROCESSOR_WORDS / 2];
} byoc_processors;

/* The processors taken by the threads of a team; `home` is the processor of the opening thread, or -1. */
typedef struct {
  _Atomic uint32_t words[BYOC_PROCESSOR_WORDS];
  int home;
} byoc_places;

/* Begin a team and take this thread's current processor. */
BYOC_LOCAL void byoc_open_places(byoc_places *places);

/* Read the allowed processors of this thread. Fail with 0 if the system has more processors. */
BYOC_LOCAL int byoc_read_allowed(byoc_processors *allowed);

/* Take this thread's current processor. If another thread of the team has the processor, move to a free allowed processor,
 * if any, and return 1; byoc_allow must follow. */
BYOC_LOCAL int byoc_take_place(byoc_places *places, const byoc_processors *allowed);

/* Keep the thread opening the team off the processors taken by others; returns like byoc_take_place. */
BYOC_LOCAL int byoc_keep_home(byoc_places *places, const byoc_processors *allowed);

/* Move another thread, by byoc_thread_id(), to this thread's processor. Not 0: moved; byoc_allow must follow. */
BYOC_LOCAL int byoc_bring(int thread);

/* Allow this thread the processors read before by byoc_read_allowed. */
BYOC_LOCAL void byoc_allow(const byoc_processors *allowed);

/* Return the number of this thread. */
BYOC_LOCAL int byoc_thread_id(void);

/* Nanoseconds of a monotonic clock, and of the processor time of a thread of this process; negative if unknown. */
BYOC_LOCAL int64_t byoc_now_ns(void);
BYOC_LOCAL int64_t byoc_thread_ns(int thread);

/* Pause in the given round of spinning on another thread of the team: the wait is microseconds, unless other programs
 * hold the processors. After BYOC_SPINS rounds, yield the processor. */
enum { BYOC_SPINS = 2000 };
BYOC_LOCAL void byoc_wait_once(int round);

/* Yield the processor for some tens of microseconds. */
BYOC_LOCAL void byoc_sleep_once(void);

#endif /* BYOC_PLACES_H_ */
