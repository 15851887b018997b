#include "byoc_executor.h"

#include <string.h>
#include <time.h>

static const DLTensor *operand(const TVMFFIAny *operands, int32_t index) { return operands[index].v_ptr; }

static int has_equal_shape(const DLTensor *a, const DLTensor *b) {
  return a->ndim == b->ndim && (a->ndim == 0 || !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(int64_t)));
}

/* Copy the axes from `axis` on; strides are in elements. Tensors of a damaged program may overlap. */
static void copy_axes(char *target, const int64_t *target_strides, const char *source, const int64_t *source_strides,
                      const int64_t *shape, int32_t axis, int32_t ndim, int64_t itemsize) {
  if (axis == ndim) {
    memmove(target, source, (size_t)itemsize);
    return;
  }
  if (axis == ndim - 1 && target_strides[axis] == 1 && source_strides[axis] == 1) {
    memmove(target, source, (size_t)(shape[axis] * itemsize));
    return;
  }
  for (int64_t i = 0; i < shape[axis]; ++i) {
    copy_axes(target + i * target_strides[axis] * itemsize, target_strides,
              source + i * source_strides[axis] * itemsize, source_strides, shape, axis + 1, ndim, itemsize);
  }
}

/* Fill in the strides of a compact tensor. */
static void compact_strides(const int64_t *shape, int32_t ndim, int64_t *strides) {
  int64_t stride = 1;
  for (int32_t axis = ndim - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
}

enum { MAX_NDIM = 64 };

/* Return whether tensors of equal shape name the same elements; false for some strided tensors. */
static int is_same_memory(const DLTensor *left, const DLTensor *right) {
  if (left->data != right->data || !left->strides != !right->strides) return 0;
  return !left->strides || !memcmp(left->strides, right->strides, (size_t)left->ndim * sizeof *left->strides);
}

/* Copy a tensor; from a state's old value to the same places of the new value, there is nothing to do. Return 0, without
 * copying, if the shapes differ or have too many axes. */
static int copy_tensor(const DLTensor *source, const DLTensor *target, int64_t itemsize) {
  int64_t source_compact[MAX_NDIM], target_compact[MAX_NDIM];
  if (!has_equal_shape(source, target) || source->ndim > MAX_NDIM) return 0;
  int64_t count = 1;
  for (int32_t axis = 0; axis < source->ndim; ++axis) count *= source->shape[axis];
  if (count == 0 || is_same_memory(source, target)) return 1;
  if (!source->strides && !target->strides) {
    memmove(target->data, source->data, (size_t)(count * itemsize));
    return 1;
  }
  const int64_t *source_strides = source->strides, *target_strides = target->strides;
  if (!source_strides) {
    compact_strides(source->shape, source->ndim, source_compact);
    source_strides = source_compact;
  }
  if (!target_strides) {
    compact_strides(target->shape, target->ndim, target_compact);
    target_strides = target_compact;
  }
  copy_axes(target->data, target_strides, source->data, source_strides, source->shape, 0, source->ndim, itemsize);
  return 1;
}

enum { MILLISECONDS_BETWEEN_PAUSES = 100 };

/* Return milliseconds of the wall clock; the clock may be adjusted. */
static int64_t milliseconds(void) {
  struct timespec now;
  (void)timespec_get(&now, TIME_UTC);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Return whether a loop must pause at a jump. The first backward jump only sets *start, initially 0. */
static int must_pause(int32_t from, int32_t to, int64_t *start) {
  if (to > from) return 0;
  const int64_t now = milliseconds();
  if (!*start) *start = now;
  return now < *start || now - *start >= MILLISECONDS_BETWEEN_PAUSES;
}

byoc_stop byoc_run(const byoc_frame *frame, int32_t index) {
  int64_t start = 0;
  for (;;) {
    const byoc_instruction *instruction = &frame->code[index];
    const TVMFFIAny *operands = frame->operands + instruction->first;
    switch (instruction->op) {
      case BYOC_CALL: {
        TVMFFIAny result = {0};
        int32_t status = instruction->function(instruction->context, operands, instruction->count, &result);
        if (status) return (byoc_stop){index, status};
        ++index;
        break;
      }
      case BYOC_COPY: {
        const DLTensor *source = operand(operands, 0);
        if (!copy_tensor(source, operand(operands, 1), frame->itemsizes[source - frame->tensors]))
          return (byoc_stop){index, 0};
        ++index;
        break;
      }
      case BYOC_ZERO:
        *(int64_t *)operand(operands, 0)->data = 0;
        ++index;
        break;
      case BYOC_INCREMENT:
        ++*(uint64_t *)operand(operands, 0)->data; /* wraps around, as in numpy */
        ++index;
        break;
      case BYOC_LOOP_TEST: {
        int64_t iteration = *(const int64_t *)operand(operands, 0)->data;
        int64_t max_trip = *(const int64_t *)operand(operands, 1)->data;
        uint8_t condition = *(const uint8_t *)operand(operands, 2)->data;
        *(uint8_t *)operand(operands, 3)->data = condition && iteration < max_trip;
        ++index;
        break;
      }
      case BYOC_IF:
      case BYOC_GOTO: {
        const int falls_through = instruction->op == BYOC_IF && *(const uint8_t *)operand(operands, 0)->data;
        const int32_t next = falls_through ? index + 1 : instruction->target;
        if (must_pause(index, next, &start)) return (byoc_stop){index, 0};
        index = next;
        break;
      }
      default:
        return (byoc_stop){index, 0};
    }
  }
}
