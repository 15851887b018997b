#include "kernel_index.h"

#include <string.h>

int32_t rt_run_take(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_compact(call, 0), *indices = rt_integers(call, 1);
  if (!x || !indices) return BYOC_RT_EXECUTION;
  const int32_t axis = rt_axis(call, "axis", x->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  const int64_t size = x->shape[axis];
  int64_t *at = (int64_t *)indices->data;
  if (rt_integer(call, "mode") == 1 && size) {
    for (int64_t i = 0; i < indices->count; ++i) at[i] = at[i] < 0 ? 0 : at[i] >= size ? size - 1 : at[i];
  } else {
    const int32_t status = rt_resolve(call, at, indices->count, size, axis);
    if (status) return status;
  }
  int64_t shape[2 * RT_MAX_RANK], outer = 1, inner = 1;
  int32_t rank = 0;
  for (int32_t i = 0; i < axis; ++i) shape[rank++] = x->shape[i];
  for (int32_t i = 0; i < indices->rank; ++i) shape[rank++] = indices->shape[i];
  for (int32_t i = axis + 1; i < x->rank; ++i) shape[rank++] = x->shape[i];
  const rt_array *result = rt_result(call, 0, rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  rt_split_axis(x, axis, &outer, &inner);
  const size_t nbytes = (size_t)(inner * rt_type_nbytes(x->type));
  char *target = result->data;
  for (int64_t row = 0; row < outer; ++row)
    for (int64_t i = 0; i < indices->count; ++i, target += nbytes)
      memcpy(target, x->data + (size_t)(row * size + at[i]) * nbytes, nbytes);
  return 0;
}

/* Replace indices along an axis by row-major offsets of elements of `x`; along the other axes, the element has the
 * position of the index. */
static int32_t to_offsets(const rt_call *call, const rt_array *x, const rt_array *indices, int32_t axis) {
  if (indices->rank != x->rank) return rt_reject(call, "operand `indices` has another rank than `x`");
  for (int32_t other = 0; other < x->rank; ++other)
    if (other != axis && indices->shape[other] > x->shape[other])
      return rt_reject(call, "operand `indices`: axis %d is too large; got %lld, expected at most %lld", (int)other,
                       (long long)indices->shape[other], (long long)x->shape[other]);
  int64_t *at = (int64_t *)indices->data, position[RT_MAX_RANK] = {0};
  const int32_t status = rt_resolve(call, at, indices->count, x->shape[axis], axis);
  if (status) return status;
  for (int64_t i = 0; i < indices->count; ++i) {
    int64_t offset = 0;
    for (int32_t other = 0; other < x->rank; ++other)
      offset = offset * x->shape[other] + (other == axis ? at[i] : position[other]);
    at[i] = offset;
    for (int32_t last = x->rank - 1; last >= 0 && ++position[last] == indices->shape[last]; --last) position[last] = 0;
  }
  return 0;
}

int32_t rt_run_gather_elements(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_compact(call, 0), *indices = rt_integers(call, 1);
  if (!x || !indices) return BYOC_RT_EXECUTION;
  const int32_t axis = rt_axis(call, "axis", x->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  const int32_t status = to_offsets(call, x, indices, axis);
  if (status) return status;
  const rt_array *result = rt_result(call, 0, indices->rank, indices->shape);
  if (!result) return BYOC_RT_EXECUTION;
  const size_t nbytes = (size_t)rt_type_nbytes(x->type);
  const int64_t *at = (const int64_t *)indices->data;
  for (int64_t i = 0; i < result->count; ++i)
    memcpy(result->data + (size_t)i * nbytes, x->data + (size_t)at[i] * nbytes, nbytes);
  return 0;
}

/* Join tuples of indices, in the last axis, to row-major numbers of slices of `x`, indexed from axis `first` on. The
 * number of a tuple takes the place of its first index. */
static int32_t to_slices(const rt_call *call, const rt_array *x, const rt_array *indices, int32_t first) {
  const int64_t depth = indices->rank ? indices->shape[indices->rank - 1] : 0;
  if (depth < 1 || depth > x->rank - first)
    return rt_reject(call, "operand `indices` has %lld coordinates, expected 1 to %d", (long long)depth,
                     (int)(x->rank - first));
  int64_t *at = (int64_t *)indices->data;
  for (int64_t i = 0; i < indices->count; i += depth) {
    int64_t number = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const int32_t axis = first + (int32_t)k;
      const int32_t status = rt_resolve(call, &at[i + k], 1, x->shape[axis], axis);
      if (status) return status;
      number = (int64_t)((uint64_t)number * (uint64_t)x->shape[axis]) + at[i + k];
    }
    at[i] = number;
  }
  return 0;
}

int32_t rt_run_gather_nd(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_compact(call, 0), *indices = rt_integers(call, 1);
  if (!x || !indices) return BYOC_RT_EXECUTION;
  const int64_t batch_dims = rt_integer(call, "batch_dims");
  if (batch_dims < 0 || (batch_dims && (batch_dims >= x->rank || batch_dims >= indices->rank)))
    return rt_reject(call, "attribute `batch_dims` is out of range; got %lld", (long long)batch_dims);
  const int32_t first = (int32_t)batch_dims;
  int64_t shape[2 * RT_MAX_RANK];
  int32_t rank = 0;
  for (int32_t axis = 0; axis < first; ++axis)
    if (x->shape[axis] != indices->shape[axis]) return rt_reject(call, "the batches of the operands differ");
  const int32_t status = to_slices(call, x, indices, first);
  if (status) return status;
  const int32_t depth = (int32_t)indices->shape[indices->rank - 1], last = first + depth;
  for (int32_t axis = 0; axis < indices->rank - 1; ++axis) shape[rank++] = indices->shape[axis];
  for (int32_t axis = last; axis < x->rank; ++axis) shape[rank++] = x->shape[axis];
  const rt_array *result = rt_result(call, 0, rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  const int64_t batches = rt_num_elements(first, x->shape), slices = rt_num_elements(depth, x->shape + first);
  const size_t nbytes = (size_t)(rt_num_elements(x->rank - last, x->shape + last) * rt_type_nbytes(x->type));
  const int64_t tuples = indices->count / depth, per_batch = tuples / batches;
  const int64_t *at = (const int64_t *)indices->data;
  for (int64_t i = 0; i < tuples; ++i)
    memcpy(result->data + (size_t)i * nbytes, x->data + (size_t)(i / per_batch * slices + at[i * depth]) * nbytes,
           nbytes);
  return 0;
}

int32_t rt_run_one_hot(rt_call *call, const void *context) {
  (void)context;
  const rt_array *indices = rt_integers(call, 0), *on = rt_operand(call, 1), *off = rt_operand(call, 2);
  if (!indices) return BYOC_RT_EXECUTION;
  if (on->count != 1 || off->count != 1) return rt_reject(call, "a value is no scalar");
  if (indices->rank == RT_MAX_RANK) return rt_reject(call, "the result has too many axes");
  const int64_t depth = rt_integer(call, "depth");
  const int32_t rank = indices->rank + 1, axis = rt_axis(call, "axis", rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  int64_t shape[RT_MAX_RANK], inner = 1;
  for (int32_t i = 0; i < rank; ++i) shape[i] = i == axis ? depth : indices->shape[i - (i > axis)];
  const rt_array *result = rt_result(call, 0, rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  for (int32_t i = axis + 1; i < rank; ++i) inner *= shape[i];
  const size_t nbytes = (size_t)rt_type_nbytes(result->type);
  for (int64_t i = 0; i < result->count; ++i) memcpy(result->data + (size_t)i * nbytes, off->data, nbytes);
  const int64_t *at = (const int64_t *)indices->data;
  for (int64_t i = 0; i < indices->count; ++i) {
    const int64_t index = at[i] < 0 ? at[i] + depth : at[i];
    if (index < 0 || index >= depth) continue;
    memcpy(result->data + (size_t)((i / inner * depth + index) * inner + i % inner) * nbytes, on->data, nbytes);
  }
  return 0;
}

/* ---- Scatter ----------------------------------------------------------------------------------------------------- */

enum { UPDATE, ADD, MULTIPLY, MINIMUM, MAXIMUM };

/* Combine elements with updates. The present element stays as minimum (maximum) only if smaller (larger): a NaN is
 * replaced, and an update of NaN is written. */
#define COMBINE(T, TOTAL, PRODUCT)                                         \
  {                                                                        \
    T *old = (T *)elements;                                                \
    const T *new = (const T *)updates;                                     \
    for (int64_t i = 0; i < count; ++i) {                                  \
      if (reduction == ADD) old[i] = (T)(TOTAL);                           \
      if (reduction == MULTIPLY) old[i] = (T)(PRODUCT);                    \
      if (reduction == MINIMUM) old[i] = old[i] < new[i] ? old[i] : new[i]; \
      if (reduction == MAXIMUM) old[i] = old[i] > new[i] ? old[i] : new[i]; \
    }                                                                      \
    return;                                                                \
  }

static void combine(rt_type type, int64_t reduction, char *elements, const char *updates, int64_t count) {
  if (type == RT_T_F32) COMBINE(float, old[i] + new[i], old[i] * new[i])
  if (type == RT_T_F64) COMBINE(double, old[i] + new[i], old[i] * new[i])
  if (type == RT_T_U64) COMBINE(uint64_t, old[i] + new[i], old[i] * new[i])
  COMBINE(int64_t, (uint64_t)old[i] + (uint64_t)new[i], (uint64_t)old[i] * (uint64_t)new[i])
}

/* Return x with rows of updates applied at the numbers of rows, `step` apart, in order. */
static int32_t scatter_rows(rt_call *call, const int64_t *rows, int64_t step, int64_t num_rows, int64_t width) {
  const int64_t reduction = rt_integer(call, "reduction");
  const rt_type own = rt_operand(call, 0)->type;
  if (reduction != UPDATE && !rt_type_in(own, RT_ALL))
    return rt_reject(call, "has no kernel for %s in this runtime", rt_type_name(own));
  const rt_type type = reduction == UPDATE ? own : own == RT_T_BOOL ? RT_T_I64 : rt_working_type(own);
  const rt_array *x = rt_operand(call, 0), *updates = rt_converted(call, 2, type);
  rt_array *result = rt_result(call, 0, x->rank, x->shape);
  if (!updates || !result) return BYOC_RT_EXECUTION;
  rt_array wide;
  (void)rt_describe(&wide, NULL, type, x->rank, x->shape);
  wide.data = rt_open(call, result, type);
  if (!wide.data) return BYOC_RT_EXECUTION;
  rt_copy_array(&wide, x);
  const size_t nbytes = (size_t)(width * rt_type_nbytes(type));
  for (int64_t i = 0; i < num_rows && width > 0; ++i) {
    char *row = wide.data + (size_t)rows[i * step] * nbytes;
    if (reduction == UPDATE)
      memcpy(row, updates->data + (size_t)i * nbytes, nbytes);
    else
      combine(type, reduction, row, updates->data + (size_t)i * nbytes, width);
  }
  rt_close(result, type, wide.data);
  return 0;
}

int32_t rt_run_scatter_elements(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0), *indices = rt_integers(call, 1);
  if (!indices) return BYOC_RT_EXECUTION;
  const int32_t axis = rt_axis(call, "axis", x->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  int32_t status = rt_check_shape(call, "updates", rt_operand(call, 2), indices->rank, indices->shape);
  if (!status) status = to_offsets(call, x, indices, axis);
  return status ? status : scatter_rows(call, (const int64_t *)indices->data, 1, indices->count, 1);
}

int32_t rt_run_scatter_nd(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0), *indices = rt_integers(call, 1);
  if (!indices) return BYOC_RT_EXECUTION;
  int32_t status = to_slices(call, x, indices, 0);
  if (status) return status;
  const int64_t depth = indices->shape[indices->rank - 1];
  int64_t shape[2 * RT_MAX_RANK];
  int32_t rank = 0;
  for (int32_t axis = 0; axis < indices->rank - 1; ++axis) shape[rank++] = indices->shape[axis];
  for (int32_t axis = (int32_t)depth; axis < x->rank; ++axis) shape[rank++] = x->shape[axis];
  if (rank > RT_MAX_RANK) return rt_reject(call, "operand `updates` has too many axes");
  status = rt_check_shape(call, "updates", rt_operand(call, 2), rank, shape);
  const int64_t width = rt_num_elements(x->rank - (int32_t)depth, x->shape + depth);
  return status ? status
                : scatter_rows(call, (const int64_t *)indices->data, depth, indices->count / depth, width);
}

/* Check the starts of a slice: inside the axis, or taken modulo the axis. */
static int32_t resolve_starts(const rt_call *call, const rt_array *starts, int64_t size, int64_t length, int32_t axis) {
  int64_t *first = (int64_t *)starts->data;
  const int is_circular = rt_integer(call, "mode") == 1;
  for (int64_t i = 0; i < starts->count; ++i) {
    if (is_circular) {
      first[i] = size ? first[i] % size : 0;
      if (first[i] < 0) first[i] += size;
    } else if (first[i] < 0 || first[i] > size - length) {
      return rt_reject(call, "the updates do not fit axis %d from a start on; got %lld, expected 0 to %lld", (int)axis,
                       (long long)first[i], (long long)(size - length));
    }
  }
  return 0;
}

int32_t rt_run_scatter_slice(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0), *updates = rt_operand(call, 1), *starts = rt_integers(call, 2);
  if (!starts) return BYOC_RT_EXECUTION;
  const int32_t axis = rt_axis(call, "axis", x->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  if (updates->rank != x->rank || starts->rank > 1 || (starts->rank && !axis))
    return rt_reject(call, "an operand has the wrong rank");
  int64_t shape[RT_MAX_RANK];
  memcpy(shape, x->shape, sizeof shape);
  const int64_t size = x->shape[axis], length = shape[axis] = updates->shape[axis];
  int32_t status = rt_check_shape(call, "updates", updates, x->rank, shape);
  if (!status) status = rt_check_shape(call, "starts", starts, starts->rank, x->shape);
  if (!status && length > size)
    status = rt_reject(call, "operand `updates` is longer than axis %d; got %lld, expected at most %lld", (int)axis,
                       (long long)length, (long long)size);
  if (!status) status = resolve_starts(call, starts, size, length, axis);
  if (status) return status;
  const rt_array *result = rt_result(call, 0, x->rank, x->shape);
  if (!result) return BYOC_RT_EXECUTION;
  rt_copy_array(result, x);
  if (!updates->count) return 0;
  const int64_t items = starts->rank ? x->shape[0] : 1;
  for (int64_t item = 0; item < items; ++item) {
    const int64_t first = ((const int64_t *)starts->data)[item];
    for (int part = 0; part < 2; ++part) { /* up to the end of the axis, then from the front */
      const int64_t head = length < size - first ? length : size - first;
      rt_array target = *result, source = *updates;
      target.shape[axis] = part ? length - head : head;
      if (starts->rank) target.shape[0] = 1;
      target.data += (part ? 0 : first) * target.strides[axis] + (starts->rank ? item * target.strides[0] : 0);
      source.data += (part ? head : 0) * source.strides[axis] + (starts->rank ? item * source.strides[0] : 0);
      rt_copy_array(&target, &source);
    }
  }
  return 0;
}
