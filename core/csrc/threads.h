/* How many threads calls may use: the accounts of byoc_core.runtime.threads.worker_accounts, for calls that Python does not see.
 *
 * Every function may be called with or without the interpreter lock.
 */
#ifndef BYOC_THREADS_H_
#define BYOC_THREADS_H_

/* What ends a call: the number of threads before it, the workers taken, the OpenMP setting to restore. */
typedef struct {
  int previous, workers, setting;
} byoc_call;

/* Begins a call in this thread that wants so many threads, 0 for the number of the process. */
byoc_call byoc_threads_enter(int wanted);

/* Ends the call in this thread that byoc_threads_enter began. */
void byoc_threads_leave(byoc_call call);

/* The number of threads of the call under way in this thread; 0 outside calls. */
int byoc_threads_number(void);

/* Sets the number of threads of the process. */
void byoc_threads_set_limit(int number);

/* The functions of the OpenMP library; `pause` is omp_pause_resource_all, or NULL. */
void byoc_threads_set_openmp(int (*max_threads)(void), void (*set_num_threads)(int), int (*pause)(int));

/* Forgets the other threads, which a forked child does not have; `alone`: it must never have workers. */
void byoc_threads_start_anew(int alone);

#endif /* BYOC_THREADS_H_ */
