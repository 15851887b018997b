/* Memory of the calls of graph functions: blocks taken and released in any order, kept for later calls. */
#ifndef BYOC_RT_GRAPH_HEAP_H_
#define BYOC_RT_GRAPH_HEAP_H_

#include <stdint.h>

/* A block of memory; `uses` counts the owners. */
typedef struct rt_block {
  struct rt_block *next;
  int64_t nbytes;
  int32_t uses;
  char *data; /* aligned to 64 bytes */
} rt_block;

/* The free blocks of a call. */
typedef struct rt_heap {
  struct rt_heap *next;
  rt_block *blocks;
} rt_heap;

/* Take a block with one use; its content is undefined. Return NULL after setting an error. If no free block fits, the
 * largest free block makes room for a new block: there are never more blocks than used at the same time. */
rt_block *rt_heap_take(rt_heap *heap, int64_t nbytes);

/* End a use of a block; NULL is ignored. */
void rt_heap_release(rt_heap *heap, rt_block *block);

/* The unused heaps of a module. */
typedef struct rt_heaps rt_heaps;
rt_heaps *rt_heaps_new(void);
void rt_heaps_free(rt_heaps *heaps);

/* Return a heap for a call; NULL after setting an error. All blocks are released before the heap is returned. */
rt_heap *rt_heap_acquire(rt_heaps *heaps);
void rt_heap_return(rt_heaps *heaps, rt_heap *heap);

#endif /* BYOC_RT_GRAPH_HEAP_H_ */
