#include "threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

enum { MAX_WAITING_TEAMS = 8, SOFT_PAUSE = 1 };

/* The number of threads of the process; workers used by calls; workers waiting in the teams of threads. */
static atomic_int process_threads = 1, busy_workers, waiting_workers;
static int without_workers; /* written only in processes with a single thread */

static _Atomic(int (*)(void)) omp_max_threads;
static void (*omp_set_num_threads)(int);
static int (*omp_pause)(int);

/* Per thread: the number of threads of the current call, the workers taken by calls, the workers of the team. */
static _Thread_local int call_threads, taken_workers, team_workers;

/* The workers of a thread end with the thread. */
static pthread_key_t thread_end_key;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;

static void remove_team(void *workers) { atomic_fetch_sub(&waiting_workers, *(int *)workers); }
static void create_thread_end_key(void) { (void)pthread_key_create(&thread_end_key, remove_team); }

/* Take the workers requested by a call; return the number, or 0 if other calls have the workers. */
static int take_workers(int workers) {
  int num_busy = atomic_load(&busy_workers);
  do {
    if (num_busy && num_busy + workers > atomic_load(&process_threads) - 1) return 0;
  } while (!atomic_compare_exchange_weak(&busy_workers, &num_busy, num_busy + workers));
  taken_workers += workers;
  return workers;
}

/* Count the team left by a call in this thread, or end the team if too many workers wait. */
static void record_team(int workers) {
  if (workers == team_workers) return;
  const int num_waiting = atomic_fetch_add(&waiting_workers, workers - team_workers) + workers - team_workers;
  const int max_workers = atomic_load(&process_threads) - 1 > workers ? atomic_load(&process_threads) - 1 : workers;
  team_workers = workers;
  /* The other two functions are set before omp_max_threads. */
  if (num_waiting > MAX_WAITING_TEAMS * max_workers && atomic_load(&omp_max_threads) && omp_pause &&
      omp_pause(SOFT_PAUSE) == 0) {
    atomic_fetch_sub(&waiting_workers, team_workers);
    team_workers = 0;
  }
  (void)pthread_once(&thread_end_once, create_thread_end_key);
  (void)pthread_setspecific(thread_end_key, &team_workers);
}

static void return_workers(int workers) {
  record_team(workers); /* before other calls may create workers in place of these workers */
  taken_workers -= workers;
  atomic_fetch_sub(&busy_workers, workers);
}

byoc_call byoc_threads_enter(int requested) {
  byoc_call call = {.previous = call_threads};
  if (!requested) requested = atomic_load(&process_threads);
  if (without_workers) requested = 1;
  if (call.previous) {
    call_threads = requested < call.previous ? requested : call.previous;
  } else {
    if (requested > 1) call.workers = take_workers(requested - 1);
    call_threads = 1 + call.workers;
  }
  int (*max_threads)(void) = atomic_load(&omp_max_threads);
  if (max_threads) {
    call.setting = max_threads();
    omp_set_num_threads(call_threads);
  }
  return call;
}

void byoc_threads_leave(byoc_call call) {
  if (call.setting) omp_set_num_threads(call.setting);
  call_threads = call.previous;
  if (call.workers) return_workers(call.workers);
}

int byoc_threads_number(void) { return call_threads; }

void byoc_threads_set_limit(int max_threads) { atomic_store(&process_threads, max_threads); }

void byoc_threads_set_openmp(int (*max_threads)(void), void (*set_num_threads)(int), int (*pause)(int)) {
  omp_set_num_threads = set_num_threads;
  omp_pause = pause;
  atomic_store(&omp_max_threads, max_threads);
}

void byoc_threads_reset_after_fork(int now_without_workers) {
  without_workers = now_without_workers;
  atomic_store(&waiting_workers, team_workers = 0);
  atomic_store(&busy_workers, taken_workers);
}
