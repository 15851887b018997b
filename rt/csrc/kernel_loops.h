/* Macros for functions over elements (rt_inner) of one or two operands.
 *
 * RT_UNARY(name, T, R, expression) makes a function from elements `x` of type T to elements of type R; RT_BINARY
 * takes `x` and `y`. The expression sees the parameters of the call as `p`, an array of doubles. Results share no
 * memory with operands. RT_LOOPS(name) names the function in a table (rt_loops): on x86 there is a second function,
 * `name_wide`, whose loop over compact elements has vectors of 32 bytes. */
#ifndef BYOC_RT_KERNEL_LOOPS_H_
#define BYOC_RT_KERNEL_LOOPS_H_

#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define RT_HAS_WIDE_LOOPS
#define RT_LOOPS(name) {name, name##_wide}
#else
#define RT_LOOPS(name) {name, name}
#endif

#define RT_UNARY_COMPACT(T, R, expression)                                         \
  if (strides[0] == (int64_t)sizeof(T) && strides[1] == (int64_t)sizeof(R)) {     \
    const T *restrict compact_source = (const T *)data[0];                        \
    R *restrict compact_target = (R *)data[1];                                    \
    for (int64_t i = 0; i < count; ++i) {                                         \
      const T x = compact_source[i];                                              \
      compact_target[i] = (R)(expression);                                        \
    }                                                                             \
    return;                                                                       \
  }

#define RT_UNARY_ANY(name, T, R, expression)                                                         \
  static void name(const void *context, char *const *data, const int64_t *strides, int64_t count) { \
    const double *p = context;                                                                      \
    (void)p;                                                                                        \
    RT_UNARY_COMPACT(T, R, expression)                                                              \
    const char *source = data[0];                                                                   \
    char *target = data[1];                                                                         \
    for (int64_t i = 0; i < count; ++i, source += strides[0], target += strides[1]) {               \
      const T x = *(const T *)source;                                                               \
      *(R *)target = (R)(expression);                                                               \
    }                                                                                               \
  }

#define RT_BINARY_COMPACT(T, R, expression)                                                                  \
  if (strides[0] == (int64_t)sizeof(T) && strides[1] == strides[0] && strides[2] == (int64_t)sizeof(R)) {   \
    const T *restrict compact_left = (const T *)data[0], *restrict compact_right = (const T *)data[1];      \
    R *restrict compact_target = (R *)data[2];                                                              \
    for (int64_t i = 0; i < count; ++i) {                                                                   \
      const T x = compact_left[i], y = compact_right[i];                                                    \
      compact_target[i] = (R)(expression);                                                                  \
    }                                                                                                       \
    return;                                                                                                 \
  }

#define RT_BINARY_ANY(name, T, R, expression)                                                             \
  static void name(const void *context, char *const *data, const int64_t *strides, int64_t count) {      \
    const double *p = context;                                                                           \
    (void)p;                                                                                             \
    RT_BINARY_COMPACT(T, R, expression)                                                                  \
    const char *left = data[0], *right = data[1];                                                        \
    char *target = data[2];                                                                              \
    for (int64_t i = 0; i < count; ++i, left += strides[0], right += strides[1], target += strides[2]) { \
      const T x = *(const T *)left, y = *(const T *)right;                                               \
      *(R *)target = (R)(expression);                                                                    \
    }                                                                                                    \
  }

#ifdef RT_HAS_WIDE_LOOPS
#define RT_WIDE(name, COMPACT, T, R, expression)                                                             \
  __attribute__((target("avx2"))) static void name##_wide(const void *context, char *const *data,           \
                                                          const int64_t *strides, int64_t count) {          \
    const double *p = context;                                                                              \
    (void)p;                                                                                                \
    COMPACT(T, R, expression)                                                                               \
    name(context, data, strides, count);                                                                    \
  }
#else
#define RT_WIDE(name, COMPACT, T, R, expression)
#endif

#define RT_UNARY(name, T, R, expression) \
  RT_UNARY_ANY(name, T, R, expression)   \
  RT_WIDE(name, RT_UNARY_COMPACT, T, R, expression)

#define RT_BINARY(name, T, R, expression) \
  RT_BINARY_ANY(name, T, R, expression)   \
  RT_WIDE(name, RT_BINARY_COMPACT, T, R, expression)

/* Wrap an expression of uint64 around to a type. */
#define RT_WRAP(T, expression) ((T)(uint64_t)(expression))

#endif /* BYOC_RT_KERNEL_LOOPS_H_ */
