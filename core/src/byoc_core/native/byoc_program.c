#include "byoc_program.h"

#include <stdlib.h>
#include <string.h>

/* The memory of a call. Each thread keeps a list of unused blocks, the last freed block first, so nested calls find
 * their previous blocks. */
typedef struct block {
  struct block *next;
  size_t nbytes;
} block;

#if defined(_WIN32)

static block *take_cached_block(void) { return NULL; }
static int cache_block(block *memory) {
  (void)memory;
  return 0;
}

#else
#include <pthread.h>

static pthread_key_t cached_blocks_key;
static pthread_once_t cached_blocks_once = PTHREAD_ONCE_INIT;
static int has_cache;

static void free_blocks(void *list) {
  for (block *memory = list, *next; memory; memory = next) {
    next = memory->next;
    free(memory);
  }
}

static void create_cached_blocks_key(void) { has_cache = pthread_key_create(&cached_blocks_key, free_blocks) == 0; }

/* A thread ending after the library is unloaded must not call free_all. */
__attribute__((destructor)) static void delete_cached_blocks_key(void) {
  if (has_cache) (void)pthread_key_delete(cached_blocks_key);
}

static block *take_cached_block(void) {
  (void)pthread_once(&cached_blocks_once, create_cached_blocks_key);
  block *memory = has_cache ? pthread_getspecific(cached_blocks_key) : NULL;
  if (memory) (void)pthread_setspecific(cached_blocks_key, memory->next);
  return memory;
}

static int cache_block(block *memory) {
  if (!has_cache) return 0;
  memory->next = pthread_getspecific(cached_blocks_key);
  return pthread_setspecific(cached_blocks_key, memory) == 0;
}

#endif

static block *take_block(size_t nbytes) {
  block *memory = take_cached_block();
  if (memory && memory->nbytes < nbytes) {
    free(memory);
    memory = NULL;
  }
  if (!memory) {
    memory = malloc(sizeof *memory + nbytes);
    if (memory) memory->nbytes = nbytes;
  }
  return memory;
}

static void return_block(block *memory) {
  if (!cache_block(memory)) free(memory);
}

static uintptr_t nbytes_of(const DLTensor *tensor) {
  uintptr_t nbytes = (uintptr_t)(tensor->dtype.bits + 7) / 8;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) nbytes *= (uintptr_t)tensor->shape[axis];
  return nbytes;
}

/* Fail if a result (always compact) shares memory with another argument. */
static int32_t check_separate(const byoc_program *program, const DLTensor *const *arguments) {
  for (int32_t i = program->num_params; i < program->num_params + program->num_results; ++i) {
    const uintptr_t begin = (uintptr_t)byoc_data(arguments[i]), end = begin + nbytes_of(arguments[i]);
    for (int32_t j = 0; j < i; ++j) {
      const uintptr_t other_begin = (uintptr_t)byoc_data(arguments[j]);
      const uintptr_t other_end = other_begin + nbytes_of(arguments[j]);
      if (begin < other_end && other_begin < end && begin < end && other_begin < other_end)
        return byoc_fail("ValueError", "function `%s`, argument `%s`: shares memory with argument `%s`", program->name,
                         program->argument_names[i], program->argument_names[j]);
    }
  }
  return 0;
}

static int32_t fail_allocation(const byoc_program *program, int64_t nbytes) {
  return byoc_fail("MemoryError", "function `%s`: %lld bytes for intermediates cannot be allocated", program->name,
                   (long long)nbytes);
}

/* Set the address of each argument. Bools must be bytes of 0 or 1: other bools are copied, and `copies` frees them. */
static int32_t fill_pointers(const byoc_program *program, const DLTensor *const *arguments, void **pointers,
                             uint8_t **copies) {
  for (int32_t i = 0; i < program->num_params + program->num_results; ++i) {
    pointers[i] = byoc_data(arguments[i]);
    if (i < program->num_params && arguments[i]->dtype.code == kDLBool) {
      const uint8_t *bytes = NULL;
      if (byoc_read_bools(program->name, program->argument_names[i], arguments[i], &bytes, &copies[i])) return -1;
      pointers[i] = (void *)(uintptr_t)bytes;
    }
  }
  return 0;
}

/* Run a function with known sizes, in a workspace of the thread. */
static int32_t run_with_sizes(const byoc_program *program, void *const *pointers, const int64_t *sizes,
                              int64_t nbytes) {
  if (nbytes < 0 || (uint64_t)nbytes > SIZE_MAX / 2) return fail_allocation(program, nbytes);
  block *memory = take_block(BYOC_ALIGNMENT + (size_t)nbytes);
  if (!memory) return fail_allocation(program, nbytes);
  char *workspace = (char *)(memory + 1);
  workspace += (BYOC_ALIGNMENT - (uintptr_t)workspace % BYOC_ALIGNMENT) % BYOC_ALIGNMENT;
  const int32_t status = program->calls(pointers, sizes, workspace);
  return_block(memory);
  return status;
}

int32_t byoc_run_program(const byoc_program *program, const TVMFFIAny *args, int32_t num_args) {
  const int32_t num_arguments = program->num_params + program->num_results;
  if (byoc_check_count(program->name, num_args, num_arguments)) return -1;
  const size_t pointers_nbytes = (size_t)num_arguments * (sizeof(DLTensor *) + sizeof(void *) + sizeof(uint8_t *));
  const size_t tables_nbytes = (size_t)program->num_sizes * sizeof(int64_t) + pointers_nbytes;
  block *memory = take_block(tables_nbytes);
  if (!memory) return fail_allocation(program, (int64_t)tables_nbytes);
  int64_t *sizes = (int64_t *)(memory + 1), nbytes = 0;
  const DLTensor **arguments = (const DLTensor **)(sizes + program->num_sizes);
  void **pointers = (void **)(arguments + num_arguments);
  uint8_t **copies = (uint8_t **)(pointers + num_arguments);
  memset(copies, 0, (size_t)num_arguments * sizeof *copies);
  int32_t status = 0;
  for (int32_t i = 0; i < num_arguments && !status; ++i) {
    arguments[i] = byoc_tensor(program->name, program->argument_names[i], &args[i]);
    if (!arguments[i]) status = -1;
  }
  if (!status) status = program->measure(arguments, sizes, &nbytes);
  if (!status) status = check_separate(program, arguments);
  if (!status) status = fill_pointers(program, arguments, pointers, copies);
  if (!status) status = run_with_sizes(program, pointers, sizes, nbytes);
  for (int32_t i = 0; i < program->num_params; ++i) free(copies[i]);
  return_block(memory);
  return status;
}
