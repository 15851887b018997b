#include "kernel_linear.h"

#include <string.h>

#include "kernel_arithmetic.h"

#define MULTIPLY(T)                                                       \
  {                                                                       \
    const T *a = (const T *)left;                                         \
    T *row = (T *)sum;                                                    \
    for (int64_t i = 0; i < m; ++i, row += n) {                           \
      const T *b = (const T *)right;                                      \
      for (int64_t p = 0; p < k; ++p, ++a, b += n) {                      \
        const T factor = *a;                                              \
        for (int64_t j = 0; j < n; ++j) row[j] = row[j] + factor * b[j]; \
      }                                                                   \
    }                                                                     \
    return;                                                               \
  }

void rt_multiply_matrices(rt_type type, const char *left, const char *right, char *sum, int64_t m, int64_t k,
                          int64_t n) {
  if (type == RT_T_F32) MULTIPLY(float)
  if (type == RT_T_F64) MULTIPLY(double)
  MULTIPLY(uint64_t)
}

/* Return the offset of a matrix in a stack, by the number of a result matrix; stacks of one matrix repeat. */
static int64_t matrix_offset(const rt_array *array, int64_t number, int32_t rank, const int64_t *shape) {
  int64_t offset = 0;
  const int32_t first = rank - (array->rank - 2);
  for (int32_t axis = rank - 1; axis >= 0; --axis) {
    const int64_t index = number % shape[axis];
    number /= shape[axis];
    if (axis >= first && array->shape[axis - first] != 1) offset += index * array->strides[axis - first];
  }
  return offset;
}

/* Describe a vector as a matrix: a row on the left, a column on the right. */
static void as_matrix(rt_array *array, int is_left) {
  if (array->rank > 1) return;
  const int64_t shape[] = {is_left ? 1 : array->shape[0], is_left ? array->shape[0] : 1};
  (void)rt_describe(array, array->data, array->type, 2, shape);
}

int32_t rt_run_matmul(rt_call *call, const void *context) {
  (void)context;
  const rt_type type = rt_working_type(rt_operand(call, 0)->type);
  const rt_array *left = rt_converted(call, 0, type), *right = rt_converted(call, 1, type);
  if (!left || !right) return BYOC_RT_EXECUTION;
  if (!left->rank || !right->rank) return rt_reject(call, "an operand is a scalar");
  rt_array x = *left, y = *right, batch_x, batch_y;
  as_matrix(&x, 1);
  as_matrix(&y, 0);
  const int64_t m = x.shape[x.rank - 2], k = x.shape[x.rank - 1], n = y.shape[y.rank - 1];
  if (y.shape[y.rank - 2] != k)
    return rt_reject(call, "the inner sizes differ; got %lld and %lld", (long long)k,
                     (long long)y.shape[y.rank - 2]);
  int64_t shape[RT_MAX_RANK + 2];
  int32_t rank;
  batch_x = x;
  batch_y = y;
  batch_x.rank -= 2;
  batch_y.rank -= 2;
  const rt_array *const batches[] = {&batch_x, &batch_y};
  const int32_t status = rt_broadcast_shape(call, batches, 2, &rank, shape);
  if (status) return status;
  const int64_t count = rt_num_elements(rank, shape);
  int32_t result_rank = rank;
  if (left->rank > 1) shape[result_rank++] = m;
  if (right->rank > 1) shape[result_rank++] = n;
  rt_array *result = rt_result(call, 0, result_rank, shape);
  char *sums = result ? rt_open(call, result, type) : NULL;
  if (!sums) return BYOC_RT_EXECUTION;
  const int64_t nbytes = rt_type_nbytes(type);
  memset(sums, 0, (size_t)(result->count * nbytes));
  for (int64_t i = 0; i < count && result->count && k; ++i)
    rt_multiply_matrices(type, x.data + matrix_offset(&x, i, rank, shape), y.data + matrix_offset(&y, i, rank, shape),
                         sums + i * m * n * nbytes, m, k, n);
  rt_close(result, type, sums);
  return 0;
}

int32_t rt_run_dense(rt_call *call, const void *context) {
  (void)context;
  const rt_array *operand = rt_operand(call, 0), *weight = rt_operand(call, 1);
  const rt_type type = rt_working_type(operand->type);
  if (!operand->rank || weight->rank != 2 || weight->shape[1] != operand->shape[operand->rank - 1])
    return rt_reject(call, "the weight does not fit the operand");
  const rt_array *x = rt_converted(call, 0, type);
  const int64_t k = weight->shape[1], n = weight->shape[0];
  const uint8_t is_last[RT_MAX_RANK] = {1, 0};
  int64_t num_rows, length, shape[RT_MAX_RANK];
  const char *columns = rt_rows(call, 1, type, is_last, &num_rows, &length); /* transposed */
  if (!x || !columns) return BYOC_RT_EXECUTION;
  memcpy(shape, x->shape, sizeof shape);
  shape[x->rank - 1] = n;
  rt_array *result = rt_result(call, 0, x->rank, shape);
  char *sums = result ? rt_open(call, result, type) : NULL;
  if (!sums) return BYOC_RT_EXECUTION;
  memset(sums, 0, (size_t)(result->count * rt_type_nbytes(type)));
  if (result->count && k) rt_multiply_matrices(type, x->data, columns, sums, result->count / n, k, n);
  rt_close(result, type, sums);
  return 0;
}

int32_t rt_run_bias_add(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0);
  const int32_t axis = rt_axis(call, "axis", x->rank);
  if (axis < 0) return BYOC_RT_EXECUTION;
  rt_array bias = *rt_operand(call, 1);
  const int32_t status = rt_check_shape(call, "bias", &bias, 1, &x->shape[axis]);
  if (status) return status;
  for (int32_t i = axis + 1; i < x->rank; ++i) { /* (C,) to (C, 1, ...) */
    bias.shape[bias.rank] = 1;
    bias.strides[bias.rank++] = 0;
  }
  const rt_array *const operands[] = {x, &bias};
  return rt_apply_to(call, &rt_add, operands, 2, NULL);
}
