/* The names of the functions of vector_functions.h, and the tables for the processor. */
#include "vector_functions.h"

const char *const byoc_vector_names[BYOC_NUM_VECTOR_FUNCTIONS] = {
    [BYOC_EXP] = "exp",
    [BYOC_LOG] = "log",
    [BYOC_SOFTPLUS] = "softplus",
    [BYOC_ELU] = "elu",
    [BYOC_LOG_SOFTMAX] = "log_softmax",
    [BYOC_STEPWISE_SOFTMAX_BF16] = "stepwise_softmax_bfloat16",
    [BYOC_STEPWISE_SOFTMAX_F16] = "stepwise_softmax_float16",
    [BYOC_ZERO_UNSEEN_SOFTMAX_BF16] = "stepwise_softmax_bfloat16_zero_unseen",
    [BYOC_ZERO_UNSEEN_SOFTMAX_F16] = "stepwise_softmax_float16_zero_unseen",
    [BYOC_MULTIPLY_ADDS] = "multiply_adds",
};

int byoc_find_vector_tables(const byoc_vector_function *tables[BYOC_MAX_VECTOR_TABLES]) {
  int count = 0;
  tables[count++] = byoc_vector_any;
#if defined(__x86_64__)
  const int has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) tables[count++] = byoc_vector_avx2;
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    tables[count++] = byoc_vector_avx512;
#endif
  return count;
}
