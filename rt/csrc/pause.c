#include "pause.h"

#include <time.h>

enum { MILLISECONDS_BETWEEN_PAUSES = 100, STEPS_BETWEEN_CLOCKS = 16 };

static _Thread_local rt_pauses current;

rt_pauses rt_begin_pauses(const byoc_pause *pause) {
  const rt_pauses before = current;
  current = (rt_pauses){.pause = pause};
  return before;
}

void rt_end_pauses(rt_pauses before) { current = before; }

int rt_is_ended(void) { return current.is_ended; }

int32_t rt_pause(void) {
  if (!current.pause || !current.pause->check(current.pause->context)) return 0;
  current.is_ended = 1;
  return byoc_rt_fail(BYOC_RT_EXECUTION, "the caller has ended the call");
}

static int64_t milliseconds(void) {
  struct timespec now;
  (void)timespec_get(&now, TIME_UTC); /* may be adjusted: then a pause comes early */
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int32_t rt_pause_after_step(void) {
  if (!current.pause || ++current.num_steps % STEPS_BETWEEN_CLOCKS) return 0;
  const int64_t now = milliseconds();
  if (!current.start) current.start = now;
  if (now >= current.start && now - current.start < MILLISECONDS_BETWEEN_PAUSES) return 0;
  current.start = now;
  return rt_pause();
}
