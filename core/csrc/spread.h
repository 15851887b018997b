/* Calls of bodies with parallel regions, after moving the threads of the team to separate processors. */
#ifndef BYOC_SPREAD_H_
#define BYOC_SPREAD_H_

/* Functions of the OpenMP library: GOMP_parallel, omp_get_max_threads, omp_get_num_threads and omp_get_thread_num. */
typedef struct {
  void (*parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);
  int (*max_threads)(void), (*num_threads)(void), (*thread_num)(void);
} byoc_regions;

/* Set the functions of the library: all, or none. */
void byoc_spread_set_openmp(byoc_regions functions);

/* Call `body` once, in this thread, and return the result. Before the call, all threads of the team wake up, and threads on the
 * same processor are separated until `body` ends. */
int byoc_spread_run(int (*body)(void *data), void *data);

#endif /* BYOC_SPREAD_H_ */
