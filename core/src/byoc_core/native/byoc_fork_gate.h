/* Calls of a library with locks of its own: a fork waits until no thread is inside such a call. A lock held by another
 * thread during the fork would stay locked in the child for good.
 *
 *     byoc_enter_library();
 *     cblas_sgemm(...);
 *     byoc_leave_library();
 *
 * Inside, wait for no lock of your own, and call nothing but the library: a fork lasts as long as the longest call. */
#ifndef BYOC_FORK_GATE_H_
#define BYOC_FORK_GATE_H_

#if defined(_WIN32) /* no forks */
static inline void byoc_enter_library(void) {}
static inline void byoc_leave_library(void) {}
#else
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* Of this translation unit. A thread enters, then looks for forks; a fork announces itself, then looks for threads
 * inside. So at least one of both sees the other. */
static atomic_int byoc_num_inside, byoc_num_forks;
static pthread_once_t byoc_gate_once = PTHREAD_ONCE_INIT;

static inline void byoc_before_fork(void) {
  atomic_fetch_add(&byoc_num_forks, 1);
  while (atomic_load(&byoc_num_inside)) (void)sched_yield();
}

static inline void byoc_after_fork(void) { atomic_fetch_sub(&byoc_num_forks, 1); }

/* Other forking threads do not exist in the child. */
static inline void byoc_in_child(void) {
  atomic_store(&byoc_num_forks, 0);
  atomic_store(&byoc_num_inside, 0); /* a thread about to see the fork had counted itself */
}

static inline void byoc_register_gate(void) {
  (void)pthread_atfork(byoc_before_fork, byoc_after_fork, byoc_in_child); /* out of memory: no gate */
}

static inline void byoc_leave_library(void) { atomic_fetch_sub(&byoc_num_inside, 1); }

static inline void byoc_enter_library(void) {
  (void)pthread_once(&byoc_gate_once, byoc_register_gate);
  while (atomic_fetch_add(&byoc_num_inside, 1), atomic_load(&byoc_num_forks)) {
    byoc_leave_library();
    while (atomic_load(&byoc_num_forks)) (void)sched_yield();
  }
}
#endif

#endif /* BYOC_FORK_GATE_H_ */
