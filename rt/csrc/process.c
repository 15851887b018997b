#include "process.h"

#include <pthread.h>

static int process = 1; /* changed in children alone, which begin with a single thread */
static pthread_once_t is_registered = PTHREAD_ONCE_INIT;

static void count_fork(void) { ++process; }
static void register_handler(void) { (void)pthread_atfork(NULL, NULL, count_fork); }

int rt_process(void) {
  (void)pthread_once(&is_registered, register_handler);
  return process;
}
