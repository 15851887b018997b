/* Functions of many float32 numbers at once, compiled for several instruction sets. */
#ifndef BYOC_VECTOR_FUNCTIONS_H_
#define BYOC_VECTOR_FUNCTIONS_H_

#include <stdint.h>

/* Compute a function of `count` contiguous numbers, out of place. */
typedef void (*byoc_vector_function)(const float *restrict x, float *restrict y, int64_t count);

/* Elementwise functions; and functions of a row of fewer than 2^31 numbers: LOG_SOFTMAX is x - log(sum(exp(x))), with
 * exponentials below 2^-126.5 of the largest counted as 0. Infinities, NaN and subnormal numbers are right; errors are
 * listed in byoc_math_f32.h and byoc_activations.h. The stepwise softmax of a row of halves is defined in
 * byoc_stepwise_softmax.h. MULTIPLY_ADDS measures the processor: `count` rounds of multiply-adds of the
 * registers with x[0] and x[1]; y[0] is set to the FLOPs of a round, y[1] to a number without meaning. */
enum {
  BYOC_EXP,
  BYOC_LOG,
  BYOC_SOFTPLUS,
  BYOC_ELU,
  BYOC_LOG_SOFTMAX,
  BYOC_STEPWISE_SOFTMAX_BF16,
  BYOC_STEPWISE_SOFTMAX_F16,
  BYOC_ZERO_UNSEEN_SOFTMAX_BF16,
  BYOC_ZERO_UNSEEN_SOFTMAX_F16,
  BYOC_MULTIPLY_ADDS,
  BYOC_NUM_VECTOR_FUNCTIONS
};

extern const byoc_vector_function byoc_vector_any[BYOC_NUM_VECTOR_FUNCTIONS];
#if defined(__x86_64__)
extern const byoc_vector_function byoc_vector_avx2[BYOC_NUM_VECTOR_FUNCTIONS]; /* with FMA */
extern const byoc_vector_function byoc_vector_avx512[BYOC_NUM_VECTOR_FUNCTIONS]; /* F, BW, DQ and VL, with AVX2 and FMA */
#endif

/* The functions by name; all but MULTIPLY_ADDS compute numbers of a model. */
extern const char *const byoc_vector_names[BYOC_NUM_VECTOR_FUNCTIONS];

enum { BYOC_MAX_VECTOR_TABLES = 3 };

/* Set the tables for all instruction sets of this processor, the fastest last; return the number of tables. */
int byoc_find_vector_tables(const byoc_vector_function *tables[BYOC_MAX_VECTOR_TABLES]);

#endif /* BYOC_VECTOR_FUNCTIONS_H_ */
