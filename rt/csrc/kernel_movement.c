#include "kernel_movement.h"

#include <string.h>

#include "kernel_elementwise.h"

int32_t rt_copy_view(rt_call *call, const rt_array *view) {
  const rt_array *result = rt_result(call, 0, view->rank, view->shape);
  if (!result) return BYOC_RT_EXECUTION;
  rt_copy_array(result, view);
  return 0;
}

int32_t rt_reshape_to(rt_call *call, int32_t index, int32_t operand, int32_t rank, const int64_t *shape) {
  const rt_array *x = rt_operand(call, operand);
  if (rt_num_elements(rank, shape) != x->count)
    return rt_reject(call, "the shape does not hold the %lld elements of the operand", (long long)x->count);
  if (rt_is_row_major(x)) return rt_alias(call, index, x, rank, shape);
  rt_array target = *x;
  const rt_array *result = rt_result(call, index, rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  (void)rt_describe(&target, result->data, x->type, x->rank, x->shape);
  rt_copy_array(&target, x);
  return 0;
}

int32_t rt_run_reshape(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0);
  const rt_attr *attr = rt_attribute(call, "shape");
  if (attr->count > RT_MAX_RANK) return rt_reject(call, "attribute `shape` has too many axes");
  int64_t shape[RT_MAX_RANK];
  int32_t unknown = -1;
  for (int32_t axis = 0; axis < attr->count; ++axis) {
    shape[axis] = attr->integers[axis];
    if (shape[axis] >= 0) continue;
    if (shape[axis] != -1 || unknown >= 0) return rt_reject(call, "attribute `shape` has negative sizes");
    unknown = axis;
    shape[axis] = 1;
  }
  if (unknown >= 0) {
    const int64_t known = rt_num_elements(attr->count, shape);
    if (known <= 0 || x->count % known)
      return rt_reject(call, "attribute `shape` does not divide the %lld elements", (long long)x->count);
    shape[unknown] = x->count / known;
  }
  return rt_reshape_to(call, 0, 0, attr->count, shape);
}

int32_t rt_run_squeeze(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0);
  const int removes_all = rt_attribute(call, "axis")->is_none;
  uint8_t is_removed[RT_MAX_RANK];
  const int32_t status = rt_axes(call, "axis", x->rank, is_removed);
  if (status) return status;
  int64_t shape[RT_MAX_RANK];
  int32_t rank = 0;
  for (int32_t axis = 0; axis < x->rank; ++axis) {
    if (x->shape[axis] == 1 && is_removed[axis]) continue;
    if (is_removed[axis] && !removes_all)
      return rt_reject(call, "axis %d does not have size 1; got %lld", (int)axis, (long long)x->shape[axis]);
    shape[rank++] = x->shape[axis];
  }
  return rt_reshape_to(call, 0, 0, rank, shape);
}

int32_t rt_run_expand_dims(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0);
  const int32_t count = rt_attribute(call, "axis")->count;
  if (count > RT_MAX_RANK - x->rank) return rt_reject(call, "the result has too many axes");
  uint8_t is_new[RT_MAX_RANK];
  const int32_t rank = x->rank + count, status = rt_axes(call, "axis", rank, is_new);
  if (status) return status;
  int64_t shape[RT_MAX_RANK];
  for (int32_t axis = 0, old = 0; axis < rank; ++axis) shape[axis] = is_new[axis] ? 1 : x->shape[old++];
  return rt_reshape_to(call, 0, 0, rank, shape);
}

int32_t rt_run_permute_dims(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0);
  const rt_attr *attr = rt_attribute(call, "axes");
  uint8_t is_named[RT_MAX_RANK];
  const int32_t status = rt_axes(call, "axes", x->rank, is_named);
  if (status) return status;
  if (!attr->is_none && attr->count != x->rank) return rt_reject(call, "attribute `axes` is no permutation");
  rt_array view = *x;
  for (int32_t axis = 0; axis < x->rank; ++axis) {
    int64_t from = attr->is_none ? x->rank - 1 - axis : attr->integers[axis];
    if (from < 0) from += x->rank;
    view.shape[axis] = x->shape[from];
    view.strides[axis] = x->strides[from];
  }
  return rt_copy_view(call, &view);
}

int32_t rt_run_broadcast_to(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0);
  const rt_attr *attr = rt_attribute(call, "shape");
  if (attr->count < x->rank || attr->count > RT_MAX_RANK)
    return rt_reject(call, "attribute `shape` has %d axes", (int)attr->count);
  const int32_t first = attr->count - x->rank;
  for (int32_t axis = 0; axis < x->rank; ++axis)
    if (x->shape[axis] != 1 && x->shape[axis] != attr->integers[first + axis])
      return rt_reject(call, "axis %d has size %lld and does not broadcast to %lld", (int)axis,
                       (long long)x->shape[axis], (long long)attr->integers[first + axis]);
  const rt_array *result = rt_result(call, 0, attr->count, attr->integers);
  if (!result) return BYOC_RT_EXECUTION;
  rt_array view = *result;
  view.data = x->data;
  rt_broadcast_strides(x, result->rank, result->shape, view.strides);
  rt_copy_array(result, &view);
  return 0;
}

/* Copy operands into consecutive parts of a result along an axis. */
static void fill_parts(const rt_array *result, int32_t axis, const rt_array *const *parts, int32_t count) {
  rt_array target = *result;
  for (int32_t i = 0; i < count; ++i) {
    target.shape[axis] = parts[i]->shape[axis];
    rt_copy_array(&target, parts[i]);
    target.data += result->strides[axis] * parts[i]->shape[axis];
  }
}

int32_t rt_run_concat(rt_call *call, const void *context) {
  (void)context;
  const int32_t count = rt_num_operands(call);
  if (!count) return rt_reject(call, "has no parts to join");
  const rt_array *first = rt_operand(call, 0);
  const int32_t axis = rt_axis(call, "axis", first->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  int64_t shape[RT_MAX_RANK];
  memcpy(shape, first->shape, sizeof shape);
  shape[axis] = 0;
  const rt_array **parts = rt_scratch(call, count, sizeof *parts);
  if (!parts) return BYOC_RT_MEMORY;
  for (int32_t i = 0; i < count; ++i) {
    parts[i] = rt_operand(call, i);
    int fits = parts[i]->rank == first->rank;
    for (int32_t other = 0; other < first->rank && fits; ++other)
      fits = other == axis || parts[i]->shape[other] == shape[other];
    if (!fits || __builtin_add_overflow(shape[axis], parts[i]->shape[axis], &shape[axis]))
      return rt_reject(call, "part %d does not fit the first part", (int)i);
  }
  const rt_array *result = rt_result(call, 0, first->rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (result->count) fill_parts(result, axis, parts, count);
  return 0;
}

int32_t rt_run_stack(rt_call *call, const void *context) {
  (void)context;
  const int32_t count = rt_num_operands(call);
  if (!count) return rt_reject(call, "has no parts to stack");
  const rt_array *first = rt_operand(call, 0);
  if (first->rank == RT_MAX_RANK) return rt_reject(call, "the result has too many axes");
  const int32_t axis = rt_axis(call, "axis", first->rank + 1);
  if (axis < 0) return BYOC_RT_EXECUTION;
  int64_t shape[RT_MAX_RANK];
  for (int32_t i = 0; i <= first->rank; ++i) shape[i] = i == axis ? count : first->shape[i - (i > axis)];
  for (int32_t i = 0; i < count; ++i) {
    const int32_t status = rt_check_shape(call, "parts", rt_operand(call, i), first->rank, first->shape);
    if (status) return status;
  }
  const rt_array *result = rt_result(call, 0, first->rank + 1, shape);
  if (!result) return BYOC_RT_EXECUTION;
  rt_array part = *first;
  for (int32_t i = 0; i < first->rank; ++i) part.strides[i] = result->strides[i + (i >= axis)];
  for (int32_t i = 0; i < count; ++i) {
    part.data = result->data + i * result->strides[axis];
    rt_copy_array(&part, rt_operand(call, i));
  }
  return 0;
}

int32_t rt_run_split(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0);
  const rt_attr *sections = rt_attribute(call, "sections");
  const int32_t axis = rt_axis(call, "axis", x->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  int64_t rest = x->shape[axis];
  for (int32_t i = 0; i < sections->count; ++i) {
    if (sections->integers[i] < 0 || sections->integers[i] > rest) rest = -1;
    if (rest < 0) break;
    rest -= sections->integers[i];
  }
  if (rest || sections->count != rt_num_results(call))
    return rt_reject(call, "the sizes of the parts do not add up to the size of the axis; expected %lld",
                     (long long)x->shape[axis]);
  rt_array part = *x;
  for (int32_t i = 0; i < sections->count; ++i) {
    part.shape[axis] = sections->integers[i];
    const rt_array *result = rt_result(call, i, part.rank, part.shape);
    if (!result) return BYOC_RT_EXECUTION;
    rt_copy_array(result, &part);
    part.data += x->strides[axis] * part.shape[axis];
  }
  return 0;
}

/* A bound that stands for the end of an axis of any size. */
static int is_open_bound(int64_t bound) {
  const int64_t least = (int64_t)1 << 62;
  return bound >= least || bound <= -least;
}

/* Slice an axis of a view. */
static int32_t slice_axis(const rt_call *call, rt_array *view, int32_t axis, int64_t begin, int64_t end, int64_t step,
                          int is_strict) {
  const int64_t size = view->shape[axis], low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  if (!step) return rt_reject(call, "attribute `strides` has a zero");
  int64_t bounds[] = {begin, end};
  for (int i = 0; i < 2; ++i) {
    const int64_t bound = bounds[i];
    if (bound < 0) bounds[i] = bound + size;
    if (is_strict && !is_open_bound(bound) && (bounds[i] < low || bounds[i] > high))
      return rt_reject(call, "a bound lies outside axis %d of size %lld; got %lld", (int)axis, (long long)size,
                       (long long)bound);
  }
  int64_t start = bounds[0] > 0 ? bounds[0] : 0, stop = bounds[1] > low ? bounds[1] : low;
  if (start > high) start = high;
  if (stop > high) stop = high;
  const int64_t distance = step > 0 ? stop - start : start - stop;
  /* The magnitude of the step, at most the largest integer. */
  const int64_t magnitude = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
  const int64_t count = distance > 0 ? (distance - 1) / magnitude + 1 : 0;
  view->shape[axis] = count;
  if (count > 0) view->data += view->strides[axis] * start;
  if (count > 1) view->strides[axis] *= step;
  return 0;
}

int32_t rt_run_strided_slice(rt_call *call, const void *context) {
  (void)context;
  const rt_attr *axes = rt_attribute(call, "axes"), *begin = rt_attribute(call, "begin");
  const rt_attr *end = rt_attribute(call, "end"), *strides = rt_attribute(call, "strides");
  rt_array view = *rt_operand(call, 0);
  uint8_t is_named[RT_MAX_RANK];
  int32_t status = rt_axes(call, "axes", view.rank, is_named);
  if (status) return status;
  if (begin->count != axes->count || end->count != axes->count || strides->count != axes->count)
    return rt_reject(call, "the attributes have different numbers of values");
  for (int32_t i = 0; i < axes->count; ++i) {
    const int64_t axis = axes->integers[i] < 0 ? axes->integers[i] + view.rank : axes->integers[i];
    status = slice_axis(call, &view, (int32_t)axis, begin->integers[i], end->integers[i], strides->integers[i],
                        rt_integer(call, "mode") == 1);
    if (status) return status;
  }
  return rt_copy_view(call, &view);
}

int32_t rt_run_flip(rt_call *call, const void *context) {
  (void)context;
  rt_array view = *rt_operand(call, 0);
  const int32_t axis = rt_axis(call, "axis", view.rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  if (view.count) {
    view.data += view.strides[axis] * (view.shape[axis] - 1);
    view.strides[axis] = -view.strides[axis];
  }
  return rt_copy_view(call, &view);
}

/* Copy a view of rank 6 into a result of rank 4. */
static int32_t copy_blocks(rt_call *call, rt_array *blocks, const int32_t *order, const int64_t *shape) {
  const rt_array *result = rt_result(call, 0, 4, shape);
  if (!result) return BYOC_RT_EXECUTION;
  rt_array source = *blocks, target;
  source.rank = 6;
  for (int32_t axis = 0; axis < 6; ++axis) {
    source.shape[axis] = blocks->shape[order[axis]];
    source.strides[axis] = blocks->strides[order[axis]];
  }
  (void)rt_describe(&target, result->data, result->type, 6, source.shape);
  rt_copy_array(&target, &source);
  return 0;
}

static int32_t check_image(rt_call *call, int64_t *block) {
  *block = rt_integer(call, "block_size");
  if (rt_operand(call, 0)->rank != 4) return rt_reject(call, "the operand is no image (N, C, H, W)");
  if (*block < 1 || *block > INT32_MAX / 2)
    return rt_reject(call, "attribute `block_size` is out of range; got %lld", (long long)*block);
  return 0;
}

static int32_t check_multiple(const rt_call *call, int64_t size, int64_t divisor) {
  if (size % divisor == 0) return 0;
  return rt_reject(call, "an axis is not divisible into blocks; got %lld, expected a multiple of %lld",
                   (long long)size, (long long)divisor);
}

int32_t rt_run_depth_to_space(rt_call *call, const void *context) {
  (void)context;
  static const int32_t dcr[] = {0, 3, 4, 1, 5, 2}, crd[] = {0, 1, 4, 2, 5, 3};
  int64_t b;
  int32_t status = check_image(call, &b);
  if (status) return status;
  const rt_array *x = rt_compact(call, 0);
  if (!x) return BYOC_RT_EXECUTION;
  const int64_t n = x->shape[0], c = x->shape[1], h = x->shape[2], w = x->shape[3];
  status = check_multiple(call, c, b * b);
  if (status) return status;
  const int64_t depth = c / (b * b);
  const int is_crd = rt_integer(call, "mode") == 1;
  const int64_t first[] = {n, b, b, depth, h, w}, second[] = {n, depth, b, b, h, w};
  rt_array blocks;
  (void)rt_describe(&blocks, x->data, x->type, 6, is_crd ? second : first);
  const int64_t shape[] = {n, depth, rt_product(h, b), rt_product(w, b)};
  return copy_blocks(call, &blocks, is_crd ? crd : dcr, shape);
}

int32_t rt_run_space_to_depth(rt_call *call, const void *context) {
  (void)context;
  static const int32_t dcr[] = {0, 3, 5, 1, 2, 4}, crd[] = {0, 1, 3, 5, 2, 4};
  int64_t b;
  int32_t status = check_image(call, &b);
  if (status) return status;
  const rt_array *x = rt_compact(call, 0);
  if (!x) return BYOC_RT_EXECUTION;
  const int64_t n = x->shape[0], c = x->shape[1], h = x->shape[2], w = x->shape[3];
  status = check_multiple(call, h, b);
  if (!status) status = check_multiple(call, w, b);
  if (status) return status;
  const int64_t split[] = {n, c, h / b, b, w / b, b};
  rt_array blocks;
  (void)rt_describe(&blocks, x->data, x->type, 6, split);
  const int64_t shape[] = {n, rt_product(c, b * b), h / b, w / b};
  return copy_blocks(call, &blocks, rt_integer(call, "mode") == 1 ? crd : dcr, shape);
}
