/* Arenas: a pool for all programs of the process, because few programs run at the same time. */
#include "program.h"

#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { MAX_POOLED_ARENAS = 16, ALIGNMENT = 64 };

/* The least size of an arena with large pages, and the size of a large page. */
static const int64_t MIN_LARGE_NBYTES = INT64_C(4) << 20, LARGE_PAGE_NBYTES = INT64_C(2) << 20;

static Arena *pool;
static int32_t num_pooled;

char *byoc_allocate(int64_t nbytes) {
  const int64_t alignment = nbytes < MIN_LARGE_NBYTES ? ALIGNMENT : LARGE_PAGE_NBYTES;
  if (nbytes > PTRDIFF_MAX - alignment) return NULL;
  const size_t rounded = (size_t)((nbytes + alignment) & -alignment); /* never 0 */
  void *memory = aligned_alloc((size_t)alignment, rounded);
#ifdef MADV_HUGEPAGE
  if (memory && alignment == LARGE_PAGE_NBYTES) (void)madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  return memory;
}

Arena *byoc_take_arena(const void *thread) {
  Arena **link = &pool;
  for (Arena **candidate = &pool; *candidate; candidate = &(*candidate)->next) {
    if ((*candidate)->thread != thread) continue;
    link = candidate;
    break;
  }
  Arena *arena = *link;
  if (arena) {
    *link = arena->next;
    arena->next = NULL;
    arena->thread = thread;
    --num_pooled;
  }
  return arena;
}

Arena *byoc_put_arena(Arena *arena) {
  if (num_pooled == MAX_POOLED_ARENAS) return arena;
  arena->next = pool;
  pool = arena;
  ++num_pooled;
  return NULL;
}

Arena *byoc_grow_arena(Arena *arena, int64_t nbytes) {
  if (arena && arena->memory && arena->nbytes >= nbytes) return arena;
  if (!arena && !(arena = calloc(1, sizeof *arena))) return NULL;
  free(arena->memory);
  arena->memory = byoc_allocate(nbytes);
  arena->nbytes = nbytes;
  if (arena->memory) return arena;
  free(arena);
  return NULL;
}

Arena *byoc_take_all_arenas(void) {
  Arena *arenas = pool;
  pool = NULL;
  num_pooled = 0;
  return arenas;
}

void byoc_free_arenas(Arena *arenas) {
  while (arenas) {
    Arena *next = arenas->next;
    free(arenas->memory);
    free(arenas);
    arenas = next;
  }
}
