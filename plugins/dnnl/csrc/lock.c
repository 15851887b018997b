#include "program.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void byoc_lock(void) { (void)pthread_mutex_lock(&mutex); }
void byoc_unlock(void) { (void)pthread_mutex_unlock(&mutex); }
void byoc_wait_for(pthread_cond_t *condition) { (void)pthread_cond_wait(condition, &mutex); }

/* The gate: a fork closes the gate and waits until no thread is inside oneDNN. A lock of oneDNN held during the fork
 * would stay locked in the child for good.
 *
 * A thread enters, then looks whether a fork waits; a fork announces itself, then looks for threads inside. So at least
 * one of both sees the other. */
static atomic_int num_inside, num_forks;
static pthread_cond_t is_empty = PTHREAD_COND_INITIALIZER, is_open = PTHREAD_COND_INITIALIZER; /* with the mutex */

void byoc_leave_onednn(void) {
  const int is_last = atomic_fetch_sub(&num_inside, 1) == 1;
  if (!is_last || !atomic_load(&num_forks)) return;
  byoc_lock();
  (void)pthread_cond_broadcast(&is_empty);
  byoc_unlock();
}

void byoc_enter_onednn(void) {
  while (atomic_fetch_add(&num_inside, 1), atomic_load(&num_forks)) {
    byoc_leave_onednn();
    byoc_lock();
    while (atomic_load(&num_forks)) (void)pthread_cond_wait(&is_open, &mutex);
    byoc_unlock();
  }
}

void byoc_let_forks_pass(void) {
  if (!atomic_load_explicit(&num_forks, memory_order_relaxed)) return;
  byoc_leave_onednn();
  byoc_enter_onednn();
}

/* A fork also waits until no other thread holds the lock: the protected state is consistent in the child. */
static void before_fork(void) {
  byoc_lock();
  atomic_fetch_add(&num_forks, 1);
  while (atomic_load(&num_inside)) (void)pthread_cond_wait(&is_empty, &mutex);
}

static void in_parent(void) {
  if (atomic_fetch_sub(&num_forks, 1) == 1) (void)pthread_cond_broadcast(&is_open);
  byoc_unlock();
}

/* The threads waiting for the conditions do not exist in the child. */
static void in_child(void) {
  atomic_store(&num_forks, 0);
  atomic_store(&num_inside, 0); /* a thread about to see the fork had counted itself */
  is_empty = is_open = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  byoc_unlock();
}

int byoc_register_fork_handlers(void) { return pthread_atfork(before_fork, in_parent, in_child); }
