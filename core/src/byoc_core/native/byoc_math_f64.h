#ifndef BYOC_MATH_F64_H_
#define BYOC_MATH_F64_H_
#include <math.h>
static inline double byoc_exp_f64(double x) { return exp(x); }
static inline double byoc_expm1_f64(double x) { return expm1(x); }
static inline double byoc_log_f64(double x) { return log(x); }
static inline double byoc_log1p_unit_f64(double x) { return log1p(x); }
static inline double byoc_tanh_f64(double x) { return tanh(x); }
static inline double byoc_erf_f64(double x) { return erf(x); }
static inline double byoc_decay_f64(double x) { return exp(-fabs(x)); }
static inline double byoc_sigmoid_f64(double x) { const double d = exp(-fabs(x)); return (x < 0 ? d : 1.0) / (1.0 + d); }
static inline double byoc_normal_cdf_f64(double x) { return 0.5 * erfc(-0.70710678118654752440 * x); }
#endif
