/* The number of threads of calls: the setting of OpenMP in the calling thread, as read by generated code. */
#ifndef BYOC_RT_OPENMP_H_
#define BYOC_RT_OPENMP_H_

#include <stdint.h>

typedef struct {
  int (*max_threads)(void); /* NULL: calls do not set the number */
  void (*set_num_threads)(int);
  int num_threads;
} rt_threads;

/* Prepare for calls of `num_threads` threads; 0: calls do not set the number. Return nonzero after setting an error:
 * the number is out of range. Without an OpenMP library, generated code has no further threads. */
int32_t rt_prepare_threads(int32_t num_threads, rt_threads *threads);

/* Set the number for this thread, and return the number before; 0: nothing was set. */
static inline int rt_enter_threads(const rt_threads *threads) {
  if (!threads->max_threads) return 0;
  const int before = threads->max_threads();
  threads->set_num_threads(threads->num_threads);
  return before;
}

/* Restore the number returned by rt_enter_threads. */
static inline void rt_leave_threads(const rt_threads *threads, int before) {
  if (before) threads->set_num_threads(before);
}

#endif /* BYOC_RT_OPENMP_H_ */
