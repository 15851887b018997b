#include "kernel_reduce.h"

#include <math.h>
#include <string.h>

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static double sum_reals(const double *row, int64_t length, rt_type type) {
  double totals[4] = {0}; /* independent sums: no addition waits for the one before */
  int64_t i = 0;
  (void)type;
  for (; i + 4 <= length; i += 4)
    for (int k = 0; k < 4; ++k) totals[k] += row[i + k];
  for (; i < length; ++i) totals[0] += row[i];
  return (totals[0] + totals[1]) + (totals[2] + totals[3]);
}

static int64_t sum_integers(const int64_t *row, int64_t length, rt_type type) {
  uint64_t total = 0;
  (void)type;
  for (int64_t i = 0; i < length; ++i) total += (uint64_t)row[i];
  return (int64_t)total;
}

static double mean_reals(const double *row, int64_t length, rt_type type) {
  return sum_reals(row, length, type) / (double)length;
}

static double multiply_reals(const double *row, int64_t length, rt_type type) {
  double total = 1;
  (void)type;
  for (int64_t i = 0; i < length; ++i) total *= row[i];
  return total;
}

static int64_t multiply_integers(const int64_t *row, int64_t length, rt_type type) {
  uint64_t total = 1;
  (void)type;
  for (int64_t i = 0; i < length; ++i) total *= (uint64_t)row[i];
  return (int64_t)total;
}

/* The extremes of nothing are the lowest and the highest value of the type; NaN is both. */
static double max_reals(const double *row, int64_t length, rt_type type) {
  double best = -rt_greatest_real(type);
  for (int64_t i = 0; i < length; ++i) best = best >= row[i] || best != best ? best : row[i];
  return best;
}

static double min_reals(const double *row, int64_t length, rt_type type) {
  double best = rt_greatest_real(type);
  for (int64_t i = 0; i < length; ++i) best = best <= row[i] || best != best ? best : row[i];
  return best;
}

/* Return an integer for signed comparison: uint64 is shifted to the range of int64. */
static int64_t key_of(int64_t value, rt_type type) { return type == RT_T_U64 ? value ^ INT64_MIN : value; }

static int64_t max_integers(const int64_t *row, int64_t length, rt_type type) {
  int64_t best = key_of(type == RT_T_BOOL ? 0 : rt_least_integer(type), type);
  for (int64_t i = 0; i < length; ++i) best = key_of(row[i], type) > best ? key_of(row[i], type) : best;
  return key_of(best, type);
}

static int64_t min_integers(const int64_t *row, int64_t length, rt_type type) {
  int64_t best = key_of(type == RT_T_BOOL ? 1 : rt_greatest_integer(type), type);
  for (int64_t i = 0; i < length; ++i) best = key_of(row[i], type) < best ? key_of(row[i], type) : best;
  return key_of(best, type);
}

static double logsumexp_reals(const double *row, int64_t length, rt_type type) {
  double top = -INFINITY, total = 0;
  (void)type;
  for (int64_t i = 0; i < length; ++i) top = top >= row[i] || top != top ? top : row[i];
  if (!isfinite(top)) top = 0;
  for (int64_t i = 0; i < length; ++i) total += exp(row[i] - top);
  return log(total) + top;
}

const rt_reduction rt_sum = {sum_reals, sum_integers};
const rt_reduction rt_mean = {mean_reals, NULL};
const rt_reduction rt_product_of = {multiply_reals, multiply_integers};
const rt_reduction rt_max = {max_reals, max_integers};
const rt_reduction rt_min = {min_reals, min_integers};
const rt_reduction rt_all = {NULL, min_integers};
const rt_reduction rt_any = {NULL, max_integers};
const rt_reduction rt_logsumexp = {logsumexp_reals, NULL};

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* Return result 0 without the marked axes, or with size 1 there. */
static rt_array *reduced_result(rt_call *call, const uint8_t *is_reduced) {
  const rt_array *x = rt_operand(call, 0);
  const int keeps = rt_integer(call, "keepdims") != 0;
  int64_t shape[RT_MAX_RANK];
  int32_t rank = 0;
  for (int32_t axis = 0; axis < x->rank; ++axis) {
    if (!is_reduced[axis])
      shape[rank++] = x->shape[axis];
    else if (keeps)
      shape[rank++] = 1;
  }
  return rt_result(call, 0, rank, shape);
}

int32_t rt_run_reduction(rt_call *call, const void *context) {
  const rt_reduction *reduction = context;
  const rt_array *x = rt_operand(call, 0);
  uint8_t is_reduced[RT_MAX_RANK];
  const int32_t status = rt_axes(call, "axis", x->rank, is_reduced);
  if (status) return status;
  const rt_type wide = rt_wide_type(x->type);
  int64_t num_rows, length;
  rt_array *result = reduced_result(call, is_reduced);
  const char *rows = result ? rt_rows(call, 0, wide, is_reduced, &num_rows, &length) : NULL;
  char *totals = rows ? rt_open(call, result, wide) : NULL;
  if (!totals) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < num_rows; ++i) {
    if (wide == RT_T_F64)
      ((double *)totals)[i] = reduction->real((const double *)rows + i * length, length, x->type);
    else
      ((int64_t *)totals)[i] = reduction->integer((const int64_t *)rows + i * length, length, x->type);
  }
  rt_close(result, wide, totals);
  return 0;
}

/* Return whether a number comes before the best so far; NaN comes before all numbers. */
static int is_better(double value, double best, int is_min) {
  if (value != value) return best == best;
  return is_min ? value < best : value > best;
}

static int64_t find_extreme(const char *row, rt_type wide, int64_t length, int is_min, int takes_last) {
  int64_t found = takes_last ? length - 1 : 0;
  for (int64_t step = 1; step < length; ++step) {
    const int64_t i = takes_last ? length - 1 - step : step;
    if (wide == RT_T_F64) {
      const double *reals = (const double *)row;
      if (is_better(reals[i], reals[found], is_min)) found = i;
    } else {
      const int64_t value = key_of(((const int64_t *)row)[i], wide), best = key_of(((const int64_t *)row)[found], wide);
      if (is_min ? value < best : value > best) found = i;
    }
  }
  return found;
}

int32_t rt_run_extreme_index(rt_call *call, const void *context) {
  const rt_array *x = rt_operand(call, 0);
  const int32_t axis = rt_axis(call, "axis", x->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  if (!x->shape[axis]) return rt_reject(call, "axis %d is empty and has no element to find", (int)axis);
  uint8_t is_reduced[RT_MAX_RANK] = {0};
  is_reduced[axis] = 1;
  int64_t num_rows, length;
  const rt_type wide = rt_wide_type(x->type);
  const rt_array *result = reduced_result(call, is_reduced);
  const char *rows = result ? rt_rows(call, 0, wide, is_reduced, &num_rows, &length) : NULL;
  if (!rows) return BYOC_RT_EXECUTION;
  const int takes_last = rt_integer(call, "select_last_index") != 0;
  for (int64_t i = 0; i < num_rows; ++i)
    ((int64_t *)result->data)[i] = find_extreme(rows + (size_t)(i * length) * 8, wide, length, context != NULL,
                                                takes_last);
  return 0;
}

/* Accumulate elements `step` apart; `step` is negative if the accumulation begins at the end. */
#define ACCUMULATE(T)                                                          \
  {                                                                            \
    T total = is_product ? 1 : 0;                                              \
    T *at = (T *)line;                                                         \
    for (int64_t i = 0; i < length; ++i, at += step) {                         \
      const T element = *at, before = total;                                   \
      total = is_product ? total * element : total + element;                  \
      *at = is_exclusive ? before : total;                                     \
    }                                                                          \
    return;                                                                    \
  }

static void accumulate(rt_type wide, char *line, int64_t length, int64_t step, int is_product, int is_exclusive) {
  if (wide == RT_T_F64) ACCUMULATE(double)
  ACCUMULATE(uint64_t)
}

int32_t rt_run_cumulative(rt_call *call, const void *context) {
  const rt_array *x = rt_operand(call, 0);
  const int32_t axis = rt_axis(call, "axis", x->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  const rt_type wide = rt_wide_type(x->type);
  rt_array *result = rt_result(call, 0, x->rank, x->shape);
  rt_array lines;
  if (!result || !rt_describe(&lines, NULL, wide, x->rank, x->shape)) return BYOC_RT_EXECUTION;
  lines.data = rt_open(call, result, wide);
  if (!lines.data) return BYOC_RT_EXECUTION;
  if (!x->count) return 0;
  rt_copy_array(&lines, x);
  int64_t outer, inner;
  rt_split_axis(x, axis, &outer, &inner);
  const int64_t length = x->shape[axis];
  const int is_reverse = rt_integer(call, "reverse") != 0, is_exclusive = rt_integer(call, "exclusive") != 0;
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t k = 0; k < inner; ++k) {
      const int64_t first = (i * length + (is_reverse ? length - 1 : 0)) * inner + k;
      accumulate(wide, lines.data + (size_t)first * 8, length, is_reverse ? -inner : inner, context != NULL,
                 is_exclusive);
    }
  }
  rt_close(result, wide, lines.data);
  return 0;
}
