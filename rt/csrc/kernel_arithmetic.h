/* Kernels and functions of elementwise ops of two operands. */
#ifndef BYOC_RT_KERNEL_ARITHMETIC_H_
#define BYOC_RT_KERNEL_ARITHMETIC_H_

#include "kernel_elementwise.h"

extern const rt_functions rt_add, rt_subtract, rt_multiply, rt_divide, rt_maximum, rt_minimum, rt_power, rt_prelu;
extern const rt_functions rt_remainder, rt_modulo;
extern const rt_functions rt_equal, rt_not_equal, rt_less, rt_less_equal, rt_greater, rt_greater_equal;
extern const rt_functions rt_logical_and, rt_logical_or, rt_logical_xor;
extern const rt_functions rt_bitwise_and, rt_bitwise_or, rt_bitwise_xor, rt_left_shift, rt_right_shift;

/* `mod`, with the remainder chosen by an attribute. */
int32_t rt_run_modulo(rt_call *call, const void *context);

#endif /* BYOC_RT_KERNEL_ARITHMETIC_H_ */
