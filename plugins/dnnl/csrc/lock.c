#include "objects.h"

#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void byoc_lock(void) { (void)pthread_mutex_lock(&mutex); }
void byoc_unlock(void) { (void)pthread_mutex_unlock(&mutex); }

/* A fork waits until no other thread holds the lock: the protected state is consistent in the child. */
int byoc_register_fork_handlers(void) { return pthread_atfork(byoc_lock, byoc_unlock, byoc_unlock); }
