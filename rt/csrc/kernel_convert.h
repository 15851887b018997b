/* Conversion of elements between types, as numpy and ml_dtypes convert. */
#ifndef BYOC_RT_KERNEL_CONVERT_H_
#define BYOC_RT_KERNEL_CONVERT_H_

#include "kernel_types.h"

/* Convert elements; strides are in bytes. Floats are rounded to the nearest, ties to even; floats truncate towards zero
 * to integers, and a number outside the range of the integer has an unspecified result; integers wrap around; every
 * number except zero is true. The types are not of the moved types. */
void rt_convert(rt_type to, char *target, int64_t target_stride, rt_type from, const char *source,
                int64_t source_stride, int64_t count);

/* Return a number after rounding to a type. */
double rt_rounded(rt_type type, double value);

/* Return the integer part of a number; INT64_MIN if not an int64. */
int64_t rt_truncated(double value);

/* Return the range of an integer type; the bits of the greatest uint64. */
int64_t rt_least_integer(rt_type type);
int64_t rt_greatest_integer(rt_type type);

/* Return the greatest value of a float type: infinity, if the type has infinity. */
double rt_greatest_real(rt_type type);

#endif /* BYOC_RT_KERNEL_CONVERT_H_ */
