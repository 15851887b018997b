/* Arrays, without a call: descriptions, copies, conversions. */
#include "kernel.h"

int rt_describe(rt_array *array, char *data, rt_type type, int32_t rank, const int64_t *shape) {
  array->data = data;
  array->type = type;
  array->rank = rank;
  array->count = 1;
  int is_empty = 0;
  for (int32_t axis = 0; axis < rank; ++axis) {
    if (shape[axis] < 0) return 0;
    array->shape[axis] = shape[axis];
    array->strides[axis] = 0;
    is_empty |= shape[axis] == 0;
  }
  if (is_empty) {
    array->count = 0;
    return 1;
  }
  int64_t nbytes = rt_type_nbytes(type);
  for (int32_t axis = rank - 1; axis >= 0; --axis) {
    array->strides[axis] = nbytes;
    if (__builtin_mul_overflow(nbytes, shape[axis], &nbytes)) return 0;
  }
  array->count = nbytes / rt_type_nbytes(type);
  return 1;
}

int rt_is_row_major(const rt_array *array) {
  if (!array->count) return 1;
  int64_t nbytes = rt_type_nbytes(array->type);
  for (int32_t axis = array->rank - 1; axis >= 0; --axis) {
    if (array->shape[axis] != 1 && array->strides[axis] != nbytes) return 0;
    nbytes *= array->shape[axis];
  }
  return 1;
}

int64_t rt_product(int64_t left, int64_t right) {
  int64_t product;
  return left < 0 || right < 0 || __builtin_mul_overflow(left, right, &product) ? -1 : product;
}

int64_t rt_num_elements(int32_t rank, const int64_t *shape) {
  int64_t count = 1;
  int is_empty = 0;
  for (int32_t axis = 0; axis < rank; ++axis) {
    if (shape[axis] < 0) return -1;
    is_empty |= shape[axis] == 0;
  }
  for (int32_t axis = 0; axis < rank && !is_empty; ++axis)
    if (__builtin_mul_overflow(count, shape[axis], &count)) return -1;
  return is_empty ? 0 : count;
}

int64_t rt_count_steps(int64_t start, int64_t stop, int64_t step) {
  if (step > 0 ? stop <= start : stop >= start) return 0;
  const uint64_t distance = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
  const uint64_t magnitude = step > 0 ? (uint64_t)step : -(uint64_t)step;
  const uint64_t count = (distance - 1) / magnitude + 1;
  return count > INT64_MAX ? -1 : (int64_t)count;
}

typedef struct {
  rt_type to, from;
} conversion;

static void convert_inner(const void *context, char *const *data, const int64_t *strides, int64_t count) {
  const conversion *types = context;
  rt_convert(types->to, data[0], strides[0], types->from, data[1], strides[1], count);
}

void rt_copy_array(const rt_array *target, const rt_array *source) {
  if (target->type == source->type) {
    rt_copy_strided(target->data, target->strides, source->data, source->strides, target->rank, target->shape,
                     rt_type_nbytes(target->type));
    return;
  }
  const conversion types = {target->type, source->type};
  char *const data[] = {target->data, source->data};
  const int64_t *const strides[] = {target->strides, source->strides};
  rt_walk(2, data, strides, target->rank, target->shape, convert_inner, &types);
}

void rt_split_axis(const rt_array *array, int32_t axis, int64_t *outer, int64_t *inner) {
  *outer = *inner = 1;
  if (!array->count) {
    *outer = *inner = 0;
    return;
  }
  for (int32_t i = 0; i < axis; ++i) *outer *= array->shape[i];
  for (int32_t i = axis + 1; i < array->rank; ++i) *inner *= array->shape[i];
}

rt_type rt_working_type(rt_type type) {
  if (rt_type_in(type, RT_FLOATS)) return type == RT_T_F64 ? RT_T_F64 : RT_T_F32;
  if (rt_type_in(type, RT_INTEGERS)) return type == RT_T_U64 ? RT_T_U64 : RT_T_I64;
  return type;
}

rt_type rt_wide_type(rt_type type) {
  if (rt_type_in(type, RT_FLOATS)) return RT_T_F64;
  return type == RT_T_U64 ? RT_T_U64 : RT_T_I64;
}
