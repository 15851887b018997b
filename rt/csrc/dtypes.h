/* Element types by name, as in byoc_core/dtypes.py. */
#ifndef BYOC_RT_DTYPES_H_
#define BYOC_RT_DTYPES_H_

#include "byoc_rt.h"
#include "text.h"

/* Codes of DLPack 1.1 beyond the codes in byoc_rt.h. */
enum {
  RT_FLOAT8_E4M3FN = 10,
  RT_FLOAT8_E4M3FNUZ = 11,
  RT_FLOAT8_E5M2 = 12,
  RT_FLOAT8_E5M2FNUZ = 13,
  RT_FLOAT8_E8M0FNU = 14,
  RT_FLOAT4_E2M1FN = 17,
};

/* Find the dtype of a name, such as `float32`; return 0, without an error, if there is none. */
int rt_find_dtype(rt_text name, DLDataType *dtype);

/* Return the name of a dtype, or NULL if byoc has no such dtype. */
const char *rt_dtype_name(DLDataType dtype);

/* Return the bytes of an element in memory: dtypes of less than 8 bits take one byte each. */
int64_t rt_itemsize(DLDataType dtype);

/* Return the required alignment of an element in bytes. */
int64_t rt_dtype_alignment(DLDataType dtype);

/* Append the name of a dtype, or its code and bits if byoc has no such dtype. */
void rt_append_dtype(rt_line *line, DLDataType dtype);

static inline int rt_same_dtype(DLDataType left, DLDataType right) {
  return left.code == right.code && left.bits == right.bits && left.lanes == right.lanes;
}

#endif /* BYOC_RT_DTYPES_H_ */
