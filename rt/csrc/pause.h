/* Pauses of long calls: the caller may end a call, for example after an interruption by the user. */
#ifndef BYOC_RT_PAUSE_H_
#define BYOC_RT_PAUSE_H_

#include "core_abi.h"
#include "native_machine.h"

/* The pauses of the call under way in a thread. */
typedef struct {
  const byoc_pause *pause; /* NULL: none */
  int64_t start;           /* milliseconds: of the call, or the last pause; 0: no step yet */
  uint32_t num_steps; /* wraps around */
  int is_ended;       /* whether the caller has ended the call */
} rt_pauses;

/* Begin a call with pauses in this thread; return the pauses of the call around, for rt_end_pauses. */
rt_pauses rt_begin_pauses(const byoc_pause *pause);
void rt_end_pauses(rt_pauses before);

/* Pause, if the call has pauses. Return nonzero after setting an error: the caller ends the call. */
int32_t rt_pause(void);

/* Count a step; pause if the last pause was about a tenth of a second ago. Return as rt_pause. */
int32_t rt_pause_after_step(void);

/* Return whether the caller has ended the call under way in this thread. */
int rt_is_ended(void);

#endif /* BYOC_RT_PAUSE_H_ */
