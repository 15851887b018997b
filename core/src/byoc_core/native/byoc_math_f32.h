#ifndef BYOC_MATH_F32_H_
#define BYOC_MATH_F32_H_
#include <math.h>
static inline float byoc_exp_f32(float x) { return expf(x); }
static inline float byoc_expm1_f32(float x) { return expm1f(x); }
static inline float byoc_log_f32(float x) { return logf(x); }
static inline float byoc_log1p_f32(float x) { return log1pf(x); }
static inline float byoc_tanh_f32(float x) { return tanhf(x); }
static inline float byoc_erf_f32(float x) { return erff(x); }
static inline float byoc_sigmoid_f32(float x) { const float d = expf(-fabsf(x)); return (x < 0 ? d : 1.0f) / (1.0f + d); }
static inline float byoc_normal_cdf_f32(float x) { return 0.5f * erfcf(-0.70710678f * x); }
#endif
