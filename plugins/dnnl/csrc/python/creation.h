/* A queue of primitives to create: threads create the primitives of a plan while Python plans further steps. No Python
 * here. A queue has an owner: a single thread at a time calls the functions below. */
#ifndef BYOC_DNNL_CREATION_H_
#define BYOC_DNNL_CREATION_H_

#include "program.h"

#include <sys/types.h>

/* Functions of oneDNN, and of the OpenMP library of oneDNN. */
typedef struct {
  int (*create)(void **primitive, const void *desc);
  int (*destroy)(void *primitive);
  void (*set_num_threads)(int); /* omp_set_num_threads; NULL for a single-threaded oneDNN */
} Creator;

/* A primitive to create. */
typedef struct {
  const void *desc;
  void *primitive; /* owned until taken */
  int32_t status;
} Creation;

enum { MAX_CREATING_THREADS = 8 };

typedef struct {
  Creator creator;
  int num_threads; /* oneDNN plans for this number of threads */
  int max_creating; /* threads beside the owner's */
  pid_t process;    /* a child of a fork has none of the threads */
  pthread_cond_t changed;
  int home; /* the owner's processor at the beginning */
  pthread_t creating[MAX_CREATING_THREADS];
  /* Protected by the lock; only the owner changes the number of threads. */
  int num_creating;
  Creation *creations;
  int32_t num_creations, num_allocated;
  int32_t first_waiting; /* no earlier creation waits */
  int is_complete;       /* nothing more is added */
} CreationQueue;

/* Begins a queue in zeroed memory; returns nonzero on failure. */
int byoc_open_queue(CreationQueue *queue);

/* Adds a creation; the descriptor lives until byoc_finish_queue. Returns nonzero if out of memory. */
int byoc_add_creation(CreationQueue *queue, const void *desc);

/* Cancels all creations not yet begun. */
void byoc_cancel_creations(CreationQueue *queue);

/* Creates waiting primitives in this thread too, and waits for the others; ends all threads. Nothing can be added. */
void byoc_finish_queue(CreationQueue *queue);

/* Frees a finished queue, with the primitives not taken. */
void byoc_close_queue(CreationQueue *queue);

#endif /* BYOC_DNNL_CREATION_H_ */
