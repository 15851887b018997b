#include "threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

enum { KEPT_TEAMS = 8, SOFT_PAUSE = 1 };

/* Workers used by calls; workers waiting in the teams of threads. */
static atomic_int limit = 1, busy, kept;
static int alone; /* written only in processes with a single thread */

static _Atomic(int (*)(void)) omp_max_threads;
static void (*omp_set_num_threads)(int);
static int (*omp_pause)(int);

/* Per thread: the number of threads of the current call, the workers taken by calls, the workers of the team. */
static _Thread_local int number, taken, team;

/* The workers of a thread end with the thread. */
static pthread_key_t thread_end;
static pthread_once_t thread_end_made = PTHREAD_ONCE_INIT;

static void forget_team(void *workers) { atomic_fetch_sub(&kept, *(int *)workers); }
static void make_thread_end(void) { (void)pthread_key_create(&thread_end, forget_team); }

/* Take the workers requested by a call; return the number, or 0 if other calls have the workers. */
static int take(int workers) {
  int used = atomic_load(&busy);
  do {
    if (used && used + workers > atomic_load(&limit) - 1) return 0;
  } while (!atomic_compare_exchange_weak(&busy, &used, used + workers));
  taken += workers;
  return workers;
}

/* Count the team left by a call in this thread, or end the team if too many workers wait. */
static void keep_team(int workers) {
  if (workers == team) return;
  const int now_kept = atomic_fetch_add(&kept, workers - team) + workers - team;
  const int most = atomic_load(&limit) - 1 > workers ? atomic_load(&limit) - 1 : workers;
  team = workers;
  /* The other two functions are set before omp_max_threads. */
  if (now_kept > KEPT_TEAMS * most && atomic_load(&omp_max_threads) && omp_pause && omp_pause(SOFT_PAUSE) == 0) {
    atomic_fetch_sub(&kept, team);
    team = 0;
  }
  (void)pthread_once(&thread_end_made, make_thread_end);
  (void)pthread_setspecific(thread_end, &team);
}

static void give_back(int workers) {
  keep_team(workers); /* before other calls may create workers in place of these workers */
  taken -= workers;
  atomic_fetch_sub(&busy, workers);
}

byoc_call byoc_threads_enter(int wanted) {
  byoc_call call = {.previous = number};
  if (!wanted) wanted = atomic_load(&limit);
  if (alone) wanted = 1;
  if (call.previous) {
    number = wanted < call.previous ? wanted : call.previous;
  } else {
    if (wanted > 1) call.workers = take(wanted - 1);
    number = 1 + call.workers;
  }
  int (*max_threads)(void) = atomic_load(&omp_max_threads);
  if (max_threads) {
    call.setting = max_threads();
    omp_set_num_threads(number);
  }
  return call;
}

void byoc_threads_leave(byoc_call call) {
  if (call.setting) omp_set_num_threads(call.setting);
  number = call.previous;
  if (call.workers) give_back(call.workers);
}

int byoc_threads_number(void) { return number; }

void byoc_threads_set_limit(int new_limit) { atomic_store(&limit, new_limit); }

void byoc_threads_set_openmp(int (*max_threads)(void), void (*set_num_threads)(int), int (*pause)(int)) {
  omp_set_num_threads = set_num_threads;
  omp_pause = pause;
  atomic_store(&omp_max_threads, max_threads);
}

void byoc_threads_start_anew(int new_alone) {
  alone = new_alone;
  atomic_store(&kept, team = 0);
  atomic_store(&busy, taken);
}
