/* Bodies whose parallel regions find the team's threads on processors of their own. */
#ifndef BYOC_SPREAD_H_
#define BYOC_SPREAD_H_

/* Functions of the OpenMP library: GOMP_parallel, omp_get_max_threads, omp_get_num_threads and omp_get_thread_num. */
typedef struct {
  void (*parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);
  int (*max_threads)(void), (*num_threads)(void), (*thread_num)(void);
} byoc_regions;

/* Says which library's; all functions are given, or none. */
void byoc_spread_set_openmp(byoc_regions functions);

/* Calls `body` once, in this thread, and gives what it gives. Before that all threads of its team wake up, and those that
 * share a processor part; they stay apart until `body` has done. */
int byoc_spread_run(int (*body)(void *data), void *data);

#endif /* BYOC_SPREAD_H_ */
