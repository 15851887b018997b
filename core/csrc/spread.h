/* Bodies with parallel regions on a team of threads, each thread on a separate processor. */
#ifndef BYOC_SPREAD_H_
#define BYOC_SPREAD_H_

/* Functions of the OpenMP library: GOMP_parallel, omp_get_max_threads, omp_get_num_threads and omp_get_thread_num. */
typedef struct {
  void (*parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);
  int (*max_threads)(void), (*num_threads)(void), (*thread_num)(void);
} byoc_regions;

/* Set the functions of the OpenMP library; either all functions are given, or none. */
void byoc_spread_set_openmp(byoc_regions functions);

/* Call `body` once, in this thread, and return the result. Before the call, all threads of the team wake up, and
 * threads on the same processor separate; they stay apart until `body` returns. */
int byoc_spread_run(int (*body)(void *data), void *data);

#endif /* BYOC_SPREAD_H_ */
