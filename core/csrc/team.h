/* Bodies with parallel regions on a team of threads, each thread on a separate processor. */
#ifndef BYOC_TEAM_H_
#define BYOC_TEAM_H_

/* Functions of the OpenMP library: GOMP_parallel, omp_get_max_threads, omp_get_num_threads and omp_get_thread_num. */
typedef struct {
  void (*parallel)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);
  int (*max_threads)(void), (*num_threads)(void), (*thread_num)(void);
} byoc_openmp_functions;

/* Set the functions of the OpenMP library; either all functions are given, or none. */
void byoc_team_set_openmp(byoc_openmp_functions functions);

/* Call `body` once, in this thread, and return the result. Before the call, all threads of the team wake up, and
 * threads on the same processor separate. */
int byoc_team_run(int (*body)(void *data), void *data);

#endif /* BYOC_TEAM_H_ */
