/* Kernels and functions of elementwise ops of one operand. */
#ifndef BYOC_RT_KERNEL_UNARY_H_
#define BYOC_RT_KERNEL_UNARY_H_

#include "kernel_elementwise.h"

extern const rt_functions rt_negative, rt_absolute, rt_sign, rt_floor, rt_ceil, rt_rint, rt_sqrt, rt_reciprocal;
extern const rt_functions rt_exp, rt_log, rt_sin, rt_cos, rt_tan, rt_asin, rt_acos, rt_atan;
extern const rt_functions rt_sinh, rt_cosh, rt_tanh, rt_asinh, rt_acosh, rt_atanh, rt_erf;
extern const rt_functions rt_logical_not, rt_bitwise_not, rt_isnan, rt_relu;

int32_t rt_run_isinf(rt_call *call, const void *context);
int32_t rt_run_clip(rt_call *call, const void *context);
int32_t rt_run_leaky_relu(rt_call *call, const void *context);

/* Activations computed in float64 and rounded once. rt_run_activation passes the attributes as parameters, in the order
 * of the table. */
extern const rt_functions rt_sigmoid, rt_softplus, rt_softsign, rt_elu, rt_selu, rt_celu, rt_hard_sigmoid;
extern const rt_functions rt_hard_swish, rt_swish, rt_mish, rt_thresholded_relu, rt_shrink;
int32_t rt_run_activation(rt_call *call, const void *context);
int32_t rt_run_gelu(rt_call *call, const void *context);

/* Kernels of `where`, `cast` and `bitcast`. */
int32_t rt_run_where(rt_call *call, const void *context);
int32_t rt_run_cast(rt_call *call, const void *context);
int32_t rt_run_bitcast(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_UNARY_H_ */
