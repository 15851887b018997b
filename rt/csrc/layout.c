/* The layout of a frame for the shapes of a call's arguments: sizes, shapes, the arena, and views.
 *
 * Storages lie one after the other in the arena, each aligned, as in byoc_core/vm/arena.py. All bounds are checked here
 * with the actual sizes: afterwards, every register lies in memory of the call.
 */
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "tensor.h"

/* Write the place of a register for errors. */
static void name_register(const rt_frame *frame, int32_t number, rt_line *line) {
  rt_append(line, "function `%s`, register ", frame->function->vm->name);
  rt_append_register(line, frame->function->vm, number);
}

RT_COLD static int32_t fail_register(const rt_frame *frame, int32_t number, const char *problem) {
  rt_line place = {.length = 0};
  name_register(frame, number, &place);
  return byoc_rt_fail(BYOC_RT_CALL, "%s: %s", place.text, problem);
}

/* Set the error of a size without a value, or with a negative value. */
RT_COLD static int32_t fail_size(const rt_frame *frame, int32_t number, int32_t dim) {
  rt_line place = {.length = 0};
  int64_t unused;
  name_register(frame, number, &place);
  return rt_axis_size(frame->function->vm->dims, dim, frame->sizes, place.text, &unused);
}

/* Set the shape of a register. */
static int32_t set_shape(rt_frame *frame, int32_t number) {
  const rt_vm_function *vm = frame->function->vm;
  const rt_spec *spec = &vm->registers[number].spec;
  int64_t *shape = frame->frame.tensors[number].shape;
  for (int32_t axis = 0; axis < spec->ndim; ++axis)
    if (!rt_try_size(vm->dims, spec->dims[axis], frame->sizes, &shape[axis]) || shape[axis] < 0)
      return fail_size(frame, number, spec->dims[axis]);
  return 0;
}

/* Compute the bytes of a register with a shape. */
static int32_t count_bytes(const rt_frame *frame, int32_t number, int64_t *nbytes) {
  const DLTensor *tensor = &frame->frame.tensors[number];
  if (rt_count_bytes(tensor->shape, tensor->ndim, frame->frame.itemsizes[number], nbytes)) return 0;
  return fail_register(frame, number, "the bytes exceed 64 bits");
}

/* Keep an arena of at least `nbytes` bytes. A larger arena than needed is kept; a new arena after the first has room
 * for rising sizes. */
static int32_t provide_arena(rt_frame *frame, int64_t nbytes) {
  const size_t needed = (size_t)nbytes + RT_ALIGNMENT;
  if (frame->arena && frame->arena_nbytes >= needed) return 0;
  const size_t larger = frame->arena && needed < SIZE_MAX / 2 ? needed + needed / 8 : needed;
  free(frame->arena);
  frame->arena_nbytes = 0;
  frame->arena = malloc(larger);
  if (!frame->arena)
    return byoc_rt_fail(BYOC_RT_MEMORY, "function `%s`: %lld bytes for intermediates cannot be allocated",
                        frame->function->vm->name, (long long)nbytes);
  frame->arena_nbytes = larger;
  return 0;
}

RT_COLD static int32_t fail_storage(const rt_frame *frame, int32_t storage) {
  const rt_vm_function *vm = frame->function->vm;
  rt_line place = {.length = 0};
  int64_t unused;
  rt_append(&place, "function `%s`, storage %d", vm->name, (int)storage);
  return rt_axis_size(vm->dims, vm->storages[storage], frame->sizes, place.text, &unused);
}

/* Place the storages one after the other; compute the bytes of the arena. */
static int32_t place_storages(rt_frame *frame, int64_t *total) {
  const rt_vm_function *vm = frame->function->vm;
  *total = 0;
  for (int32_t i = 0; i < vm->num_storages; ++i) {
    int64_t *nbytes = &frame->storage_nbytes[i], rounded;
    frame->storage_offsets[i] = *total;
    if (!rt_try_size(vm->dims, vm->storages[i], frame->sizes, nbytes) || *nbytes < 0) return fail_storage(frame, i);
    if (__builtin_add_overflow(*nbytes, RT_ALIGNMENT - 1, &rounded) ||
        __builtin_add_overflow(*total, rounded & -(int64_t)RT_ALIGNMENT, total) || *total > PTRDIFF_MAX / 2)
      return byoc_rt_fail(BYOC_RT_MEMORY, "function `%s`: the intermediates do not fit into memory", vm->name);
  }
  return 0;
}

/* Point a planned tensor to the place in the storage. */
static int32_t place_tensor(rt_frame *frame, int32_t number, char *start) {
  const rt_register *reg = &frame->function->vm->registers[number];
  const int64_t room = frame->storage_nbytes[reg->owner];
  int64_t nbytes;
  int32_t status = set_shape(frame, number);
  if (!status) status = count_bytes(frame, number, &nbytes);
  if (status) return status;
  if (reg->offset > room || nbytes > room - reg->offset)
    return fail_register(frame, number, "reaches beyond the storage");
  frame->frame.tensors[number].data = start + frame->storage_offsets[reg->owner] + reg->offset;
  return 0;
}

/* Point the planned tensors to their places in the arena. */
static int32_t place_tensors(rt_frame *frame) {
  const rt_vm_function *vm = frame->function->vm;
  int64_t total;
  int32_t status = place_storages(frame, &total);
  if (!status) status = provide_arena(frame, total);
  if (status) return status;
  char *start = frame->arena + (RT_ALIGNMENT - (uintptr_t)frame->arena % RT_ALIGNMENT) % RT_ALIGNMENT;
  for (int32_t i = 0; i < vm->num_tensors && !status; ++i) status = place_tensor(frame, vm->first_tensor + i, start);
  return status;
}

/* Set the strides of a view; a compact view has none. */
static int32_t set_strides(rt_frame *frame, int32_t number) {
  const rt_vm_function *vm = frame->function->vm;
  const rt_register *reg = &vm->registers[number];
  DLTensor *view = &frame->frame.tensors[number];
  view->strides = NULL;
  if (!reg->strides) return 0;
  int64_t *strides = view->shape + view->ndim;
  for (int32_t axis = 0; axis < view->ndim; ++axis)
    if (!rt_try_size(vm->dims, reg->strides[axis], frame->sizes, &strides[axis]))
      return fail_size(frame, number, reg->strides[axis]);
  if (rt_has_compact_strides(view->shape, strides, view->ndim)) return 0;
  view->strides = strides;
  return reg->needs_compact ? fail_register(frame, number, "has strides, but is used by a callee without strides") : 0;
}

/* Check that all elements of a view lie in the base. */
static int32_t check_view(const rt_frame *frame, int32_t number, int64_t offset) {
  const DLTensor *view = &frame->frame.tensors[number];
  const int32_t base = frame->function->vm->registers[number].owner;
  const int64_t itemsize = frame->frame.itemsizes[number];
  int64_t base_nbytes, lowest, highest;
  const int32_t status = count_bytes(frame, base, &base_nbytes);
  if (status) return status;
  if (offset < 0 || offset % itemsize) return fail_register(frame, number, "is not aligned");
  const int64_t first = offset / itemsize, num_elements = base_nbytes / itemsize;
  if (!rt_find_extent(view->shape, view->strides, view->ndim, &lowest, &highest) ||
      __builtin_add_overflow(first, lowest, &lowest) || __builtin_add_overflow(first, highest, &highest) ||
      lowest < 0 || highest >= num_elements)
    return fail_register(frame, number, "does not lie inside the base");
  return 0;
}

static int32_t place_view(rt_frame *frame, int32_t index) {
  const rt_vm_function *vm = frame->function->vm;
  const int32_t number = vm->first_view + index;
  const rt_register *reg = &vm->registers[number];
  DLTensor *view = &frame->frame.tensors[number];
  int64_t nbytes, offset;
  int32_t status = set_shape(frame, number);
  if (!status) status = set_strides(frame, number);
  if (!status) status = count_bytes(frame, number, &nbytes);
  if (status) return status;
  if (!rt_try_size(vm->dims, reg->view_offset, frame->sizes, &offset))
    return fail_size(frame, number, reg->view_offset);
  if (nbytes) {
    status = check_view(frame, number, offset);
    if (status) return status;
  }
  frame->view_offsets[index] = nbytes ? offset : 0;
  /* The bases of other views get their memory with each call. */
  char *base = frame->frame.tensors[reg->owner].data;
  const rt_register_kind kind = vm->registers[reg->owner].kind;
  if (kind == RT_TENSOR || kind == RT_CONSTANT) view->data = base + frame->view_offsets[index];
  return 0;
}

static int32_t lay_out(rt_frame *frame, const DLTensor *const *inputs) {
  const rt_vm_function *vm = frame->function->vm;
  int32_t status = rt_bind(vm->dims, vm->params, inputs, vm->num_params, frame->sizes, (rt_place){vm->name, "input"});
  if (status) return status;
  for (int32_t i = 0; i < vm->num_params; ++i)
    if (vm->params[i].ndim)
      memcpy(frame->frame.tensors[i].shape, inputs[i]->shape, (size_t)vm->params[i].ndim * sizeof(int64_t));
  for (int32_t i = 0; i < vm->num_results && !status; ++i)
    if (vm->is_early[i]) status = set_shape(frame, vm->first_result + i);
  if (!status) status = place_tensors(frame);
  for (int32_t i = 0; i < vm->num_views && !status; ++i) status = place_view(frame, i);
  return status;
}

static int has_shapes(const rt_frame *frame, const DLTensor *const *inputs) {
  const rt_vm_function *vm = frame->function->vm;
  for (int32_t i = 0; i < vm->num_params; ++i) {
    const int64_t *shape = frame->frame.tensors[i].shape;
    for (int32_t axis = 0; axis < vm->params[i].ndim; ++axis)
      if (shape[axis] != inputs[i]->shape[axis]) return 0;
  }
  return 1;
}

int32_t rt_lay_out(rt_frame *frame, const DLTensor *const *inputs) {
  const rt_vm_function *vm = frame->function->vm;
  if (frame->is_laid_out && has_shapes(frame, inputs)) {
    /* The symbols learnt by the last call are unknown again. */
    for (int32_t i = 0; i < vm->num_dynamics; ++i) {
      const rt_register *reg = &vm->registers[vm->first_dynamic + i];
      for (int32_t k = 0; k < reg->num_binds; ++k) frame->sizes[reg->binds[k]] = RT_UNKNOWN;
    }
    return 0;
  }
  frame->is_laid_out = 0;
  rt_forget_sizes(vm->dims, frame->sizes);
  const int32_t status = lay_out(frame, inputs);
  frame->is_laid_out = !status;
  return status;
}

void rt_point_views(rt_frame *frame) {
  const byoc_rt_function *function = frame->function;
  for (int32_t i = 0; i < function->num_argument_views; ++i) {
    const int32_t number = function->argument_views[i];
    const int64_t offset = frame->view_offsets[number - function->vm->first_view];
    char *base = frame->frame.tensors[function->vm->registers[number].owner].data;
    frame->frame.tensors[number].data = offset ? base + offset : base;
  }
}
