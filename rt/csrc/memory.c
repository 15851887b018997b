#include "memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "byoc_rt.h"

enum { ALIGNMENT = 16, BLOCK_NBYTES = 1 << 16 };

typedef struct block {
  struct block *next;
  size_t used, nbytes; /* of the memory behind the header */
  size_t padding;      /* the header's size is a multiple of the alignment */
} block;

_Static_assert(sizeof(block) % ALIGNMENT == 0, "memory behind the header is aligned");

struct rt_pool {
  block *blocks; /* the first is in use, the others are full or large */
};

rt_pool *rt_pool_new(void) {
  rt_pool *pool = calloc(1, sizeof *pool);
  if (!pool) (void)byoc_rt_fail(BYOC_RT_MEMORY, "memory: no memory is left");
  return pool;
}

void rt_pool_free(rt_pool *pool) {
  if (!pool) return;
  for (block *item = pool->blocks, *next; item; item = next) {
    next = item->next;
    free(item);
  }
  free(pool);
}

/* Add a block with room for `nbytes`; a block for a single large piece goes behind the block in use. */
static block *add_block(rt_pool *pool, size_t nbytes) {
  const int is_large = nbytes > BLOCK_NBYTES / 4;
  const size_t block_nbytes = is_large ? nbytes : BLOCK_NBYTES;
  if (block_nbytes > SIZE_MAX - sizeof(block)) return NULL;
  block *added = malloc(sizeof *added + block_nbytes);
  if (!added) return NULL;
  *added = (block){.nbytes = block_nbytes};
  if (is_large && pool->blocks) {
    added->next = pool->blocks->next;
    pool->blocks->next = added;
  } else {
    added->next = pool->blocks;
    pool->blocks = added;
  }
  return added;
}

void *rt_take(rt_pool *pool, size_t count, size_t nbytes) {
  size_t total;
  if (__builtin_mul_overflow(count, nbytes, &total) || total > SIZE_MAX - ALIGNMENT) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "memory: %zu elements of %zu bytes do not fit into memory", count, nbytes);
    return NULL;
  }
  total = (total + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  block *source = pool->blocks;
  if (!source || source->nbytes - source->used < total) source = add_block(pool, total);
  if (!source) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "memory: %zu bytes cannot be allocated", total);
    return NULL;
  }
  char *start = (char *)(source + 1) + source->used;
  source->used += total;
  return memset(start, 0, total);
}
