/* Integer arithmetic on sizes, rounded towards negative infinity as in Python. Division by 0 returns BYOC_NO_SIZE. No
 * axis has this size, and the value leaves room for sums and small multiples, so the check of the tensor fails. */
#ifndef BYOC_DIM_SIZES_H_
#define BYOC_DIM_SIZES_H_

#if !defined(BYOC_CUDA_H_) && !defined(BYOC_CL_H_)
#include <stdint.h>
#endif

#define BYOC_NO_SIZE (1 - (INT64_C(1) << 40))
static inline int64_t byoc_floordiv(int64_t a, int64_t b) {
  return b == 0 ? BYOC_NO_SIZE : a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}
static inline int64_t byoc_mod(int64_t a, int64_t b) { return b == 0 ? BYOC_NO_SIZE : a - byoc_floordiv(a, b) * b; }
static inline int64_t byoc_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t byoc_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t byoc_broadcast(int64_t a, int64_t b) { return a == 1 ? b : a; }

#endif /* BYOC_DIM_SIZES_H_ */
