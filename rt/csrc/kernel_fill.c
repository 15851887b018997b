/* Kernels of results with the elements of an operand at other places, and of results made of numbers. */
#include <string.h>

#include "kernel_movement.h"

/* ---- Maps of indices --------------------------------------------------------------------------------------------- */

/* For each axis of a result, the index of the operand for each index of the result; -1 for a filled element. */
typedef struct {
  int64_t *axes[RT_MAX_RANK];
} index_map;

static int32_t new_map(rt_call *call, int32_t rank, const int64_t *shape, index_map *map) {
  for (int32_t axis = 0; axis < rank; ++axis) {
    map->axes[axis] = rt_scratch(call, shape[axis], sizeof(int64_t));
    if (!map->axes[axis]) return BYOC_RT_MEMORY;
  }
  return 0;
}

/* Copy a row along the last axis: runs of consecutive elements at once. */
static void copy_row(char *target, const char *source, const int64_t *map, int64_t count, size_t nbytes,
                     const char *fill) {
  for (int64_t i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && map[i] >= 0 && map[end] == map[end - 1] + 1;) ++end;
    if (map[i] >= 0)
      memcpy(target + (size_t)i * nbytes, source + (size_t)map[i] * nbytes, (size_t)(end - i) * nbytes);
    else
      memcpy(target + (size_t)i * nbytes, fill, nbytes);
  }
}

/* Fill a compact result of rank 1 or more from a compact operand of the same rank. */
static void copy_mapped(const rt_array *result, const rt_array *x, const index_map *map, const char *fill) {
  if (!result->count) return;
  const int32_t last = result->rank - 1;
  const size_t nbytes = (size_t)rt_type_nbytes(result->type);
  const int64_t length = result->shape[last], rows = result->count / length;
  int64_t index[RT_MAX_RANK] = {0};
  char *target = result->data;
  for (int64_t row = 0; row < rows; ++row, target += (size_t)length * nbytes) {
    const char *source = x->data;
    int is_filled = 0;
    for (int32_t axis = 0; axis < last; ++axis) {
      const int64_t at = map->axes[axis][index[axis]];
      is_filled |= at < 0;
      if (at > 0) source += at * x->strides[axis];
    }
    if (is_filled)
      for (int64_t i = 0; i < length; ++i) memcpy(target + (size_t)i * nbytes, fill, nbytes);
    else
      copy_row(target, source, map->axes[last], length, nbytes, fill);
    for (int32_t axis = last - 1; axis >= 0 && ++index[axis] == result->shape[axis]; --axis) index[axis] = 0;
  }
}

int32_t rt_run_tile(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_compact(call, 0);
  const rt_attr *repeats = rt_attribute(call, "repeats");
  if (!x) return BYOC_RT_EXECUTION;
  if (repeats->count != x->rank) return rt_reject(call, "attribute `repeats` has %d values", (int)repeats->count);
  if (!x->rank) return rt_reshape_to(call, 0, 0, 0, NULL);
  int64_t shape[RT_MAX_RANK];
  for (int32_t axis = 0; axis < x->rank; ++axis) shape[axis] = rt_product(x->shape[axis], repeats->integers[axis]);
  const rt_array *result = rt_result(call, 0, x->rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  index_map map;
  if (!result->count) return 0;
  const int32_t status = new_map(call, x->rank, shape, &map);
  if (status) return status;
  for (int32_t axis = 0; axis < x->rank; ++axis)
    for (int64_t i = 0; i < shape[axis]; ++i) map.axes[axis][i] = i % x->shape[axis];
  copy_mapped(result, x, &map, NULL);
  return 0;
}

int32_t rt_run_roll(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_compact(call, 0);
  const rt_attr *axes = rt_attribute(call, "axis"), *shifts = rt_attribute(call, "shift");
  uint8_t is_named[RT_MAX_RANK];
  if (!x) return BYOC_RT_EXECUTION;
  int32_t status = rt_axes(call, "axis", x->rank, is_named);
  if (status) return status;
  if (shifts->count != axes->count) return rt_reject(call, "attribute `shift` has %d values", (int)shifts->count);
  if (!x->rank || !x->count) return rt_reshape_to(call, 0, 0, x->rank, x->shape);
  const rt_array *result = rt_result(call, 0, x->rank, x->shape);
  if (!result) return BYOC_RT_EXECUTION;
  index_map map;
  status = new_map(call, x->rank, x->shape, &map);
  if (status) return status;
  for (int32_t axis = 0; axis < x->rank; ++axis) {
    const int64_t size = x->shape[axis];
    int64_t shift = 0;
    for (int32_t k = 0; k < axes->count; ++k)
      if (axes->integers[k] == axis || axes->integers[k] == axis - x->rank) shift = shifts->integers[k] % size;
    for (int64_t i = 0; i < size; ++i) map.axes[axis][i] = (i - shift + size) % size;
  }
  copy_mapped(result, x, &map, NULL);
  return 0;
}

/* Set the shape of a padded tensor; widths are 0 or more. */
static int32_t padded_shape(rt_call *call, const rt_array *x, const rt_attr *widths, int64_t *shape) {
  if (widths->count != 2 * x->rank)
    return rt_reject(call, "attribute `pad_width` has %d values, expected %d", (int)widths->count, (int)(2 * x->rank));
  for (int32_t axis = 0; axis < x->rank; ++axis) {
    const int64_t before = widths->integers[2 * axis], after = widths->integers[2 * axis + 1];
    if (before < 0 || after < 0 || __builtin_add_overflow(x->shape[axis], before, &shape[axis]) ||
        __builtin_add_overflow(shape[axis], after, &shape[axis]))
      return rt_reject(call, "attribute `pad_width` is out of range for axis %d", (int)axis);
  }
  return 0;
}

int32_t rt_run_pad(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_compact(call, 0);
  const rt_attr *widths = rt_attribute(call, "pad_width");
  int64_t shape[RT_MAX_RANK];
  if (!x) return BYOC_RT_EXECUTION;
  int32_t status = padded_shape(call, x, widths, shape);
  if (status) return status;
  if (!x->rank) return rt_reshape_to(call, 0, 0, 0, NULL);
  const rt_array *result = rt_result(call, 0, x->rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  index_map map;
  status = new_map(call, x->rank, shape, &map);
  if (status) return status;
  for (int32_t axis = 0; axis < x->rank; ++axis) {
    for (int64_t i = 0; i < shape[axis]; ++i) {
      const int64_t at = i - widths->integers[2 * axis];
      map.axes[axis][i] = at < x->shape[axis] && at >= 0 ? at : -1;
    }
  }
  double fill = 0;
  const double value = rt_real(call, "pad_value");
  rt_convert(x->type, (char *)&fill, 0, RT_T_F64, (const char *)&value, 0, 1);
  copy_mapped(result, x, &map, (const char *)&fill);
  return 0;
}

static int64_t remainder_of(int64_t index, int64_t size) {
  const int64_t rest = index % size;
  return rest < 0 ? rest + size : rest;
}

/* Return the index inside an axis for an index outside. */
static int64_t source_index(int64_t index, int64_t size, int64_t mode) {
  if (mode == 0) return index < 0 ? 0 : index >= size ? size - 1 : index;
  if (mode == 2) return remainder_of(index, size);
  const int64_t period = size > 1 ? 2 * size - 2 : 1;
  const int64_t forwards = remainder_of(index, period), backwards = remainder_of(-index, period);
  return forwards < backwards ? forwards : backwards;
}

int32_t rt_run_border_pad(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_compact(call, 0);
  const rt_attr *widths = rt_attribute(call, "pad_width");
  int64_t shape[RT_MAX_RANK];
  if (!x) return BYOC_RT_EXECUTION;
  int32_t status = padded_shape(call, x, widths, shape);
  if (status) return status;
  for (int32_t axis = 0; axis < x->rank; ++axis)
    if (!x->shape[axis] && shape[axis])
      return rt_reject(call, "axis %d is empty and has no element to repeat", (int)axis);
  if (!x->rank) return rt_reshape_to(call, 0, 0, 0, NULL);
  const rt_array *result = rt_result(call, 0, x->rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  index_map map;
  status = new_map(call, x->rank, shape, &map);
  if (status) return status;
  const int64_t mode = rt_integer(call, "mode");
  for (int32_t axis = 0; axis < x->rank; ++axis)
    for (int64_t i = 0; i < shape[axis]; ++i)
      map.axes[axis][i] = source_index(i - widths->integers[2 * axis], x->shape[axis], mode);
  copy_mapped(result, x, &map, NULL);
  return 0;
}

int32_t rt_run_reverse_sequence(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0), *lengths = rt_integers(call, 1);
  if (!lengths) return BYOC_RT_EXECUTION;
  const int32_t batch = rt_axis(call, "batch_axis", x->rank), axis = rt_axis(call, "seq_axis", x->rank);
  if (batch < 0 || axis < 0) return BYOC_RT_EXECUTION;
  if (batch == axis) return rt_reject(call, "attributes `batch_axis` and `seq_axis` name the same axis");
  const int32_t status = rt_check_shape(call, "lengths", lengths, 1, &x->shape[batch]);
  if (status) return status;
  const int64_t *ends = (const int64_t *)lengths->data, size = x->shape[axis];
  for (int64_t i = 0; i < lengths->count; ++i)
    if (ends[i] < 0 || ends[i] > size)
      return rt_reject(call, "a length does not fit axis %d; got %lld, expected 0 to %lld", (int)axis,
                       (long long)ends[i], (long long)size);
  const rt_array *result = rt_result(call, 0, x->rank, x->shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (!x->count) return 0;
  for (int64_t item = 0; item < x->shape[batch]; ++item) {
    for (int part = 0; part < 2; ++part) { /* the reversed part, then the rest */
      rt_array target = *result, source = *x;
      const int64_t start = part ? ends[item] : 0, count = part ? size - ends[item] : ends[item];
      if (!count) continue;
      target.shape[batch] = 1;
      target.shape[axis] = count;
      target.data += item * target.strides[batch] + start * target.strides[axis];
      source.data += item * source.strides[batch] + (part ? start : count - 1) * source.strides[axis];
      if (!part) source.strides[axis] = -source.strides[axis];
      rt_copy_array(&target, &source);
    }
  }
  return 0;
}

int32_t rt_run_trilu(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0);
  if (x->rank < 2) return rt_reject(call, "the operand has rank %d, expected 2 or more", (int)x->rank);
  const rt_array *result = rt_result(call, 0, x->rank, x->shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (!x->count) return 0;
  rt_copy_array(result, x);
  const int64_t rows = x->shape[x->rank - 2], columns = x->shape[x->rank - 1];
  const size_t nbytes = (size_t)rt_type_nbytes(x->type);
  const int is_upper = rt_integer(call, "upper") != 0;
  int64_t k = rt_integer(call, "k");
  if (k > columns) k = columns;
  if (k < -rows) k = -rows;
  char *row = result->data;
  for (int64_t i = 0; i < x->count / columns; ++i, row += (size_t)columns * nbytes) {
    const int64_t diagonal = i % rows + k; /* the column on the diagonal */
    int64_t first = is_upper ? 0 : diagonal + 1, end = is_upper ? diagonal : columns;
    if (first < 0) first = 0;
    if (end > columns) end = columns;
    if (first < end) memset(row + (size_t)first * nbytes, 0, (size_t)(end - first) * nbytes);
  }
  return 0;
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static int32_t return_integers(rt_call *call, int32_t rank, int64_t count, const int64_t *integers) {
  const rt_array *result = rt_result(call, 0, rank, &count);
  if (!result) return BYOC_RT_EXECUTION;
  if (result->count) memcpy(result->data, integers, (size_t)result->count * sizeof *integers);
  return 0;
}

int32_t rt_run_shape_of(rt_call *call, const void *context) {
  (void)context;
  return return_integers(call, 1, rt_operand(call, 0)->rank, rt_operand(call, 0)->shape);
}

int32_t rt_run_size(rt_call *call, const void *context) {
  (void)context;
  return return_integers(call, 0, 1, &rt_operand(call, 0)->count);
}

int32_t rt_run_shape_to_tensor(rt_call *call, const void *context) {
  (void)context;
  const rt_attr *sizes = rt_attribute(call, "sizes");
  return return_integers(call, 1, sizes->count, sizes->integers);
}

int32_t rt_run_arange(rt_call *call, const void *context) {
  (void)context;
  const int64_t start = rt_integer(call, "start"), step = rt_integer(call, "step");
  if (!step) return rt_reject(call, "attribute `step` is 0");
  const int64_t count = rt_count_steps(start, rt_integer(call, "stop"), step);
  rt_array *result = rt_result(call, 0, 1, &count);
  int64_t *numbers = result ? (int64_t *)rt_open(call, result, RT_T_I64) : NULL;
  if (!numbers) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < count; ++i) numbers[i] = (int64_t)((uint64_t)start + (uint64_t)i * (uint64_t)step);
  rt_close(result, RT_T_I64, (const char *)numbers);
  return 0;
}

int32_t rt_run_full(rt_call *call, const void *context) {
  (void)context;
  const rt_array *value = rt_operand(call, 0);
  const rt_attr *shape = rt_attribute(call, "shape");
  if (value->rank) return rt_reject(call, "the fill value is no scalar");
  const rt_array *result = rt_result(call, 0, shape->count, shape->integers);
  if (!result) return BYOC_RT_EXECUTION;
  rt_array view = *result;
  view.data = value->data;
  memset(view.strides, 0, sizeof view.strides);
  rt_copy_array(result, &view);
  return 0;
}
