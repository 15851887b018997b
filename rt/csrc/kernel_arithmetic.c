/* Arithmetic, comparison, logic and bits of two operands. */
#include "kernel_arithmetic.h"

#include <math.h>

#include "kernel_loops.h"

#define U(value) ((uint64_t)(value))

/* Operations with the same bits for signed and unsigned integers: one function for each size. */
#define FOR_SIZES(F, name, ...)        \
  F(name##_1, uint8_t, __VA_ARGS__)   \
  F(name##_2, uint16_t, __VA_ARGS__)  \
  F(name##_4, uint32_t, __VA_ARGS__)  \
  F(name##_8, uint64_t, __VA_ARGS__)
#define FOR_REALS(F, name, ...)     \
  F(name##_f, float, __VA_ARGS__)  \
  F(name##_d, double, __VA_ARGS__)
#define FOR_INTEGERS(F, name, ...)     \
  F(name##_i1, int8_t, __VA_ARGS__)   \
  F(name##_i2, int16_t, __VA_ARGS__)  \
  F(name##_i4, int32_t, __VA_ARGS__)  \
  F(name##_i8, int64_t, __VA_ARGS__)  \
  F(name##_1, uint8_t, __VA_ARGS__)   \
  F(name##_2, uint16_t, __VA_ARGS__)  \
  F(name##_4, uint32_t, __VA_ARGS__)  \
  F(name##_8, uint64_t, __VA_ARGS__)

#define SAME(name, T, expression) RT_BINARY(name, T, T, expression)
#define TEST(name, T, expression) RT_BINARY(name, T, uint8_t, expression)
#define CALL(name, T, function) RT_BINARY(name, T, T, function##_##T(x, y))

#define UNSIGNED_TABLE(name)                                          \
  [RT_T_U8] = RT_LOOPS(name##_1), [RT_T_U16] = RT_LOOPS(name##_2),    \
  [RT_T_U32] = RT_LOOPS(name##_4), [RT_T_U64] = RT_LOOPS(name##_8)
#define SHARED_TABLE(name)                                            \
  [RT_T_I8] = RT_LOOPS(name##_1), [RT_T_I16] = RT_LOOPS(name##_2),    \
  [RT_T_I32] = RT_LOOPS(name##_4), [RT_T_I64] = RT_LOOPS(name##_8), UNSIGNED_TABLE(name)
#define SIGNED_TABLE(name)                                            \
  [RT_T_I8] = RT_LOOPS(name##_i1), [RT_T_I16] = RT_LOOPS(name##_i2),  \
  [RT_T_I32] = RT_LOOPS(name##_i4), [RT_T_I64] = RT_LOOPS(name##_i8), UNSIGNED_TABLE(name)
#define REAL_TABLE(name) [RT_T_F32] = RT_LOOPS(name##_f), [RT_T_F64] = RT_LOOPS(name##_d)

/* ---- Arithmetic -------------------------------------------------------------------------------------------------- */

FOR_SIZES(SAME, add, U(x) + U(y))
FOR_REALS(SAME, add, x + y)
RT_BINARY(either, uint8_t, uint8_t, x | y)
const rt_functions rt_add = {{[RT_T_BOOL] = RT_LOOPS(either), SHARED_TABLE(add), REAL_TABLE(add)}};

FOR_SIZES(SAME, subtract, U(x) - U(y))
FOR_REALS(SAME, subtract, x - y)
const rt_functions rt_subtract = {{SHARED_TABLE(subtract), REAL_TABLE(subtract)}};

FOR_SIZES(SAME, multiply, U(x) * U(y))
FOR_REALS(SAME, multiply, x *y)
RT_BINARY(both, uint8_t, uint8_t, x &y)
const rt_functions rt_multiply = {{[RT_T_BOOL] = RT_LOOPS(both), SHARED_TABLE(multiply), REAL_TABLE(multiply)}};

/* Quotients truncate; a quotient by zero is 0, by -1 the negative with wrap-around. Remainders of both are 0. */
#define IS_NEGATIVE(value) ((value) < 1 && (value) != 0)
#define DIVIDE(name, T, ...) \
  RT_BINARY(name, T, T, y == 0 ? (T)0 : IS_NEGATIVE(y) && y == (T)-1 ? RT_WRAP(T, -U(x)) : (T)(x / y))
FOR_INTEGERS(DIVIDE, divide, )
FOR_REALS(SAME, divide, x / y)
const rt_functions rt_divide = {{SIGNED_TABLE(divide), REAL_TABLE(divide)}};

#define IS_PLAIN_DIVISOR(T) (y != 0 && !(IS_NEGATIVE(y) && y == (T)-1))
#define REMAINDER(name, T, ...) RT_BINARY(name, T, T, IS_PLAIN_DIVISOR(T) ? (T)(x % y) : (T)0)
FOR_INTEGERS(REMAINDER, remainder, )
FOR_REALS(SAME, remainder, fmod(x, y))
const rt_functions rt_remainder = {{SIGNED_TABLE(remainder), REAL_TABLE(remainder)}};

/* The remainder with the sign of the divisor. */
#define MODULO(name, T, ...)                                                                        \
  RT_BINARY(name, T, T,                                                                             \
            !IS_PLAIN_DIVISOR(T)                                               ? (T)0               \
            : x % y != 0 && IS_NEGATIVE((T)(x % y)) != IS_NEGATIVE(y) ? (T)(x % y + y) \
                                                                               : (T)(x % y))
FOR_INTEGERS(MODULO, modulo, )
static double modulo_real(double x, double y) {
  const double rest = fmod(x, y);
  if (y == 0 || isnan(rest)) return rest;
  if (rest == 0) return copysign(0, y);
  return (rest < 0) != (y < 0) ? rest + y : rest;
}
FOR_REALS(SAME, modulo, modulo_real(x, y))
const rt_functions rt_modulo = {{SIGNED_TABLE(modulo), REAL_TABLE(modulo)}};

int32_t rt_run_modulo(rt_call *call, const void *context) {
  (void)context;
  return rt_apply(call, rt_integer(call, "fmod") ? &rt_remainder : &rt_modulo, 2, NULL);
}

/* NaN if either is NaN. */
FOR_INTEGERS(SAME, maximum, x > y ? x : y)
FOR_REALS(SAME, maximum, x >= y || x != x ? x : y)
const rt_functions rt_maximum = {{[RT_T_BOOL] = RT_LOOPS(either), SIGNED_TABLE(maximum), REAL_TABLE(maximum)}};
FOR_INTEGERS(SAME, minimum, x < y ? x : y)
FOR_REALS(SAME, minimum, x <= y || x != x ? x : y)
const rt_functions rt_minimum = {{[RT_T_BOOL] = RT_LOOPS(both), SIGNED_TABLE(minimum), REAL_TABLE(minimum)}};

static uint64_t power_of(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

/* A negative exponent gives 1 / x**-y, truncated. */
static uint64_t signed_power(int64_t x, int64_t y) {
  if (y >= 0) return power_of((uint64_t)x, (uint64_t)y);
  return x == 1 ? 1 : x == -1 ? (y & 1 ? UINT64_MAX : 1) : 0;
}

#define SIGNED_POWER(name, T) RT_BINARY(name, T, T, RT_WRAP(T, signed_power(x, y)))
SIGNED_POWER(power_i1, int8_t)
SIGNED_POWER(power_i2, int16_t)
SIGNED_POWER(power_i4, int32_t)
SIGNED_POWER(power_i8, int64_t)
FOR_SIZES(SAME, power, power_of(x, y))
FOR_REALS(SAME, power, pow(x, y))
const rt_functions rt_power = {{SIGNED_TABLE(power), REAL_TABLE(power)}};

FOR_INTEGERS(SAME, prelu, IS_NEGATIVE(x) ? U(x) * U(y) : U(x))
FOR_REALS(SAME, prelu, x < 0 ? x * y : x)
const rt_functions rt_prelu = {{SIGNED_TABLE(prelu), REAL_TABLE(prelu)}};

/* ---- Comparison and logic ---------------------------------------------------------------------------------------- */

FOR_SIZES(TEST, equal, x == y)
FOR_REALS(TEST, equal, x == y)
const rt_functions rt_equal = {{[RT_T_BOOL] = RT_LOOPS(equal_1), SHARED_TABLE(equal), REAL_TABLE(equal)}};
FOR_SIZES(TEST, not_equal, x != y)
FOR_REALS(TEST, not_equal, x != y)
const rt_functions rt_not_equal = {
    {[RT_T_BOOL] = RT_LOOPS(not_equal_1), SHARED_TABLE(not_equal), REAL_TABLE(not_equal)}};
FOR_INTEGERS(TEST, less, x < y)
FOR_REALS(TEST, less, x < y)
const rt_functions rt_less = {{[RT_T_BOOL] = RT_LOOPS(less_1), SIGNED_TABLE(less), REAL_TABLE(less)}};
FOR_INTEGERS(TEST, less_equal, x <= y)
FOR_REALS(TEST, less_equal, x <= y)
const rt_functions rt_less_equal = {
    {[RT_T_BOOL] = RT_LOOPS(less_equal_1), SIGNED_TABLE(less_equal), REAL_TABLE(less_equal)}};
FOR_INTEGERS(TEST, greater, x > y)
FOR_REALS(TEST, greater, x > y)
const rt_functions rt_greater = {{[RT_T_BOOL] = RT_LOOPS(greater_1), SIGNED_TABLE(greater), REAL_TABLE(greater)}};
FOR_INTEGERS(TEST, greater_equal, x >= y)
FOR_REALS(TEST, greater_equal, x >= y)
const rt_functions rt_greater_equal = {
    {[RT_T_BOOL] = RT_LOOPS(greater_equal_1), SIGNED_TABLE(greater_equal), REAL_TABLE(greater_equal)}};

const rt_functions rt_logical_and = {{[RT_T_BOOL] = RT_LOOPS(both)}};
const rt_functions rt_logical_or = {{[RT_T_BOOL] = RT_LOOPS(either)}};
const rt_functions rt_logical_xor = {{[RT_T_BOOL] = RT_LOOPS(not_equal_1)}};

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

FOR_SIZES(SAME, bitwise_and, x &y)
const rt_functions rt_bitwise_and = {{SHARED_TABLE(bitwise_and)}};
FOR_SIZES(SAME, bitwise_or, x | y)
const rt_functions rt_bitwise_or = {{SHARED_TABLE(bitwise_or)}};
FOR_SIZES(SAME, bitwise_xor, x ^ y)
const rt_functions rt_bitwise_xor = {{SHARED_TABLE(bitwise_xor)}};

/* A shift by the number of bits or more, and a negative shift, moves all bits out. */
#define LEFT(name, T, ...) RT_BINARY(name, T, T, U(y) < 8 * sizeof(T) ? U(x) << U(y) : 0)
FOR_SIZES(LEFT, left_shift, )
const rt_functions rt_left_shift = {{SHARED_TABLE(left_shift)}};
#define RIGHT(name, T, ...) RT_BINARY(name, T, T, U(y) < 8 * sizeof(T) ? (T)(x >> y) : IS_NEGATIVE(x) ? (T)-1 : (T)0)
FOR_INTEGERS(RIGHT, right_shift, )
const rt_functions rt_right_shift = {{SIGNED_TABLE(right_shift)}};
