/* Kernels of attention and rotary embedding, computed in float64 and rounded once. */
#include "kernel_attention.h"

#include <math.h>
#include <string.h>

#include "kernel_elementwise.h"

/* The stages of scores, as numbers of the attribute `scores`. */
enum { PRODUCTS, CAPPED, MASKED, WEIGHTS };

/* The operands of a call as compact float64, and the sizes: heads of queries, groups of heads of keys. */
typedef struct {
  const double *query, *key, *value;
  rt_array mask; /* strides of 0 along repeated axes; NULL data if there is none */
  int64_t batch, heads, groups, steps, length, size, value_size, offset;
  double scale, softcap;
  int is_causal, zero_unseen;
} attention;

static int32_t read_operands(rt_call *call, attention *a) {
  const rt_array *q = rt_converted(call, 0, RT_T_F64), *k = rt_converted(call, 1, RT_T_F64);
  const rt_array *v = rt_converted(call, 2, RT_T_F64);
  if (!q || !k || !v) return BYOC_RT_EXECUTION;
  if (q->rank != 4 || k->rank != 4 || v->rank != 4) return rt_reject(call, "an operand has another rank than 4");
  const int64_t key_shape[] = {q->shape[0], k->shape[1], k->shape[2], q->shape[3]};
  const int64_t value_shape[] = {q->shape[0], k->shape[1], k->shape[2], v->shape[3]};
  int32_t status = rt_check_shape(call, "key", k, 4, key_shape);
  if (!status) status = rt_check_shape(call, "value", v, 4, value_shape);
  if (status) return status;
  if (!k->shape[1] || q->shape[1] % k->shape[1])
    return rt_reject(call, "the heads are not divisible by the heads of operand `key`; got %lld",
                     (long long)q->shape[1]);
  const rt_attr *scale = rt_attribute(call, "scale");
  *a = (attention){.query = (const double *)q->data,
                   .key = (const double *)k->data,
                   .value = (const double *)v->data,
                   .batch = q->shape[0],
                   .heads = q->shape[1],
                   .groups = k->shape[1],
                   .steps = q->shape[2],
                   .length = k->shape[2],
                   .size = q->shape[3],
                   .value_size = v->shape[3],
                   .offset = rt_integer(call, "offset"),
                   .softcap = rt_real(call, "softcap"),
                   .is_causal = rt_integer(call, "causal") != 0,
                   .zero_unseen = rt_integer(call, "zero_unseen") != 0};
  a->scale = scale->is_none ? 1 / sqrt((double)(a->size > 1 ? a->size : 1)) : scale->real;
  if (rt_num_operands(call) == 3) return 0;
  const rt_array *mask = rt_converted(call, 3, RT_T_F64);
  if (!mask) return BYOC_RT_EXECUTION;
  const int64_t shape[] = {a->batch, a->heads, a->steps, a->length};
  int fits = mask->rank <= 4 && rt_num_operands(call) == 4;
  for (int32_t axis = 0; axis < mask->rank && fits; ++axis)
    fits = mask->shape[axis] == 1 || mask->shape[axis] == shape[4 - mask->rank + axis];
  if (!fits) return rt_reject(call, "operand `mask` does not broadcast to the scores");
  a->mask = *mask;
  rt_broadcast_strides(mask, 4, shape, a->mask.strides);
  return 0;
}

/* Compute the scores of a step up to a stage; `at` is the batch, the head and the step. */
static void compute_scores(const attention *a, const int64_t *at, int64_t stage, double *scores) {
  const int64_t head = at[1] / (a->heads / a->groups);
  const double *query = a->query + ((at[0] * a->heads + at[1]) * a->steps + at[2]) * a->size;
  const double *keys = a->key + (at[0] * a->groups + head) * a->length * a->size;
  const char *mask = a->mask.data;
  for (int32_t axis = 0; axis < 3 && mask; ++axis) mask += at[axis] * a->mask.strides[axis];
  for (int64_t t = 0; t < a->length; ++t) {
    double score = 0;
    for (int64_t i = 0; i < a->size; ++i) score += query[i] * keys[t * a->size + i];
    score *= a->scale;
    if (stage >= CAPPED && a->softcap != 0) score = tanh(score / a->softcap) * a->softcap;
    if (stage >= MASKED && mask) score += *(const double *)(mask + t * a->mask.strides[3]);
    if (stage >= MASKED && a->is_causal && t - at[2] > a->offset) score = -INFINITY;
    scores[t] = score;
  }
  if (stage < WEIGHTS) return;
  double top = -INFINITY, total = 0;
  for (int64_t t = 0; t < a->length; ++t) top = top >= scores[t] || top != top ? top : scores[t];
  const int is_unseen = a->zero_unseen && top == -INFINITY;
  for (int64_t t = 0; t < a->length; ++t) {
    scores[t] = exp(scores[t] - (is_unseen ? 0 : top));
    total += scores[t];
  }
  for (int64_t t = 0; t < a->length; ++t) scores[t] /= is_unseen ? 1 : total;
}

/* Add the values weighed by the scores of a step. */
static void weigh_values(const attention *a, const int64_t *at, const double *weights, double *target) {
  const int64_t head = at[1] / (a->heads / a->groups);
  const double *values = a->value + (at[0] * a->groups + head) * a->length * a->value_size;
  for (int64_t i = 0; i < a->value_size; ++i) target[i] = 0;
  for (int64_t t = 0; t < a->length; ++t)
    for (int64_t i = 0; i < a->value_size; ++i) target[i] += weights[t] * values[t * a->value_size + i];
}

int32_t rt_run_attention(rt_call *call, const void *context) {
  (void)context;
  attention a;
  const int32_t status = read_operands(call, &a);
  if (status) return status;
  const rt_attr *stage = rt_attribute(call, "scores");
  if (rt_num_results(call) != (stage->is_none ? 1 : 2)) return rt_reject(call, "has the wrong number of results");
  const int64_t shape[] = {a.batch, a.heads, a.steps, a.value_size};
  const int64_t score_shape[] = {a.batch, a.heads, a.steps, a.length};
  rt_array *result = rt_result(call, 0, 4, shape), *stages = NULL;
  double *values = result ? (double *)rt_open(call, result, RT_T_F64) : NULL, *kept = NULL;
  double *scores = values ? rt_scratch(call, a.length, sizeof *scores) : NULL;
  if (!scores) return BYOC_RT_EXECUTION;
  if (!stage->is_none) {
    stages = rt_result(call, 1, 4, score_shape);
    kept = stages ? (double *)rt_open(call, stages, RT_T_F64) : NULL;
    if (!kept) return BYOC_RT_EXECUTION;
  }
  if (!a.batch || !a.heads || !a.steps) return 0;
  int64_t at[3], step = 0;
  for (at[0] = 0; at[0] < a.batch; ++at[0])
    for (at[1] = 0; at[1] < a.heads; ++at[1])
      for (at[2] = 0; at[2] < a.steps; ++at[2], ++step) {
        if (kept) compute_scores(&a, at, stage->integer, kept + step * a.length);
        compute_scores(&a, at, WEIGHTS, scores);
        weigh_values(&a, at, scores, values + step * a.value_size);
      }
  rt_close(result, RT_T_F64, (const char *)values);
  if (kept) rt_close(stages, RT_T_F64, (const char *)kept);
  return 0;
}

int32_t rt_run_rotary_embedding(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_converted(call, 0, RT_T_F64), *cos = rt_converted(call, 1, RT_T_F64);
  const rt_array *sin = rt_converted(call, 2, RT_T_F64);
  if (!x || !cos || !sin) return BYOC_RT_EXECUTION;
  if (x->rank != 4 || cos->rank != 3) return rt_reject(call, "an operand has the wrong rank");
  const int64_t half = cos->shape[2], shape[] = {x->shape[0], x->shape[2], half};
  int32_t status = rt_check_shape(call, "cos", cos, 3, shape);
  if (!status) status = rt_check_shape(call, "sin", sin, 3, shape);
  if (status) return status;
  if (half > x->shape[3] / 2)
    return rt_reject(call, "operand `cos` rotates more elements than axis 3 of operand `x` holds");
  rt_array *result = rt_result(call, 0, 4, x->shape);
  double *turned = result ? (double *)rt_open(call, result, RT_T_F64) : NULL;
  if (!turned) return BYOC_RT_EXECUTION;
  if (!x->count) return 0;
  memcpy(turned, x->data, (size_t)x->count * sizeof *turned);
  const int is_interleaved = rt_integer(call, "interleaved") != 0;
  const int64_t size = x->shape[3], steps = x->shape[2], heads = x->shape[1];
  for (int64_t row = 0; row < x->count / size; ++row) {
    const int64_t angle = (row / steps / heads * steps + row % steps) * half;
    for (int64_t i = 0; i < half; ++i) {
      double *left = turned + row * size + (is_interleaved ? 2 * i : i);
      double *right = turned + row * size + (is_interleaved ? 2 * i + 1 : half + i);
      const double across = ((const double *)cos->data)[angle + i], along = ((const double *)sin->data)[angle + i];
      const double first = across * *left - along * *right, second = along * *left + across * *right;
      *left = first;
      *right = second;
    }
  }
  rt_close(result, RT_T_F64, (const char *)turned);
  return 0;
}
