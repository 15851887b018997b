/* Macros for functions over elements (rt_inner) of one or two operands.
 *
 * RT_UNARY(name, T, R, expression) makes a function from elements `x` of type T to elements of type R; RT_BINARY
 * takes `x` and `y`. The expression sees the parameters of the call as `p`, an array of doubles. */
#ifndef BYOC_RT_KERNEL_LOOPS_H_
#define BYOC_RT_KERNEL_LOOPS_H_

#include <stdint.h>

#define RT_UNARY(name, T, R, expression)                                                              \
  static void name(const void *context, char *const *data, const int64_t *strides, int64_t count) {  \
    const double *p = context;                                                                       \
    (void)p;                                                                                         \
    const char *source = data[0];                                                                    \
    char *target = data[1];                                                                          \
    if (strides[0] == (int64_t)sizeof(T) && strides[1] == (int64_t)sizeof(R)) {                      \
      for (int64_t i = 0; i < count; ++i) {                                                          \
        const T x = ((const T *)source)[i];                                                          \
        ((R *)target)[i] = (R)(expression);                                                          \
      }                                                                                              \
      return;                                                                                        \
    }                                                                                                \
    for (int64_t i = 0; i < count; ++i, source += strides[0], target += strides[1]) {                \
      const T x = *(const T *)source;                                                                \
      *(R *)target = (R)(expression);                                                                \
    }                                                                                                \
  }

#define RT_BINARY(name, T, R, expression)                                                                        \
  static void name(const void *context, char *const *data, const int64_t *strides, int64_t count) {             \
    const double *p = context;                                                                                  \
    (void)p;                                                                                                    \
    const char *left = data[0], *right = data[1];                                                               \
    char *target = data[2];                                                                                     \
    if (strides[0] == (int64_t)sizeof(T) && strides[1] == strides[0] && strides[2] == (int64_t)sizeof(R)) {     \
      for (int64_t i = 0; i < count; ++i) {                                                                     \
        const T x = ((const T *)left)[i], y = ((const T *)right)[i];                                            \
        ((R *)target)[i] = (R)(expression);                                                                     \
      }                                                                                                         \
      return;                                                                                                   \
    }                                                                                                           \
    for (int64_t i = 0; i < count; ++i, left += strides[0], right += strides[1], target += strides[2]) {        \
      const T x = *(const T *)left, y = *(const T *)right;                                                      \
      *(R *)target = (R)(expression);                                                                           \
    }                                                                                                           \
  }

/* Wrap an expression of uint64 around to a type. */
#define RT_WRAP(T, expression) ((T)(uint64_t)(expression))

#endif /* BYOC_RT_KERNEL_LOOPS_H_ */
