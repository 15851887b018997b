#include "kernel_select.h"

#include <math.h>
#include <string.h>

int32_t rt_run_nonzero(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_converted(call, 0, RT_T_BOOL);
  if (!x) return BYOC_RT_EXECUTION;
  const uint8_t *is_set = (const uint8_t *)x->data;
  int64_t count = 0, found = 0, position[RT_MAX_RANK] = {0};
  for (int64_t i = 0; i < x->count; ++i) count += is_set[i] != 0;
  const int64_t shape[] = {x->rank, count};
  const rt_array *result = rt_result(call, 0, 2, shape);
  if (!result) return BYOC_RT_EXECUTION;
  int64_t *numbers = (int64_t *)result->data;
  for (int64_t i = 0; i < x->count; ++i) {
    if (is_set[i]) {
      for (int32_t axis = 0; axis < x->rank; ++axis) numbers[axis * count + found] = position[axis];
      ++found;
    }
    for (int32_t axis = x->rank - 1; axis >= 0 && ++position[axis] == x->shape[axis]; --axis) position[axis] = 0;
  }
  return 0;
}

int32_t rt_run_compress(rt_call *call, const void *context) {
  (void)context;
  const rt_array *operand = rt_compact(call, 0), *condition = rt_compact(call, 1);
  if (!operand || !condition) return BYOC_RT_EXECUTION;
  if (condition->rank != 1) return rt_reject(call, "the condition has rank %d, expected 1", (int)condition->rank);
  rt_array x = *operand;
  int32_t axis = 0;
  if (rt_attribute(call, "axis")->is_none)
    (void)rt_describe(&x, operand->data, operand->type, 1, &operand->count);
  else
    axis = rt_axis(call, "axis", x.rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  const uint8_t *is_set = (const uint8_t *)condition->data;
  int64_t count = 0, last = -1, shape[RT_MAX_RANK], outer, inner;
  for (int64_t i = 0; i < condition->count; ++i) {
    if (!is_set[i]) continue;
    ++count;
    last = i;
  }
  if (last >= x.shape[axis])
    return rt_reject(call, "the condition holds beyond the end of the axis; got %lld, expected < %lld", (long long)last,
                     (long long)x.shape[axis]);
  memcpy(shape, x.shape, sizeof shape);
  shape[axis] = count;
  const rt_array *result = rt_result(call, 0, x.rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  rt_split_axis(&x, axis, &outer, &inner);
  const size_t nbytes = (size_t)(inner * rt_type_nbytes(x.type));
  char *target = result->data;
  for (int64_t row = 0; row < outer; ++row) {
    for (int64_t i = 0; i <= last; ++i) {
      if (!is_set[i]) continue;
      memcpy(target, x.data + (size_t)(row * x.shape[axis] + i) * nbytes, nbytes);
      target += nbytes;
    }
  }
  return 0;
}

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

static int32_t run_integer_range(rt_call *call, rt_type type) {
  uint64_t bounds[3]; /* the bits of start, limit and step */
  for (int32_t k = 0; k < 3; ++k)
    rt_convert(type == RT_T_U64 ? RT_T_U64 : RT_T_I64, (char *)&bounds[k], 0, type, rt_operand(call, k)->data, 0, 1);
  if (!bounds[2]) return rt_reject(call, "has a step of zero");
  int64_t count;
  if (type == RT_T_U64) {
    const uint64_t steps = bounds[0] < bounds[1] ? (bounds[1] - bounds[0] - 1) / bounds[2] + 1 : 0;
    count = steps > INT64_MAX ? -1 : (int64_t)steps;
  } else {
    count = rt_count_steps((int64_t)bounds[0], (int64_t)bounds[1], (int64_t)bounds[2]);
  }
  rt_array *result = rt_result(call, 0, 1, &count);
  uint64_t *numbers = result ? (uint64_t *)rt_open(call, result, RT_T_I64) : NULL;
  if (!numbers) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < count; ++i) numbers[i] = bounds[0] + (uint64_t)i * bounds[2];
  rt_close(result, RT_T_I64, (const char *)numbers);
  return 0;
}

/* Each product and sum is rounded to float32 for types of up to 32 bits, as by numpy. */
static void fill_floats(float *numbers, int64_t count, double start, double step) {
  for (int64_t i = 0; i < count; ++i) {
    const float product = (float)i * (float)step;
    numbers[i] = (float)start + product;
  }
}

static void fill_doubles(double *numbers, int64_t count, double start, double step) {
  for (int64_t i = 0; i < count; ++i) {
    const double product = (double)i * step;
    numbers[i] = start + product;
  }
}

static int32_t run_real_range(rt_call *call, rt_type type) {
  double bounds[3] = {0, 0, 0};
  for (int32_t k = 0; k < 3; ++k)
    rt_convert(RT_T_F64, (char *)&bounds[k], 0, type, rt_operand(call, k)->data, 0, 1);
  if (bounds[2] == 0) return rt_reject(call, "has a step of zero");
  const rt_type work = rt_working_type(type);
  const double span = rt_rounded(work, bounds[1] - bounds[0]), length = span / bounds[2];
  if (!isfinite(length))
    return rt_reject(call, "has no finite number of steps; got %g to %g by %g", bounds[0], bounds[1], bounds[2]);
  if (length > 4e18) return rt_reject(call, "has too many steps; got %g to %g by %g", bounds[0], bounds[1], bounds[2]);
  const int64_t count = length > 0 ? (int64_t)ceil(length) : 0;
  rt_array *result = rt_result(call, 0, 1, &count);
  char *numbers = result ? rt_open(call, result, work) : NULL;
  if (!numbers) return BYOC_RT_EXECUTION;
  if (work == RT_T_F64)
    fill_doubles((double *)numbers, count, bounds[0], bounds[2]);
  else
    fill_floats((float *)numbers, count, bounds[0], bounds[2]);
  rt_close(result, work, numbers);
  return 0;
}

int32_t rt_run_range(rt_call *call, const void *context) {
  (void)context;
  const rt_type type = rt_operand(call, 0)->type;
  for (int32_t k = 0; k < 3; ++k)
    if (rt_operand(call, k)->count != 1) return rt_reject(call, "operand %d is no scalar", (int)k);
  return rt_type_in(type, RT_FLOATS) ? run_real_range(call, type) : run_integer_range(call, type);
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

int32_t rt_run_as_size(rt_call *call, const void *context) {
  (void)context;
  int64_t shape[] = {0, 0};
  const int32_t status = rt_scalar_integer(call, 0, &shape[0]);
  if (status) return status;
  if (shape[0] < 0) return rt_reject(call, "has a negative size; got %lld", (long long)shape[0]);
  return rt_result(call, 0, 2, shape) ? 0 : BYOC_RT_EXECUTION;
}

int32_t rt_run_as_dynamic(rt_call *call, const void *context) {
  (void)context;
  const rt_attr *axes = rt_attribute(call, "axes");
  const int32_t count = rt_num_operands(call);
  if (axes->count != count || rt_num_results(call) != count)
    return rt_reject(call, "needs an axis and a result for each tensor");
  for (int32_t i = 0; i < count; ++i) {
    const rt_array *x = rt_operand(call, i), *first = rt_operand(call, 0);
    if (axes->integers[i] < 0 || axes->integers[i] >= x->rank)
      return rt_reject(call, "tensor %d has no such axis", (int)i);
    if (x->shape[axes->integers[i]] != first->shape[axes->integers[0]])
      return rt_reject(call, "has tensors of different sizes; got %lld and %lld",
                       (long long)first->shape[axes->integers[0]], (long long)x->shape[axes->integers[i]]);
  }
  for (int32_t i = 0; i < count; ++i) {
    const rt_array *x = rt_operand(call, i), *result = rt_result(call, i, x->rank, x->shape);
    if (!result) return BYOC_RT_EXECUTION;
    rt_copy_array(result, x);
  }
  return 0;
}

int32_t rt_run_ragged_take(rt_call *call, const void *context) {
  (void)context;
  const rt_array *elements = rt_compact(call, 0), *lengths = rt_integers(call, 1), *indices = rt_integers(call, 2);
  int64_t *starts = lengths ? rt_scratch(call, lengths->count, sizeof *starts) : NULL;
  if (!elements || !indices || !starts) return BYOC_RT_EXECUTION;
  if (elements->rank != 1 || lengths->rank != 1 || indices->rank != 1)
    return rt_reject(call, "an operand has another rank than 1");
  const int64_t *length = (const int64_t *)lengths->data, *at = (const int64_t *)indices->data;
  int64_t end = 0, count = 0;
  for (int64_t i = 0; i < lengths->count; ++i) {
    starts[i] = end;
    if (length[i] < 0 || length[i] > elements->count - end)
      return rt_reject(call, "has rows beyond the elements; expected at most %lld", (long long)elements->count);
    end += length[i];
  }
  for (int64_t i = 0; i < indices->count; ++i) {
    if (at[i] < 0 || at[i] >= lengths->count)
      return rt_reject(call, "has an index outside the rows; got %lld, expected 0 to %lld", (long long)at[i],
                       (long long)lengths->count - 1);
    if (__builtin_add_overflow(count, length[at[i]], &count)) return rt_reject(call, "the result is too large");
  }
  const rt_array *result = rt_result(call, 0, 1, &count);
  if (!result) return BYOC_RT_EXECUTION;
  const size_t nbytes = (size_t)rt_type_nbytes(elements->type);
  char *target = result->data;
  for (int64_t i = 0; i < indices->count; ++i) {
    const size_t row = (size_t)length[at[i]] * nbytes;
    if (row) memcpy(target, elements->data + (size_t)starts[at[i]] * nbytes, row);
    target += row;
  }
  return 0;
}
