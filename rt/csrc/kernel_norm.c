#include "kernel_norm.h"

#include <math.h>

/* ---- Softmax ----------------------------------------------------------------------------------------------------- */

static double largest_of(const double *row, int64_t length) {
  double top = -INFINITY;
  for (int64_t i = 0; i < length; ++i) top = top >= row[i] || top != top ? top : row[i];
  return top;
}

static void softmax_row(double *row, int64_t length, int is_log) {
  const double top = largest_of(row, length);
  double total = 0;
  for (int64_t i = 0; i < length; ++i) {
    row[i] -= top;
    total += exp(row[i]);
  }
  if (is_log) {
    const double shift = log(total);
    for (int64_t i = 0; i < length; ++i) row[i] -= shift;
  } else {
    for (int64_t i = 0; i < length; ++i) row[i] = exp(row[i]) / total;
  }
}

/* Sum a row in steps rounded to a type: halves are added to each other down to eight numbers, which are added in
 * order. */
static double sum_of_halves(double *row, int64_t count, rt_type type) {
  while (count > 8) {
    const int64_t half = (count + 1) / 2;
    for (int64_t i = 0; i < count - half; ++i) row[i] = rt_rounded(type, row[i] + row[half + i]);
    count = half;
  }
  double total = count ? row[0] : 0;
  for (int64_t i = 1; i < count; ++i) total = rt_rounded(type, total + row[i]);
  return total;
}

/* Each step is rounded to the type. `buffer` is memory for a row. */
static void stepwise_softmax_row(double *row, double *buffer, int64_t length, rt_type type, int zero_unseen) {
  const double top = largest_of(row, length);
  const int is_unseen = zero_unseen && top == -INFINITY;
  const int is_exact = type == RT_T_F32 || type == RT_T_F64 || type == RT_T_F16;
  double total = 0;
  for (int64_t i = 0; i < length; ++i) {
    row[i] = rt_rounded(type, exp(rt_rounded(type, row[i] - (is_unseen ? 0 : top))));
    buffer[i] = row[i];
    total += row[i];
  }
  if (!is_exact) total = sum_of_halves(buffer, length, type);
  total = rt_rounded(type, total);
  for (int64_t i = 0; i < length; ++i) row[i] /= is_unseen ? 1 : total;
}

static int32_t mark_axis(rt_call *call, uint8_t *is_last) {
  const int32_t axis = rt_axis(call, "axis", rt_operand(call, 0)->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  is_last[axis] = 1;
  return 0;
}

int32_t rt_run_softmax(rt_call *call, const void *context) {
  uint8_t is_last[RT_MAX_RANK] = {0};
  const rt_array *x = rt_operand(call, 0);
  if (mark_axis(call, is_last)) return BYOC_RT_EXECUTION;
  int64_t num_rows, length;
  const rt_array *result = rt_result(call, 0, x->rank, x->shape);
  double *rows = result ? rt_take_rows(call, 0, is_last, &num_rows, &length) : NULL;
  if (!rows) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < num_rows; ++i) softmax_row(rows + i * length, length, context != NULL);
  rt_put_rows(result, is_last, rows);
  return 0;
}

int32_t rt_run_stepwise_softmax(rt_call *call, const void *context) {
  (void)context;
  uint8_t is_last[RT_MAX_RANK] = {0};
  const rt_array *x = rt_operand(call, 0);
  if (mark_axis(call, is_last)) return BYOC_RT_EXECUTION;
  int64_t num_rows, length;
  const rt_array *result = rt_result(call, 0, x->rank, x->shape);
  double *rows = result ? rt_take_rows(call, 0, is_last, &num_rows, &length) : NULL;
  double *buffer = rows ? rt_scratch(call, length, sizeof *buffer) : NULL;
  if (!buffer) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < num_rows; ++i)
    stepwise_softmax_row(rows + i * length, buffer, length, x->type, rt_integer(call, "zero_unseen") != 0);
  rt_put_rows(result, is_last, rows);
  return 0;
}

/* ---- Statistics -------------------------------------------------------------------------------------------------- */

/* Normalise a row by its mean (0 for RMS norm) and variance. */
static void standardise(double *row, int64_t length, double epsilon, int is_rms) {
  double mean = 0, square = 0;
  for (int64_t i = 0; i < length && !is_rms; ++i) mean += row[i];
  mean /= (double)length;
  for (int64_t i = 0; i < length; ++i) {
    row[i] -= mean;
    square += row[i] * row[i];
  }
  const double deviation = sqrt(square / (double)length + epsilon);
  for (int64_t i = 0; i < length; ++i) row[i] /= deviation;
}

/* Return parameter `index` as float64, checked against a shape. */
static const double *read_parameter(rt_call *call, int32_t index, const char *name, int32_t rank,
                                    const int64_t *shape) {
  const rt_array *array = rt_converted(call, index, RT_T_F64);
  if (!array || rt_check_shape(call, name, array, rank, shape)) return NULL;
  return (const double *)array->data;
}

int32_t rt_run_batch_norm(rt_call *call, const void *context) {
  (void)context;
  static const char *const names[] = {"", "gamma", "beta", "mean", "variance"};
  const rt_array *x = rt_operand(call, 0);
  const int32_t axis = rt_axis(call, "axis", x->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  const double *parameters[5] = {0}, epsilon = rt_real(call, "epsilon");
  for (int32_t k = 1; k < 5; ++k) {
    parameters[k] = read_parameter(call, k, names[k], 1, &x->shape[axis]);
    if (!parameters[k]) return BYOC_RT_EXECUTION;
  }
  uint8_t is_last[RT_MAX_RANK] = {0};
  is_last[axis] = 1;
  int64_t num_rows, length;
  const rt_array *result = rt_result(call, 0, x->rank, x->shape);
  double *rows = result ? rt_take_rows(call, 0, is_last, &num_rows, &length) : NULL;
  double *factors = rows ? rt_scratch(call, length, sizeof *factors) : NULL;
  if (!factors) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < length; ++i) factors[i] = parameters[1][i] / sqrt(parameters[4][i] + epsilon);
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t i = 0; i < length; ++i) {
      double *at = &rows[row * length + i];
      *at = (*at - parameters[3][i]) * factors[i] + parameters[2][i];
    }
  rt_put_rows(result, is_last, rows);
  return 0;
}

int32_t rt_run_layer_norm(rt_call *call, const void *context) {
  const int is_rms = context != NULL;
  const rt_array *x = rt_operand(call, 0);
  uint8_t is_last[RT_MAX_RANK];
  const int32_t status = rt_axes(call, "axes", x->rank, is_last);
  if (status) return status;
  int64_t shape[RT_MAX_RANK], num_rows, length;
  int32_t rank = 0;
  for (int32_t axis = 0; axis < x->rank; ++axis)
    if (is_last[axis]) shape[rank++] = x->shape[axis];
  const double *gamma = read_parameter(call, 1, "gamma", rank, shape);
  const double *beta = gamma && !is_rms ? read_parameter(call, 2, "beta", rank, shape) : NULL;
  if (!gamma || (!beta && !is_rms)) return BYOC_RT_EXECUTION;
  const rt_array *result = rt_result(call, 0, x->rank, x->shape);
  double *rows = result ? rt_take_rows(call, 0, is_last, &num_rows, &length) : NULL;
  if (!rows) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < num_rows; ++i) {
    double *row = rows + i * length;
    standardise(row, length, rt_real(call, "epsilon"), is_rms);
    for (int64_t k = 0; k < length; ++k) row[k] = row[k] * gamma[k] + (is_rms ? 0 : beta[k]);
  }
  rt_put_rows(result, is_last, rows);
  return 0;
}

int32_t rt_run_group_norm(rt_call *call, const void *context) {
  const rt_array *x = rt_operand(call, 0);
  if (x->rank < 2) return rt_reject(call, "the operand has rank %d, expected 2 or more", (int)x->rank);
  const int64_t channels = x->shape[1], groups = context ? channels : rt_integer(call, "groups");
  if (!context && (groups < 1 || channels % groups))
    return rt_reject(call, "the channels (axis 1) are not divisible into %lld groups; got %lld", (long long)groups,
                     (long long)channels);
  const double *gamma = read_parameter(call, 1, "gamma", 1, &channels);
  const double *beta = gamma ? read_parameter(call, 2, "beta", 1, &channels) : NULL;
  const rt_array *result = beta ? rt_result(call, 0, x->rank, x->shape) : NULL;
  const uint8_t is_last[RT_MAX_RANK] = {0};
  int64_t count, one;
  double *elements = result ? rt_take_rows(call, 0, is_last, &count, &one) : NULL;
  if (!elements) return BYOC_RT_EXECUTION;
  if (!x->count) return 0;
  const int64_t num_rows = x->shape[0] * groups, length = x->count / num_rows;
  const int64_t pixels = x->count / (x->shape[0] * channels);
  for (int64_t i = 0; i < num_rows; ++i) standardise(elements + i * length, length, rt_real(call, "epsilon"), 0);
  for (int64_t i = 0; i < x->count; ++i) {
    const int64_t channel = i / pixels % channels;
    elements[i] = elements[i] * gamma[channel] + beta[channel];
  }
  rt_put_rows(result, is_last, elements);
  return 0;
}

int32_t rt_run_lrn(rt_call *call, const void *context) {
  (void)context;
  uint8_t is_last[RT_MAX_RANK] = {0};
  const rt_array *x = rt_operand(call, 0);
  if (mark_axis(call, is_last)) return BYOC_RT_EXECUTION;
  const int64_t size = rt_integer(call, "size");
  if (size < 1) return rt_reject(call, "attribute `size` is too small; got %lld", (long long)size);
  const double alpha = rt_real(call, "alpha") / (double)size, beta = rt_real(call, "beta");
  const double bias = rt_real(call, "bias");
  int64_t num_rows, length;
  const rt_array *result = rt_result(call, 0, x->rank, x->shape);
  double *rows = result ? rt_take_rows(call, 0, is_last, &num_rows, &length) : NULL;
  double *line = rows ? rt_scratch(call, length, sizeof *line) : NULL;
  if (!line) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < num_rows; ++i) {
    double *row = rows + i * length;
    for (int64_t k = 0; k < length; ++k) {
      const int64_t first = k - (size - 1) / 2 > 0 ? k - (size - 1) / 2 : 0;
      const int64_t last = size / 2 < length - 1 - k ? k + size / 2 : length - 1;
      double total = 0;
      for (int64_t j = first; j <= last; ++j) total += row[j] * row[j];
      line[k] = row[k] / pow(bias + alpha * total, beta);
    }
    for (int64_t k = 0; k < length; ++k) row[k] = line[k];
  }
  rt_put_rows(result, is_last, rows);
  return 0;
}
