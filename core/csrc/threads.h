/* The number of threads available to calls: the accounts of byoc_core.runtime.threads.worker_accounts, for calls not
 * visible to Python.
 *
 * Every function may be called with or without the interpreter lock.
 */
#ifndef BYOC_THREADS_H_
#define BYOC_THREADS_H_

/* The data for ending a call: the number of threads before the call, the workers taken, the OpenMP setting to
 * restore. */
typedef struct {
  int previous, workers, setting;
} byoc_call;

/* Begin a call in this thread with so many requested threads; 0 for the number of the process. */
byoc_call byoc_threads_enter(int requested);

/* End the call begun in this thread by byoc_threads_enter. */
void byoc_threads_leave(byoc_call call);

/* Return the number of threads of the current call in this thread; 0 outside calls. */
int byoc_threads_number(void);

/* Set the number of threads of the process. */
void byoc_threads_set_limit(int max_threads);

/* Set the functions of the OpenMP library; `pause` is omp_pause_resource_all, or NULL. */
void byoc_threads_set_openmp(int (*max_threads)(void), void (*set_num_threads)(int), int (*pause)(int));

/* Forget the other threads, because a forked child has none of these; `without_workers`: the child must never have
 * workers. */
void byoc_threads_reset_after_fork(int without_workers);

#endif /* BYOC_THREADS_H_ */
