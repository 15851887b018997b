#include "kernel_types.h"

static const struct {
  uint8_t code, bits, nbytes;
} TYPES[RT_NUM_TYPES] = {
    [RT_T_BOOL] = {kDLBool, 8, 1},
    [RT_T_I8] = {kDLInt, 8, 1},
    [RT_T_I16] = {kDLInt, 16, 2},
    [RT_T_I32] = {kDLInt, 32, 4},
    [RT_T_I64] = {kDLInt, 64, 8},
    [RT_T_U8] = {kDLUInt, 8, 1},
    [RT_T_U16] = {kDLUInt, 16, 2},
    [RT_T_U32] = {kDLUInt, 32, 4},
    [RT_T_U64] = {kDLUInt, 64, 8},
    [RT_T_F16] = {kDLFloat, 16, 2},
    [RT_T_BF16] = {kDLBfloat, 16, 2},
    [RT_T_F32] = {kDLFloat, 32, 4},
    [RT_T_F64] = {kDLFloat, 64, 8},
    [RT_T_F8E4M3FN] = {RT_FLOAT8_E4M3FN, 8, 1},
    [RT_T_F8E5M2] = {RT_FLOAT8_E5M2, 8, 1},
    [RT_T_I4] = {kDLInt, 4, 1},
    [RT_T_U4] = {kDLUInt, 4, 1},
    [RT_T_I2] = {kDLInt, 2, 1},
    [RT_T_U2] = {kDLUInt, 2, 1},
    [RT_T_F8E4M3FNUZ] = {RT_FLOAT8_E4M3FNUZ, 8, 1},
    [RT_T_F8E5M2FNUZ] = {RT_FLOAT8_E5M2FNUZ, 8, 1},
    [RT_T_F8E8M0FNU] = {RT_FLOAT8_E8M0FNU, 8, 1},
    [RT_T_F4E2M1FN] = {RT_FLOAT4_E2M1FN, 4, 1},
    [RT_T_C64] = {kDLComplex, 64, 8},
    [RT_T_C128] = {kDLComplex, 128, 16},
};

int rt_type_of(DLDataType dtype, rt_type *type) {
  for (int i = 0; i < RT_NUM_TYPES; ++i) {
    if (dtype.code == TYPES[i].code && dtype.bits == TYPES[i].bits && dtype.lanes == 1) {
      *type = (rt_type)i;
      return 1;
    }
  }
  return 0;
}

DLDataType rt_dtype_of(rt_type type) {
  return (DLDataType){.code = TYPES[type].code, .bits = TYPES[type].bits, .lanes = 1};
}

const char *rt_type_name(rt_type type) { return rt_dtype_name(rt_dtype_of(type)); }

int64_t rt_type_nbytes(rt_type type) { return TYPES[type].nbytes; }
