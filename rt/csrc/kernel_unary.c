#include "kernel_unary.h"

#include <math.h>
#include <string.h>

#include "kernel_loops.h"

#define SIZES(F, name, ...)           \
  F(name##_1, uint8_t, __VA_ARGS__)  \
  F(name##_2, uint16_t, __VA_ARGS__) \
  F(name##_4, uint32_t, __VA_ARGS__) \
  F(name##_8, uint64_t, __VA_ARGS__)
#define SIGNED(F, name, ...)          \
  F(name##_i1, int8_t, __VA_ARGS__)  \
  F(name##_i2, int16_t, __VA_ARGS__) \
  F(name##_i4, int32_t, __VA_ARGS__) \
  F(name##_i8, int64_t, __VA_ARGS__)
#define REALS(F, name, ...)        \
  F(name##_f, float, __VA_ARGS__) \
  F(name##_d, double, __VA_ARGS__)
#define SAME(name, T, expression) RT_UNARY(name, T, T, expression)
#define UNSIGNED_TABLE(name)                                          \
  [RT_T_U8] = RT_LOOPS(name##_1), [RT_T_U16] = RT_LOOPS(name##_2),    \
  [RT_T_U32] = RT_LOOPS(name##_4), [RT_T_U64] = RT_LOOPS(name##_8)
#define SIGNED_TABLE(name)                                            \
  [RT_T_I8] = RT_LOOPS(name##_i1), [RT_T_I16] = RT_LOOPS(name##_i2),  \
  [RT_T_I32] = RT_LOOPS(name##_i4), [RT_T_I64] = RT_LOOPS(name##_i8)
#define REAL_TABLE(name) [RT_T_F32] = RT_LOOPS(name##_f), [RT_T_F64] = RT_LOOPS(name##_d)

/* ---- Exact functions --------------------------------------------------------------------------------------------- */

SIGNED(SAME, negative, -(uint64_t)x)
REALS(SAME, negative, -x)
const rt_functions rt_negative = {{SIGNED_TABLE(negative), REAL_TABLE(negative)}};

SIGNED(SAME, absolute, x < 0 ? -(uint64_t)x : (uint64_t)x)
SIZES(SAME, absolute, x)
REALS(SAME, absolute, fabs(x))
const rt_functions rt_absolute = {{SIGNED_TABLE(absolute), UNSIGNED_TABLE(absolute), REAL_TABLE(absolute)}};

SIGNED(SAME, sign, (x > 0) - (x < 0))
SIZES(SAME, sign, x != 0)
REALS(SAME, sign, x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x)
const rt_functions rt_sign = {{SIGNED_TABLE(sign), UNSIGNED_TABLE(sign), REAL_TABLE(sign)}};

REALS(SAME, floor, floor(x))
const rt_functions rt_floor = {{REAL_TABLE(floor)}};
REALS(SAME, ceil, ceil(x))
const rt_functions rt_ceil = {{REAL_TABLE(ceil)}};
REALS(SAME, rint, rint(x))
const rt_functions rt_rint = {{REAL_TABLE(rint)}};
REALS(SAME, sqrt, sqrt(x))
const rt_functions rt_sqrt = {{REAL_TABLE(sqrt)}};
REALS(SAME, reciprocal, 1 / x)
const rt_functions rt_reciprocal = {{REAL_TABLE(reciprocal)}};

RT_UNARY(logical_not_1, uint8_t, uint8_t, !x)
const rt_functions rt_logical_not = {{[RT_T_BOOL] = RT_LOOPS(logical_not_1)}};
SIZES(SAME, bitwise_not, ~x)
const rt_functions rt_bitwise_not = {{[RT_T_I8] = RT_LOOPS(bitwise_not_1),
                                      [RT_T_I16] = RT_LOOPS(bitwise_not_2),
                                      [RT_T_I32] = RT_LOOPS(bitwise_not_4),
                                      [RT_T_I64] = RT_LOOPS(bitwise_not_8),
                                      UNSIGNED_TABLE(bitwise_not)}};

#define TEST(name, T, expression) RT_UNARY(name, T, uint8_t, expression)
REALS(TEST, isnan, x != x)
const rt_functions rt_isnan = {{REAL_TABLE(isnan)}};

/* p: whether minus infinity counts, whether plus infinity counts. */
REALS(TEST, isinf, x == -INFINITY ? p[0] != 0 : x == INFINITY && p[1] != 0)
static const rt_functions isinf_functions = {{REAL_TABLE(isinf)}};

int32_t rt_run_isinf(rt_call *call, const void *context) {
  (void)context;
  const double p[] = {(double)rt_integer(call, "detect_negative"), (double)rt_integer(call, "detect_positive")};
  return rt_apply(call, &isinf_functions, 1, p);
}

SIGNED(SAME, relu, x > 0 ? x : 0)
SIZES(SAME, relu, x)
REALS(SAME, relu, x > 0 || x != x ? x : 0)
const rt_functions rt_relu = {{SIGNED_TABLE(relu), UNSIGNED_TABLE(relu), REAL_TABLE(relu)}};

/* p: the limits; NaN for an open end. */
#define CLIP(name, T, ...)                                                          \
  RT_UNARY(name, T, T,                                                              \
           (x < (T)p[0] ? (T)p[0] : x) > (T)p[1] ? (T)p[1] : x < (T)p[0] ? (T)p[0] : x)
REALS(CLIP, clip, )
static const rt_functions clip_functions = {{REAL_TABLE(clip)}};

static double limit_of(const rt_call *call, const char *name, rt_type type) {
  const rt_attr *attr = rt_attribute(call, name);
  return attr->is_none ? NAN : rt_rounded(type, attr->real);
}

int32_t rt_run_clip(rt_call *call, const void *context) {
  (void)context;
  const rt_type type = rt_operand(call, 0)->type;
  const double p[] = {limit_of(call, "min", type), limit_of(call, "max", type)};
  return rt_apply(call, &clip_functions, 1, p);
}

REALS(SAME, leaky_relu, x < 0 ? x * p[0] : x)
static const rt_functions leaky_relu_functions = {{REAL_TABLE(leaky_relu)}};

int32_t rt_run_leaky_relu(rt_call *call, const void *context) {
  (void)context;
  const double p[] = {rt_rounded(rt_operand(call, 0)->type, rt_real(call, "alpha"))};
  return rt_apply(call, &leaky_relu_functions, 1, p);
}

/* ---- Functions computed in float64 and rounded once -------------------------------------------------------------- */

#define FUNCTION(name, expression)                    \
  RT_UNARY(name##_d, double, double, expression)      \
  const rt_functions rt_##name = {{[RT_T_F64] = RT_LOOPS(name##_d)}};

FUNCTION(exp, exp(x))
FUNCTION(log, log(x))
FUNCTION(sin, sin(x))
FUNCTION(cos, cos(x))
FUNCTION(tan, tan(x))
FUNCTION(asin, asin(x))
FUNCTION(acos, acos(x))
FUNCTION(atan, atan(x))
FUNCTION(sinh, sinh(x))
FUNCTION(cosh, cosh(x))
FUNCTION(tanh, tanh(x))
FUNCTION(asinh, asinh(x))
FUNCTION(acosh, acosh(x))
FUNCTION(atanh, atanh(x))
FUNCTION(erf, erf(x))

static double logistic(double x) {
  const double decay = exp(-fabs(x));
  return (x >= 0 ? 1 : decay) / (1 + decay);
}

static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

/* Return x * gate; zero for a gate of zero, for infinite x too. */
static double gated(double x, double gate) { return gate == 0 ? 0 : x * gate; }

static double limited(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

FUNCTION(sigmoid, logistic(x))
FUNCTION(softplus, softplus(x))
FUNCTION(softsign, isinf(x) ? copysign(1, x) : x / (1 + fabs(x)))
FUNCTION(elu, x < 0 ? p[0] * expm1(x) : x)
FUNCTION(selu, p[1] * (x < 0 ? p[0] * expm1(x) : x))
FUNCTION(celu, (x > 0 || x != x ? x : 0) + (p[0] * expm1(x / p[0]) > 0 ? 0 : p[0] * expm1(x / p[0])))
FUNCTION(hard_sigmoid, limited(p[0] * x + p[1], 0, 1))
FUNCTION(hard_swish, gated(x, limited(x / 6 + 0.5, 0, 1)))
FUNCTION(swish, gated(x, logistic(p[0] * x)))
FUNCTION(mish, gated(x, tanh(softplus(x))))
FUNCTION(thresholded_relu, x <= p[0] ? 0 : x)
FUNCTION(shrink, x < -p[0] ? x + p[1] : x > p[0] ? x - p[1] : x != x ? x : 0)

int32_t rt_run_activation(rt_call *call, const void *context) {
  static const char *const names[] = {"alpha", "lambd", "beta", "gamma", "bias"};
  double p[2] = {0, 0};
  int32_t count = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (rt_attribute(call, names[i]) && count < 2) p[count++] = rt_real(call, names[i]);
  return rt_apply(call, context, 1, p);
}

/* The limit at minus infinity is zero, where the product would be NaN. */
static double gelu(double x) { return x == -INFINITY ? 0 : x * (0.5 * erfc(-sqrt(0.5) * x)); }

static double tanh_gelu(double x) {
  const double scale = sqrt(2 / 3.14159265358979323846);
  return x == -INFINITY ? 0 : x * logistic(2 * scale * (x + 0.044715 * x * x * x));
}

RT_UNARY(gelu_d, double, double, gelu(x))
RT_UNARY(tanh_gelu_d, double, double, tanh_gelu(x))
static const rt_functions gelu_functions = {{[RT_T_F64] = RT_LOOPS(gelu_d)}};
static const rt_functions tanh_gelu_functions = {{[RT_T_F64] = RT_LOOPS(tanh_gelu_d)}};

int32_t rt_run_gelu(rt_call *call, const void *context) {
  (void)context;
  return rt_apply(call, rt_integer(call, "approximate") ? &tanh_gelu_functions : &gelu_functions, 1, NULL);
}

/* ---- Choice and conversion --------------------------------------------------------------------------------------- */

/* Choose between elements without branches: loops over compact elements have vectors. */
#define CHOOSE(T)                                                                                        \
  static void choose_##T(char *const *data, const int64_t *strides, int64_t count) {                    \
    const int64_t nbytes = sizeof(T);                                                                   \
    const uint8_t *restrict condition = (const uint8_t *)data[0];                                       \
    if (strides[0] == 1 && strides[1] == nbytes && strides[2] == nbytes && strides[3] == nbytes) {      \
      const T *restrict x = (const T *)data[1], *restrict y = (const T *)data[2];                       \
      T *restrict target = (T *)data[3];                                                                \
      for (int64_t i = 0; i < count; ++i) {                                                             \
        const T mask = (T)-(T)(condition[i] != 0);                                                      \
        target[i] = (T)((x[i] & mask) | (y[i] & (T)~mask));                                             \
      }                                                                                                 \
      return;                                                                                           \
    }                                                                                                   \
    for (int64_t i = 0; i < count; ++i) {                                                               \
      const char *chosen = condition[i * strides[0]] ? data[1] + i * strides[1] : data[2] + i * strides[2]; \
      *(T *)(data[3] + i * strides[3]) = *(const T *)chosen;                                            \
    }                                                                                                   \
  }
CHOOSE(uint8_t)
CHOOSE(uint16_t)
CHOOSE(uint32_t)

/* Choose between elements of `nbytes` bytes, aligned to less than their size (complex64). */
static void choose_long(char *const *data, const int64_t *strides, int64_t count, int64_t nbytes) {
  for (int64_t i = 0; i < count; ++i) {
    const char *chosen = data[0][i * strides[0]] ? data[1] + i * strides[1] : data[2] + i * strides[2];
    memcpy(data[3] + i * strides[3], chosen, (size_t)nbytes);
  }
}

static void choose(const void *context, char *const *data, const int64_t *strides, int64_t count) {
  const int64_t nbytes = *(const int64_t *)context;
  switch (nbytes) {
    case 1:
      choose_uint8_t(data, strides, count);
      break;
    case 2:
      choose_uint16_t(data, strides, count);
      break;
    case 4:
      choose_uint32_t(data, strides, count);
      break;
    case 8:
      choose_long(data, strides, count, 8);
      break;
    default:
      choose_long(data, strides, count, 16);
  }
}

int32_t rt_run_where(rt_call *call, const void *context) {
  (void)context;
  int64_t shape[RT_MAX_RANK], strides[3][RT_MAX_RANK];
  int32_t rank;
  const rt_array *const operands[] = {rt_operand(call, 0), rt_operand(call, 1), rt_operand(call, 2)};
  const int32_t status = rt_broadcast_shape(call, operands, 3, &rank, shape);
  if (status) return status;
  const rt_array *result = rt_result(call, 0, rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  char *data[4];
  for (int32_t k = 0; k < 3; ++k) {
    data[k] = operands[k]->data;
    rt_broadcast_strides(operands[k], rank, shape, strides[k]);
  }
  data[3] = result->data;
  const int64_t *const all_strides[] = {strides[0], strides[1], strides[2], result->strides};
  const int64_t nbytes = rt_type_nbytes(result->type);
  rt_walk(4, data, all_strides, rank, shape, choose, &nbytes);
  return 0;
}

int32_t rt_run_cast(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_operand(call, 0), *result = rt_result(call, 0, x->rank, x->shape);
  if (!result) return BYOC_RT_EXECUTION;
  rt_copy_array(result, x);
  return 0;
}

int32_t rt_run_bitcast(rt_call *call, const void *context) {
  (void)context;
  rt_array bits = *rt_operand(call, 0);
  const rt_type type = rt_result_type(call, 0);
  if (rt_dtype_of(bits.type).bits != rt_dtype_of(type).bits)
    return rt_reject(call, "the elements have another number of bits than %s", rt_type_name(type));
  const rt_array *result = rt_result(call, 0, bits.rank, bits.shape);
  if (!result) return BYOC_RT_EXECUTION;
  bits.type = type;
  rt_copy_array(result, &bits);
  return 0;
}
