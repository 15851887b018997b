/* Frames: tables of one block of memory, made once and used again by later calls. */
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "tensor.h"

/* Return the next table of a block, or count its bytes only (`block` is NULL); `nbytes` is a multiple of 8. */
static void *next_table(char *block, size_t *position, size_t count, size_t nbytes) {
  void *table = block ? block + *position : NULL;
  *position += count * nbytes;
  return table;
}

static size_t count_dims(const rt_vm_function *vm) {
  size_t count = 0;
  for (int32_t i = 0; i < vm->num_registers; ++i)
    count += (size_t)vm->registers[i].spec.ndim * (vm->registers[i].strides ? 2 : 1);
  return count;
}

/* Set the tables of a frame in a block; return the bytes of the block. */
static size_t set_tables(const byoc_rt_function *function, char *block, rt_frame *frame, int64_t **dims) {
  const rt_vm_function *vm = function->vm;
  const size_t num_registers = (size_t)vm->num_registers, max_operands = (size_t)function->max_operands;
  size_t position = sizeof(rt_frame);
  frame->frame.tensors = next_table(block, &position, num_registers, sizeof(DLTensor));
  frame->frame.operands = next_table(block, &position, (size_t)function->num_operands, sizeof(TVMFFIAny));
  frame->frame.itemsizes = next_table(block, &position, num_registers, sizeof(int64_t));
  frame->sizes = next_table(block, &position, (size_t)rt_num_sizes(vm->dims), sizeof(int64_t));
  *dims = next_table(block, &position, count_dims(vm), sizeof(int64_t));
  frame->view_offsets = next_table(block, &position, (size_t)vm->num_views, sizeof(int64_t));
  frame->storage_offsets = next_table(block, &position, (size_t)vm->num_storages, sizeof(int64_t));
  frame->storage_nbytes = next_table(block, &position, (size_t)vm->num_storages, sizeof(int64_t));
  frame->dynamics = next_table(block, &position, (size_t)vm->num_dynamics, sizeof *frame->dynamics);
  frame->copies = next_table(block, &position, (size_t)vm->num_params, sizeof *frame->copies);
  frame->arguments = next_table(block, &position, (size_t)vm->num_params, sizeof *frame->arguments);
  frame->operands = next_table(block, &position, max_operands, sizeof *frame->operands);
  frame->specs = next_table(block, &position, max_operands, sizeof *frame->specs);
  frame->made = next_table(block, &position, max_operands, sizeof *frame->made);
  return position;
}

static void set_registers(rt_frame *frame, int64_t *dims) {
  const rt_vm_function *vm = frame->function->vm;
  for (int32_t i = 0; i < vm->num_registers; ++i) {
    const rt_register *reg = &vm->registers[i];
    frame->frame.tensors[i] =
        (DLTensor){.device = {kDLCPU, 0}, .ndim = reg->spec.ndim, .dtype = reg->spec.dtype, .shape = dims};
    frame->frame.itemsizes[i] = reg->itemsize;
    dims += (size_t)reg->spec.ndim * (reg->strides ? 2 : 1);
    if (reg->kind != RT_CONSTANT) continue;
    const DLTensor *constant = frame->function->program->vm_constants[reg->owner];
    frame->frame.tensors[i].data = constant->data;
    frame->frame.tensors[i].shape = constant->shape;
  }
}

static rt_frame *new_frame(const byoc_rt_function *function) {
  rt_frame tables = {.function = function};
  int64_t *dims;
  char *block = calloc(1, set_tables(function, NULL, &tables, &dims));
  if (!block) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "function `%s`: no memory for the registers", function->vm->name);
    return NULL;
  }
  (void)set_tables(function, block, &tables, &dims);
  rt_frame *frame = (rt_frame *)(void *)block;
  *frame = tables;
  frame->frame.code = function->code;
  set_registers(frame, dims);
  for (int32_t i = 0; i < function->num_operands; ++i)
    frame->frame.operands[i] =
        (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &frame->frame.tensors[function->operands[i]]};
  return frame;
}

rt_frame *rt_take_frame(const byoc_rt_function *function) {
  rt_frames *unused = function->frames;
  rt_frame *frame = atomic_exchange(&unused->last, NULL);
  if (frame) return frame;
  if (!pthread_mutex_trylock(&unused->mutex)) {
    frame = unused->frames;
    if (frame) unused->frames = frame->next;
    (void)pthread_mutex_unlock(&unused->mutex);
  }
  return frame ? frame : new_frame(function);
}

static void release_call(rt_frame *frame) {
  const rt_vm_function *vm = frame->function->vm;
  for (int32_t i = 0; i < vm->num_params; ++i) {
    if (!frame->copies[i]) continue;
    free(frame->copies[i]);
    frame->copies[i] = NULL;
  }
  for (int32_t i = 0; i < vm->num_dynamics; ++i) {
    if (!frame->dynamics[i]) continue;
    rt_free_tensor(frame->dynamics[i]);
    frame->dynamics[i] = NULL;
  }
}

static void free_frame(rt_frame *frame) {
  if (!frame) return;
  free(frame->arena);
  free(frame);
}

void rt_return_frame(rt_frame *frame) {
  rt_frames *unused = frame->function->frames;
  rt_frame *expected = NULL;
  release_call(frame);
  if (atomic_compare_exchange_strong(&unused->last, &expected, frame)) return;
  if (pthread_mutex_trylock(&unused->mutex)) {
    free_frame(frame);
    return;
  }
  frame->next = unused->frames;
  unused->frames = frame;
  (void)pthread_mutex_unlock(&unused->mutex);
}

void rt_free_frames(rt_frames *frames) {
  free_frame(atomic_exchange(&frames->last, NULL));
  for (rt_frame *frame = frames->frames, *next; frame; frame = next) {
    next = frame->next;
    free_frame(frame);
  }
  frames->frames = NULL;
}
