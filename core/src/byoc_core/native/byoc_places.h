/* Places: the processors of a team's threads, kept apart while they work together.
 *
 * A kernel may wake a thread on the processor of the thread that wakes it, beside others that are idle, and leave both there
 * for milliseconds; guests whose kernel packs work onto few virtual processors do. A thread that finds itself on a taken
 * processor moves away and stays away until the team has done. Where all are on processors of their own nothing is set.
 */
#ifndef BYOC_PLACES_H_
#define BYOC_PLACES_H_

#include "byoc_ffi.h"

#include <stdatomic.h>

enum { BYOC_PROCESSOR_WORDS = 32 }; /* 1,024 processors, as many as a cpu_set_t has; those beyond are let be */

/* Processors that a thread may run on: a cpu_set_t. */
typedef struct {
  uint64_t set[BYOC_PROCESSOR_WORDS / 2];
} byoc_processors;

/* The processors that the threads of one team have taken; `home` is the one of the thread that opened it, or -1. */
typedef struct {
  _Atomic uint32_t words[BYOC_PROCESSOR_WORDS];
  int home;
} byoc_places;

/* Begins a team: the processor that this thread is on is taken. */
BYOC_LOCAL void byoc_open_places(byoc_places *places);

/* Reads where this thread may run. It fails, with 0, where the system has more processors. */
BYOC_LOCAL int byoc_read_allowed(byoc_processors *allowed);

/* Takes the processor that this thread is on. Where another thread of the team has it, this one moves to one that none has and
 * that it may run on, if there is one: then it gives 1, and byoc_allow is to follow. */
BYOC_LOCAL int byoc_take_place(byoc_places *places, const byoc_processors *allowed);

/* Keeps the thread that opened the team off the processors that others have taken; what it gives: as byoc_take_place. */
BYOC_LOCAL int byoc_keep_home(byoc_places *places, const byoc_processors *allowed);

/* Brings another thread, by its byoc_thread_id(), to the processor that this one is on. Not 0: done, byoc_allow is to follow. */
BYOC_LOCAL int byoc_bring(int thread);

/* Lets this thread run where byoc_read_allowed found before that it may. */
BYOC_LOCAL void byoc_allow(const byoc_processors *allowed);

/* The number of this thread. */
BYOC_LOCAL int byoc_thread_id(void);

/* Nanoseconds: of a clock that goes on, and for which a thread of this process has run; negative where nobody tells. */
BYOC_LOCAL int64_t byoc_now_ns(void);
BYOC_LOCAL int64_t byoc_thread_ns(int thread);

/* Waits for a moment, in the given round of waiting for something that another thread of the team does: it comes in
 * microseconds, unless other programs have the processors. After BYOC_SPINS rounds others are let run. */
enum { BYOC_SPINS = 2000 };
BYOC_LOCAL void byoc_wait_once(int round);

/* Leaves the processor to others for some tens of microseconds. */
BYOC_LOCAL void byoc_sleep_once(void);

#endif /* BYOC_PLACES_H_ */
