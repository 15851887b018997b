/* A pool of memory for everything that lives as long as its owner, such as a program: nothing is freed by itself. */
#ifndef BYOC_RT_MEMORY_H_
#define BYOC_RT_MEMORY_H_

#include <stddef.h>

typedef struct rt_pool rt_pool;

/* Return an empty pool, or NULL after setting an error. */
rt_pool *rt_pool_new(void);

/* Free a pool with everything taken from the pool; NULL is ignored. */
void rt_pool_free(rt_pool *pool);

/* Take zeroed memory for `count` elements of `nbytes` bytes, aligned to 16 bytes. Return NULL after setting an error:
 * no memory, or a product beyond SIZE_MAX. A pool is used by one thread at a time. */
void *rt_take(rt_pool *pool, size_t count, size_t nbytes);

#endif /* BYOC_RT_MEMORY_H_ */
