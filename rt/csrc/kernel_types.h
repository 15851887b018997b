/* The element types of kernels: the dtypes of byoc, numbered from 0, and sets of types. */
#ifndef BYOC_RT_KERNEL_TYPES_H_
#define BYOC_RT_KERNEL_TYPES_H_

#include <stdint.h>

#include "dtypes.h"

typedef enum {
  RT_T_BOOL,
  RT_T_I8,
  RT_T_I16,
  RT_T_I32,
  RT_T_I64,
  RT_T_U8,
  RT_T_U16,
  RT_T_U32,
  RT_T_U64,
  RT_T_F16,
  RT_T_BF16,
  RT_T_F32,
  RT_T_F64,
  RT_T_F8E4M3FN,
  RT_T_F8E5M2,
  RT_T_I4,
  RT_T_U4,
  RT_T_I2,
  RT_T_U2,
  RT_T_F8E4M3FNUZ,
  RT_T_F8E5M2FNUZ,
  /* The types below are moved only. */
  RT_T_F8E8M0FNU,
  RT_T_F4E2M1FN,
  RT_T_C64,
  RT_T_C128,
  RT_NUM_TYPES
} rt_type;

typedef uint32_t rt_types; /* a set: bit `type` for each type */

#define RT_SET(type) ((rt_types)1 << (type))
#define RT_BOOLS RT_SET(RT_T_BOOL)
#define RT_SIGNED \
  (RT_SET(RT_T_I8) | RT_SET(RT_T_I16) | RT_SET(RT_T_I32) | RT_SET(RT_T_I64) | RT_SET(RT_T_I4) | RT_SET(RT_T_I2))
#define RT_UNSIGNED \
  (RT_SET(RT_T_U8) | RT_SET(RT_T_U16) | RT_SET(RT_T_U32) | RT_SET(RT_T_U64) | RT_SET(RT_T_U4) | RT_SET(RT_T_U2))
#define RT_INTEGERS (RT_SIGNED | RT_UNSIGNED)
#define RT_FLOATS                                                                                      \
  (RT_SET(RT_T_F16) | RT_SET(RT_T_BF16) | RT_SET(RT_T_F32) | RT_SET(RT_T_F64) | RT_SET(RT_T_F8E4M3FN) | \
   RT_SET(RT_T_F8E5M2) | RT_SET(RT_T_F8E4M3FNUZ) | RT_SET(RT_T_F8E5M2FNUZ))
#define RT_NUMBERS (RT_INTEGERS | RT_FLOATS)
#define RT_ALL (RT_NUMBERS | RT_BOOLS)
#define RT_ANY (RT_SET(RT_NUM_TYPES) - 1)
/* The floats of random numbers, and the integers of `quantize`. */
#define RT_RANDOM_FLOATS (RT_SET(RT_T_F16) | RT_SET(RT_T_BF16) | RT_SET(RT_T_F32) | RT_SET(RT_T_F64))
#define RT_QUANTISED                                                                                        \
  (RT_SET(RT_T_I8) | RT_SET(RT_T_I16) | RT_SET(RT_T_I4) | RT_SET(RT_T_I2) | RT_SET(RT_T_U8) | RT_SET(RT_T_U16) | \
   RT_SET(RT_T_U4) | RT_SET(RT_T_U2))

static inline int rt_type_in(rt_type type, rt_types set) { return (set >> type & 1) != 0; }

/* Set the type of a dtype; return 0, without an error, if there is none. */
int rt_type_of(DLDataType dtype, rt_type *type);

/* Return the dtype, the name, and the bytes of an element in memory. */
DLDataType rt_dtype_of(rt_type type);
const char *rt_type_name(rt_type type);
int64_t rt_type_nbytes(rt_type type);

#endif /* BYOC_RT_KERNEL_TYPES_H_ */
