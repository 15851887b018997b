#include "kernel_quantize.h"

#include <math.h>

/* The parameters of each element: a scale and a zero point for all, for each index of an axis, or for each block. */
typedef struct {
  const double *scale;
  const int64_t *zero;
  int64_t size, inner, block; /* of the axis; elements behind it; indices of a block */
  int64_t num_blocks;         /* along the axis; 0: a single parameter */
  int has_rows;               /* whether positions before and behind the axis have their own parameters */
} parameters;

static int64_t parameter_of(const parameters *p, int64_t element) {
  if (!p->num_blocks) return 0;
  const int64_t block = element / p->inner % p->size / p->block;
  if (!p->has_rows) return block;
  return (element / p->inner / p->size * p->num_blocks + block) * p->inner + element % p->inner;
}

static int32_t read_parameters(rt_call *call, parameters *p) {
  const rt_array *x = rt_operand(call, 0), *scale = rt_converted(call, 1, RT_T_F64);
  const rt_array *zero = rt_converted(call, 2, RT_T_I64); /* the bits of uint64 */
  if (!scale || !zero) return BYOC_RT_EXECUTION;
  *p = (parameters){.scale = (const double *)scale->data, .zero = (const int64_t *)zero->data};
  if (!scale->rank) return rt_check_shape(call, "zero_point", zero, 0, NULL);
  const int32_t axis = rt_axis(call, "axis", x->rank);
  const int64_t block = rt_integer(call, "block_size");
  if (axis < 0) return BYOC_RT_EXECUTION;
  if (block < 0) return rt_reject(call, "attribute `block_size` is negative");
  int64_t outer, shape[RT_MAX_RANK];
  for (int32_t i = 0; i < x->rank; ++i) shape[i] = x->shape[i];
  p->size = x->shape[axis];
  p->block = block ? block : 1;
  p->num_blocks = p->size / p->block + (p->size % p->block != 0);
  p->has_rows = block != 0;
  shape[axis] = p->num_blocks;
  rt_split_axis(x, axis, &outer, &p->inner);
  int32_t status = rt_check_shape(call, "scale", scale, block ? x->rank : 1, block ? shape : &p->size);
  if (!status) status = rt_check_shape(call, "zero_point", zero, block ? x->rank : 1, block ? shape : &p->size);
  return status;
}

int32_t rt_run_quantize(rt_call *call, const void *context) {
  (void)context;
  parameters p;
  const rt_type type = rt_result_type(call, 0), work = rt_working_type(rt_operand(call, 0)->type);
  if (!rt_type_in(type, RT_QUANTISED))
    return rt_reject(call, "has no kernel for %s in this runtime", rt_type_name(type));
  const int32_t status = read_parameters(call, &p);
  if (status) return status;
  const rt_array *x = rt_converted(call, 0, RT_T_F64);
  rt_array *result = x ? rt_result(call, 0, x->rank, x->shape) : NULL;
  int64_t *numbers = result ? (int64_t *)rt_open(call, result, RT_T_I64) : NULL;
  if (!numbers) return BYOC_RT_EXECUTION;
  const double low = (double)rt_least_integer(type), high = (double)rt_greatest_integer(type);
  const int is_float = work == RT_T_F32;
  for (int64_t i = 0; i < x->count; ++i) {
    const int64_t parameter = parameter_of(&p, i);
    double value = ((const double *)x->data)[i] / p.scale[parameter];
    if (is_float) value = (float)value; /* each step is rounded to float32 for types of up to 32 bits */
    value = rint(value) + (double)p.zero[parameter];
    if (is_float) value = (float)value;
    if (value != value) value = 0;
    numbers[i] = (int64_t)(value < low ? low : value > high ? high : value);
  }
  rt_close(result, RT_T_I64, (const char *)numbers);
  return 0;
}

int32_t rt_run_dequantize(rt_call *call, const void *context) {
  (void)context;
  parameters p;
  const rt_type work = rt_working_type(rt_result_type(call, 0));
  const int32_t status = read_parameters(call, &p);
  if (status) return status;
  const rt_array *x = rt_converted(call, 0, RT_T_I64);
  rt_array *result = x ? rt_result(call, 0, x->rank, x->shape) : NULL;
  double *numbers = result ? (double *)rt_open(call, result, RT_T_F64) : NULL;
  if (!numbers) return BYOC_RT_EXECUTION;
  for (int64_t i = 0; i < x->count; ++i) {
    const int64_t parameter = parameter_of(&p, i);
    const int64_t steps = (int64_t)(((const uint64_t *)x->data)[i] - (uint64_t)p.zero[parameter]);
    if (work == RT_T_F32)
      numbers[i] = (float)((float)steps * (float)p.scale[parameter]);
    else
      numbers[i] = (double)steps * p.scale[parameter];
  }
  rt_close(result, RT_T_F64, (const char *)numbers);
  return 0;
}
