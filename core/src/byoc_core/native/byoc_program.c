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

static block *take_kept(void) { return NULL; }
static int keep(block *memory) {
  (void)memory;
  return 0;
}

#else
#include <pthread.h>

static pthread_key_t kept;
static pthread_once_t kept_once = PTHREAD_ONCE_INIT;
static int can_keep;

static void free_all(void *list) {
  for (block *memory = list, *next; memory; memory = next) {
    next = memory->next;
    free(memory);
  }
}

static void make_kept(void) { can_keep = pthread_key_create(&kept, free_all) == 0; }

/* A thread ending after the library is unloaded must not call free_all. */
__attribute__((destructor)) static void forget_kept(void) {
  if (can_keep) (void)pthread_key_delete(kept);
}

static block *take_kept(void) {
  (void)pthread_once(&kept_once, make_kept);
  block *memory = can_keep ? pthread_getspecific(kept) : NULL;
  if (memory) (void)pthread_setspecific(kept, memory->next);
  return memory;
}

static int keep(block *memory) {
  if (!can_keep) return 0;
  memory->next = pthread_getspecific(kept);
  return pthread_setspecific(kept, memory) == 0;
}

#endif

static block *take_block(size_t nbytes) {
  block *memory = take_kept();
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

static void give_block(block *memory) {
  if (!keep(memory)) free(memory);
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
      const uintptr_t other = (uintptr_t)byoc_data(arguments[j]), stop = other + (uintptr_t)nbytes_of(arguments[j]);
      if (begin < stop && other < end && begin < end && other < stop)
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
    if (reg->place >= 0) {
      base = frame->tensors[reg->place].data;
    } else if (reg->place == BYOC_IN_ARGUMENT) {
      base = byoc_data(arguments[i]);
    } else if (reg->place == BYOC_IN_CONSTANT) {
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

static int32_t fail_for_memory(const byoc_program *program, int64_t nbytes) {
  return byoc_fail("MemoryError", "function `%s`: %lld bytes for intermediates cannot be allocated", program->name,
                   (long long)nbytes);
}

/* Run a function with known sizes, in a block beginning with the tables of `frame`. */
static int32_t run_measured(const byoc_program *program, const DLTensor *const *arguments, int64_t *sizes,
                            const int64_t *offsets, int64_t arena_nbytes) {
  const size_t tensors = (size_t)program->num_registers * sizeof(DLTensor);
  const size_t operands = (size_t)program->num_operands * sizeof(TVMFFIAny);
  const size_t itemsizes = (size_t)program->num_registers * sizeof(int64_t);
  if (arena_nbytes < 0 || (uint64_t)arena_nbytes > SIZE_MAX / 2) return fail_for_memory(program, arena_nbytes);
  block *memory = take_block(tensors + operands + itemsizes + BYOC_ALIGNMENT + (size_t)arena_nbytes);
  if (!memory) return fail_for_memory(program, arena_nbytes);
  char *start = (char *)(memory + 1);
  char *arena = start + tensors + operands + itemsizes;
  arena += (BYOC_ALIGNMENT - (uintptr_t)arena % BYOC_ALIGNMENT) % BYOC_ALIGNMENT;
  byoc_frame frame = {program->code, (TVMFFIAny *)(start + tensors), (DLTensor *)start,
                      (int64_t *)(start + tensors + operands)};
  fill_tensors(program, arguments, sizes, offsets, arena, &frame);
  const int32_t status = run(program, &frame);
  give_block(memory);
  return status;
}

int32_t byoc_run_program(const byoc_program *program, const TVMFFIAny *args, int32_t num_args) {
  const int32_t num_arguments = program->num_params + program->num_results;
  if (byoc_check_count(program->name, num_args, num_arguments)) return -1;
  const size_t pointers = (size_t)num_arguments * sizeof(DLTensor *);
  const size_t numbers = (size_t)(program->num_sizes + program->num_registers) * sizeof(int64_t);
  block *memory = take_block(pointers + numbers);
  if (!memory) return fail_for_memory(program, (int64_t)(pointers + numbers));
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
  if (!status) status = run_measured(program, arguments, sizes, offsets, arena_nbytes);
  give_block(memory);
  return status;
}
