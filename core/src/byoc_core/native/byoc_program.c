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

static int64_t nbytes_of(const DLTensor *tensor) {
  int64_t nbytes = (tensor->dtype.bits + 7) / 8;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) nbytes *= tensor->shape[axis];
  return nbytes;
}

/* Fail if a result (always compact) shares memory with another argument. */
static int32_t check_separate(const byoc_program *program, const DLTensor *const *arguments) {
  for (int32_t i = program->num_params; i < program->num_params + program->num_results; ++i) {
    const uintptr_t begin = (uintptr_t)byoc_data(arguments[i]), end = begin + (uintptr_t)nbytes_of(arguments[i]);
    for (int32_t j = 0; j < i; ++j) {
      const uintptr_t other_begin = (uintptr_t)byoc_data(arguments[j]);
      const uintptr_t other_end = other_begin + (uintptr_t)nbytes_of(arguments[j]);
      if (begin < other_end && other_begin < end && begin < end && other_begin < other_end)
        return byoc_fail("ValueError", "function `%s`, argument `%s`: shares memory with argument `%s`", program->name,
                         program->argument_names[i], program->argument_names[j]);
    }
  }
  return 0;
}

static int32_t check_sizes(const byoc_program *program, const int64_t *sizes) {
  for (int32_t i = 0; i < program->num_registers; ++i) {
    const byoc_register *reg = &program->registers[i];
    for (int32_t axis = 0; axis < reg->ndim; ++axis)
      if (sizes[axis] < 0)
        return byoc_fail("ValueError", "function `%s`, register %d: axis %d has a negative size; got %lld", program->name,
                         (int)i, (int)axis, (long long)sizes[axis]);
    sizes += reg->ndim * (1 + reg->is_strided);
  }
  return 0;
}

/* Set the tensor of each register and all operands for this call. */
static void fill_tensors(const byoc_program *program, const DLTensor *const *arguments, int64_t *sizes,
                         const int64_t *offsets, char *arena, byoc_frame *frame) {
  const int32_t num_arguments = program->num_params + program->num_results;
  for (int32_t i = 0; i < program->num_registers; ++i) {
    const byoc_register *reg = &program->registers[i];
    const char *base = arena;
    if (reg->location >= 0) {
      base = frame->tensors[reg->location].data;
    } else if (reg->location == BYOC_IN_ARGUMENT) {
      base = byoc_data(arguments[i]);
    } else if (reg->location == BYOC_IN_CONSTANT) {
      base = program->constants[i - num_arguments];
    }
    frame->tensors[i] = (DLTensor){
        .data = (char *)(uintptr_t)base + offsets[i],
        .device = {kDLCPU, 0},
        .ndim = reg->ndim,
        .dtype = {reg->code, reg->bits, 1},
        .shape = sizes,
        .strides = reg->is_strided ? sizes + reg->ndim : NULL,
    };
    frame->itemsizes[i] = reg->itemsize;
    sizes += reg->ndim * (1 + reg->is_strided);
  }
  for (int32_t i = 0; i < program->num_operands; ++i)
    frame->operands[i] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &frame->tensors[program->operands[i]]};
}

static int32_t run(const byoc_program *program, const byoc_frame *frame) {
  byoc_stop stop = {0, 0};
  for (;;) {
    stop = byoc_run(frame, stop.index);
    if (stop.status) return -1; /* the failed function has set the error */
    const int32_t op = frame->code[stop.index].op;
    if (op == BYOC_RET) return 0;
    if (op != BYOC_IF && op != BYOC_GOTO) /* jumps only pause */
      return byoc_fail("ValueError", "function `%s`, instruction %d: the shapes of a copy differ", program->name,
                       (int)stop.index);
  }
}

static int32_t fail_allocation(const byoc_program *program, int64_t nbytes) {
  return byoc_fail("MemoryError", "function `%s`: %lld bytes for intermediates cannot be allocated", program->name,
                   (long long)nbytes);
}

/* Run a function with known sizes, in a block beginning with the tables of `frame`. */
static int32_t run_with_sizes(const byoc_program *program, const DLTensor *const *arguments, int64_t *sizes,
                              const int64_t *offsets, int64_t arena_nbytes) {
  const size_t tensors_nbytes = (size_t)program->num_registers * sizeof(DLTensor);
  const size_t operands_nbytes = (size_t)program->num_operands * sizeof(TVMFFIAny);
  const size_t itemsizes_nbytes = (size_t)program->num_registers * sizeof(int64_t);
  if (arena_nbytes < 0 || (uint64_t)arena_nbytes > SIZE_MAX / 2) return fail_allocation(program, arena_nbytes);
  const size_t tables_nbytes = tensors_nbytes + operands_nbytes + itemsizes_nbytes;
  block *memory = take_block(tables_nbytes + BYOC_ALIGNMENT + (size_t)arena_nbytes);
  if (!memory) return fail_allocation(program, arena_nbytes);
  char *start = (char *)(memory + 1);
  char *arena = start + tables_nbytes;
  arena += (BYOC_ALIGNMENT - (uintptr_t)arena % BYOC_ALIGNMENT) % BYOC_ALIGNMENT;
  byoc_frame frame = {program->code, (TVMFFIAny *)(start + tensors_nbytes), (DLTensor *)start,
                      (int64_t *)(start + tensors_nbytes + operands_nbytes)};
  fill_tensors(program, arguments, sizes, offsets, arena, &frame);
  const int32_t status = run(program, &frame);
  return_block(memory);
  return status;
}

int32_t byoc_run_program(const byoc_program *program, const TVMFFIAny *args, int32_t num_args) {
  const int32_t num_arguments = program->num_params + program->num_results;
  if (byoc_check_count(program->name, num_args, num_arguments)) return -1;
  const size_t pointers_nbytes = (size_t)num_arguments * sizeof(DLTensor *);
  const size_t sizes_nbytes = (size_t)(program->num_sizes + program->num_registers) * sizeof(int64_t);
  block *memory = take_block(pointers_nbytes + sizes_nbytes);
  if (!memory) return fail_allocation(program, (int64_t)(pointers_nbytes + sizes_nbytes));
  int64_t *sizes = (int64_t *)(memory + 1), *offsets = sizes + program->num_sizes, arena_nbytes = 0;
  const DLTensor **arguments = (const DLTensor **)(offsets + program->num_registers);
  int32_t status = 0;
  for (int32_t i = 0; i < num_arguments && !status; ++i) {
    arguments[i] = byoc_tensor(program->name, program->argument_names[i], &args[i]);
    if (!arguments[i]) status = -1;
  }
  if (!status) status = program->measure(arguments, sizes, offsets, &arena_nbytes);
  if (!status) status = check_separate(program, arguments);
  if (!status) status = check_sizes(program, sizes);
  if (!status) status = run_with_sizes(program, arguments, sizes, offsets, arena_nbytes);
  return_block(memory);
  return status;
}
