#include "graph_heap.h"

#include <pthread.h>
#include <stdlib.h>

#include "byoc_rt.h"

enum {
  ALIGNMENT = 64,
  WASTE = 4 /* a block may be this many times as large as asked for */
};

struct rt_heaps {
  pthread_mutex_t mutex; /* never waited for: a forked child may find the mutex locked for good */
  rt_heap *unused;
};

/* Remove the smallest free block that fits and is not far too large; NULL if there is none. */
static rt_block *find_block(rt_heap *heap, int64_t nbytes) {
  rt_block **best = NULL;
  for (rt_block **at = &heap->blocks; *at; at = &(*at)->next) {
    if ((*at)->nbytes < nbytes || (*at)->nbytes / WASTE > nbytes + 4096) continue;
    if (!best || (*at)->nbytes < (*best)->nbytes) best = at;
  }
  if (!best) return NULL;
  rt_block *block = *best;
  *best = block->next;
  return block;
}

static void free_largest(rt_heap *heap) {
  rt_block **largest = NULL;
  for (rt_block **at = &heap->blocks; *at; at = &(*at)->next)
    if (!largest || (*at)->nbytes > (*largest)->nbytes) largest = at;
  if (!largest) return;
  rt_block *block = *largest;
  *largest = block->next;
  free(block);
}

rt_block *rt_heap_take(rt_heap *heap, int64_t nbytes) {
  rt_block *block = find_block(heap, nbytes);
  if (!block) {
    free_largest(heap);
    const uint64_t total = (uint64_t)nbytes + sizeof *block + ALIGNMENT;
    if (total <= SIZE_MAX / 2) block = malloc((size_t)total);
    if (!block) {
      byoc_rt_fail(BYOC_RT_MEMORY, "%lld bytes for intermediates cannot be allocated", (long long)nbytes);
      return NULL;
    }
    block->nbytes = nbytes;
    block->data = (char *)(block + 1);
    block->data += (ALIGNMENT - (uintptr_t)block->data % ALIGNMENT) % ALIGNMENT;
  }
  block->uses = 1;
  block->next = NULL;
  return block;
}

void rt_heap_release(rt_heap *heap, rt_block *block) {
  if (!block || --block->uses) return;
  block->next = heap->blocks;
  heap->blocks = block;
}

rt_heaps *rt_heaps_new(void) {
  rt_heaps *heaps = malloc(sizeof *heaps);
  if (!heaps || pthread_mutex_init(&heaps->mutex, NULL)) {
    free(heaps);
    byoc_rt_fail(BYOC_RT_MEMORY, "a module cannot be allocated");
    return NULL;
  }
  heaps->unused = NULL;
  return heaps;
}

static void free_heap(rt_heap *heap) {
  while (heap->blocks) free_largest(heap);
  free(heap);
}

void rt_heaps_free(rt_heaps *heaps) {
  if (!heaps) return;
  for (rt_heap *heap = heaps->unused, *next; heap; heap = next) {
    next = heap->next;
    free_heap(heap);
  }
  pthread_mutex_destroy(&heaps->mutex);
  free(heaps);
}

rt_heap *rt_heap_acquire(rt_heaps *heaps) {
  rt_heap *heap = NULL;
  if (!pthread_mutex_trylock(&heaps->mutex)) {
    heap = heaps->unused;
    if (heap) heaps->unused = heap->next;
    pthread_mutex_unlock(&heaps->mutex);
  }
  if (!heap) heap = calloc(1, sizeof *heap);
  if (!heap) byoc_rt_fail(BYOC_RT_MEMORY, "the memory of a call cannot be allocated");
  return heap;
}

void rt_heap_return(rt_heaps *heaps, rt_heap *heap) {
  if (pthread_mutex_trylock(&heaps->mutex)) {
    free_heap(heap);
    return;
  }
  heap->next = heaps->unused;
  heaps->unused = heap;
  pthread_mutex_unlock(&heaps->mutex);
}
