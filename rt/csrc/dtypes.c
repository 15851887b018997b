#include "dtypes.h"

#include <stddef.h>

typedef struct {
  const char *name;
  uint8_t code, bits, itemsize, alignment;
} dtype_row;

static const dtype_row dtype_rows[] = {
    {"bool", kDLBool, 8, 1, 1},
    {"int8", kDLInt, 8, 1, 1},
    {"int16", kDLInt, 16, 2, 2},
    {"int32", kDLInt, 32, 4, 4},
    {"int64", kDLInt, 64, 8, 8},
    {"uint8", kDLUInt, 8, 1, 1},
    {"uint16", kDLUInt, 16, 2, 2},
    {"uint32", kDLUInt, 32, 4, 4},
    {"uint64", kDLUInt, 64, 8, 8},
    {"float16", kDLFloat, 16, 2, 2},
    {"float32", kDLFloat, 32, 4, 4},
    {"float64", kDLFloat, 64, 8, 8},
    {"bfloat16", kDLBfloat, 16, 2, 2},
    {"float8_e4m3fn", RT_FLOAT8_E4M3FN, 8, 1, 1},
    {"float8_e5m2", RT_FLOAT8_E5M2, 8, 1, 1},
    {"int4", kDLInt, 4, 1, 1},
    {"uint4", kDLUInt, 4, 1, 1},
    {"int2", kDLInt, 2, 1, 1},
    {"uint2", kDLUInt, 2, 1, 1},
    {"float8_e4m3fnuz", RT_FLOAT8_E4M3FNUZ, 8, 1, 1},
    {"float8_e5m2fnuz", RT_FLOAT8_E5M2FNUZ, 8, 1, 1},
    {"float8_e8m0fnu", RT_FLOAT8_E8M0FNU, 8, 1, 1},
    {"float4_e2m1fn", RT_FLOAT4_E2M1FN, 4, 1, 1},
    {"complex64", kDLComplex, 64, 8, 4},
    {"complex128", kDLComplex, 128, 16, 8},
};

enum { NUM_DTYPES = sizeof dtype_rows / sizeof *dtype_rows };

static const dtype_row *find_row(DLDataType dtype) {
  for (size_t i = 0; i < NUM_DTYPES && dtype.lanes == 1; ++i)
    if (dtype_rows[i].code == dtype.code && dtype_rows[i].bits == dtype.bits) return &dtype_rows[i];
  return NULL;
}

int rt_find_dtype(rt_text name, DLDataType *dtype) {
  for (size_t i = 0; i < NUM_DTYPES; ++i) {
    if (!rt_equals(name, dtype_rows[i].name)) continue;
    *dtype = (DLDataType){dtype_rows[i].code, dtype_rows[i].bits, 1};
    return 1;
  }
  return 0;
}

const char *rt_dtype_name(DLDataType dtype) {
  const dtype_row *row = find_row(dtype);
  return row ? row->name : NULL;
}

int64_t rt_itemsize(DLDataType dtype) {
  const dtype_row *row = find_row(dtype);
  return row ? row->itemsize : (int64_t)(dtype.bits + 7) / 8 * dtype.lanes;
}

int64_t rt_dtype_alignment(DLDataType dtype) {
  const dtype_row *row = find_row(dtype);
  return row ? row->alignment : 1;
}

void rt_append_dtype(rt_line *line, DLDataType dtype) {
  const char *name = rt_dtype_name(dtype);
  if (name)
    rt_append(line, "%s", name);
  else
    rt_append(line, "code %d of %d bits, %d lanes", (int)dtype.code, (int)dtype.bits, (int)dtype.lanes);
}
