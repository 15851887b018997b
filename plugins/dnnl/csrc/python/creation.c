/* The threads of a creation queue. A creation is begun and ended inside the gate: a fork finds no creation begun, and
 * the child's owner of the queue creates the rest. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getcpu, cpu_set_t */
#include <sched.h>
#endif
#include "creation.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int byoc_open_queue(CreationQueue *queue) {
  queue->process = getpid();
#if defined(__linux__)
  queue->home = sched_getcpu();
#endif
  return pthread_cond_init(&queue->changed, NULL);
}

static int has_threads(const CreationQueue *queue) { return queue->num_creating && queue->process == getpid(); }

static int has_waiting(const CreationQueue *queue) { return queue->first_waiting < queue->num_creations; }

/* Inside the gate: creates the first waiting primitive, if any is left. */
static void create_next(CreationQueue *queue) {
  byoc_lock();
  if (!has_waiting(queue)) {
    byoc_unlock();
    return;
  }
  const int32_t index = queue->first_waiting++;
  const void *desc = queue->creations[index].desc;
  byoc_unlock();
  void *primitive = NULL;
  const int status = queue->creator.create(&primitive, desc);
  byoc_lock();
  Creation *creation = &queue->creations[index]; /* perhaps moved meanwhile */
  creation->primitive = status ? NULL : primitive;
  creation->status = status;
  byoc_unlock();
}

/* A new thread may start on the processor of its creator and stay there, although others are idle. */
static void leave_home(int home) {
#if defined(__linux__)
  cpu_set_t allowed;
  if (home < 0 || home >= CPU_SETSIZE || sched_getaffinity(0, sizeof allowed, &allowed)) return;
  CPU_CLR((size_t)home, &allowed);
  if (CPU_COUNT(&allowed)) (void)sched_setaffinity(0, sizeof allowed, &allowed);
#else
  (void)home;
#endif
}

static void *create_all(void *data) {
  CreationQueue *queue = data;
  leave_home(queue->home);
  if (queue->creator.set_num_threads) queue->creator.set_num_threads(queue->num_threads);
  byoc_lock();
  for (;;) {
    while (!has_waiting(queue) && !queue->is_complete) byoc_wait_for(&queue->changed);
    if (!has_waiting(queue)) break;
    byoc_unlock();
    byoc_enter_onednn();
    create_next(queue);
    byoc_leave_onednn();
    byoc_lock();
  }
  byoc_unlock();
  return NULL;
}

/* Starts another thread; without one, the owner creates the primitives at the end. Signals are for Python's threads. */
static void start_thread(CreationQueue *queue) {
  sigset_t all, saved;
  (void)sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &saved)) return;
  const int failed = pthread_create(&queue->creating[queue->num_creating], NULL, create_all, queue);
  if (failed) queue->max_creating = queue->num_creating; /* the system has no more threads */
  byoc_lock();
  queue->num_creating += !failed;
  byoc_unlock();
  (void)pthread_sigmask(SIG_SETMASK, &saved, NULL);
}

static int grow(CreationQueue *queue) {
  if (queue->num_creations < queue->num_allocated) return 0;
  const int32_t num_allocated = queue->num_allocated ? 2 * queue->num_allocated : 32;
  Creation *creations = realloc(queue->creations, (size_t)num_allocated * sizeof *creations);
  if (!creations) return -1;
  queue->creations = creations;
  queue->num_allocated = num_allocated;
  return 0;
}

int byoc_add_creation(CreationQueue *queue, const void *desc) {
  byoc_lock();
  const int status = grow(queue);
  if (!status) queue->creations[queue->num_creations++] = (Creation){.desc = desc};
  const int32_t num_waiting = queue->num_creations - queue->first_waiting;
  if (has_threads(queue)) (void)pthread_cond_broadcast(&queue->changed);
  byoc_unlock();
  const int is_owners = queue->process == getpid();
  if (is_owners && num_waiting > queue->num_creating && queue->num_creating < queue->max_creating) start_thread(queue);
  return status;
}

void byoc_cancel_creations(CreationQueue *queue) {
  byoc_lock();
  queue->first_waiting = queue->num_creations;
  byoc_unlock();
}

void byoc_finish_queue(CreationQueue *queue) {
  byoc_lock();
  queue->is_complete = 1;
  const int is_shared = has_threads(queue);
  if (is_shared) (void)pthread_cond_broadcast(&queue->changed);
  int is_waiting = has_waiting(queue);
  byoc_unlock();
  while (is_waiting) {
    byoc_enter_onednn();
    create_next(queue);
    byoc_leave_onednn();
    byoc_lock();
    is_waiting = has_waiting(queue);
    byoc_unlock();
  }
  if (!is_shared) return;
  for (int i = 0; i < queue->num_creating; ++i) (void)pthread_join(queue->creating[i], NULL);
  queue->num_creating = 0;
}

void byoc_close_queue(CreationQueue *queue) {
  for (int32_t i = 0; i < queue->num_creations; ++i)
    if (queue->creations[i].primitive) (void)queue->creator.destroy(queue->creations[i].primitive);
  free(queue->creations);
  queue->creations = NULL;
  queue->num_creations = 0;
  /* Threads of the parent may have waited for the condition of a child; glibc would wait for them. */
  if (queue->process == getpid()) (void)pthread_cond_destroy(&queue->changed);
}
