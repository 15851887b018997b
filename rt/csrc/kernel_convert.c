#include "kernel_convert.h"

#include <math.h>
#include <string.h>

/* The encodings of narrow floats beside the finite numbers. */
enum {
  IEEE, /* the greatest exponent stands for infinity and NaN */
  FN,   /* no infinity; all ones are NaN */
  FNUZ  /* no infinity, and no negative zero, whose code is NaN */
};

typedef struct {
  int exponent_bits, mantissa_bits, bias, kind;
} float_format;

static const float_format FORMATS[RT_NUM_TYPES] = {
    [RT_T_F16] = {5, 10, 15, IEEE},       [RT_T_BF16] = {8, 7, 127, IEEE},      [RT_T_F8E4M3FN] = {4, 3, 7, FN},
    [RT_T_F8E5M2] = {5, 2, 15, IEEE},     [RT_T_F8E4M3FNUZ] = {4, 3, 8, FNUZ}, [RT_T_F8E5M2FNUZ] = {5, 2, 16, FNUZ},
};

static double decode(uint32_t code, const float_format *format) {
  const int mantissa_bits = format->mantissa_bits;
  const uint32_t sign = code >> (format->exponent_bits + mantissa_bits) & 1;
  const uint32_t exponent = code >> mantissa_bits & ((1u << format->exponent_bits) - 1);
  const uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
  const uint32_t greatest = (1u << format->exponent_bits) - 1;
  double value;
  if (format->kind == IEEE && exponent == greatest) {
    value = mantissa ? NAN : INFINITY;
  } else if (format->kind == FN && exponent == greatest && mantissa == (1u << mantissa_bits) - 1) {
    value = NAN;
  } else if (format->kind == FNUZ && sign && !exponent && !mantissa) {
    return NAN;
  } else if (exponent) {
    const uint64_t bits = (uint64_t)((int)exponent - format->bias + 1023) << 52 | (uint64_t)mantissa
                                                                                     << (52 - mantissa_bits);
    memcpy(&value, &bits, sizeof value);
  } else {
    const uint64_t bits = (uint64_t)(1 - format->bias - mantissa_bits + 1023) << 52;
    double unit;
    memcpy(&unit, &bits, sizeof unit);
    value = mantissa * unit;
  }
  return sign ? -value : value;
}

static uint32_t encode(double value, const float_format *format) {
  const int mantissa_bits = format->mantissa_bits, width = format->exponent_bits + mantissa_bits;
  const uint32_t infinity = ((1u << format->exponent_bits) - 1) << mantissa_bits;
  const uint32_t nan = format->kind == IEEE ? infinity | 1u << (mantissa_bits - 1)
                       : format->kind == FN ? (1u << width) - 1
                                            : 1u << width;
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = (uint32_t)(bits >> 63) << width;
  if (isnan(value)) return format->kind == FNUZ ? nan : nan | sign;
  uint32_t code;
  if (isinf(value)) {
    code = infinity + (1u << mantissa_bits); /* beyond all numbers */
  } else {
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1023, least = 1 - format->bias;
    const int scale = exponent > least ? exponent : least;
    const int shift = 52 - mantissa_bits + (scale - exponent);
    uint64_t steps = 0;
    if (exponent > -1023 && shift < 54) { /* subnormal doubles are below half of any least number */
      const uint64_t significand = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
      const uint64_t rest = significand & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
      steps = significand >> shift;
      if (rest > half || (rest == half && (steps & 1))) ++steps;
    }
    const uint64_t wide = ((uint64_t)(scale + format->bias) << mantissa_bits) + steps - ((uint64_t)1 << mantissa_bits);
    code = wide > infinity + (1u << mantissa_bits) ? infinity + (1u << mantissa_bits) : (uint32_t)wide;
  }
  if (format->kind == IEEE) return (code >= infinity ? infinity : code) | sign;
  if (format->kind == FN) return (code >= nan ? nan : code) | sign;
  if (code >= nan) return nan;
  return code ? code | sign : 0;
}

/* float16 and bfloat16 numbers of full precision need a few operations on the bits of float32. */
static double decode_half(uint16_t code) {
  const uint32_t magnitude = code & 0x7fffu;
  if (magnitude < 0x400 || magnitude >= 0x7c00) return decode(code, &FORMATS[RT_T_F16]);
  const uint32_t bits = (uint32_t)(code & 0x8000u) << 16 | ((magnitude << 13) + (112u << 23));
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t encode_half(double number) {
  const float value = (float)number;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t magnitude = bits & 0x7fffffffu;
  /* From the least number of full precision to the greatest number; a double between two floats is rounded once. */
  if (magnitude < 0x38800000u || magnitude >= 0x477ff000u || (double)value != number)
    return (uint16_t)encode(number, &FORMATS[RT_T_F16]);
  return (uint16_t)((bits >> 16 & 0x8000u) | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13);
}

static double decode_bfloat(uint16_t code) {
  const uint32_t bits = (uint32_t)code << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Doubles are rounded to float32 first, as by ml_dtypes. */
static uint16_t encode_bfloat(double number) {
  const float value = (float)number;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return (uint16_t)encode(value, &FORMATS[RT_T_BF16]);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

int64_t rt_truncated(double value) {
  return value > -9223372036854775808.0 && value < 9223372036854775808.0 ? (int64_t)value : INT64_MIN;
}

static int bits_of(rt_type type) { return type == RT_T_I4 || type == RT_T_U4 ? 4 : 2; }

static int is_narrow_integer(rt_type type) {
  return type == RT_T_I4 || type == RT_T_U4 || type == RT_T_I2 || type == RT_T_U2;
}

int64_t rt_greatest_integer(rt_type type) {
  const int64_t bits = is_narrow_integer(type) ? bits_of(type) : 8 * rt_type_nbytes(type);
  return (int64_t)(UINT64_MAX >> (64 - bits + (rt_type_in(type, RT_SIGNED) ? 1 : 0)));
}

int64_t rt_least_integer(rt_type type) {
  return rt_type_in(type, RT_SIGNED) ? -rt_greatest_integer(type) - 1 : 0;
}

double rt_greatest_real(rt_type type) {
  switch (FORMATS[type].kind * (FORMATS[type].bias != 0)) {
    case FN:
      return 448;
    case FNUZ:
      return type == RT_T_F8E4M3FNUZ ? 240 : 57344;
    default:
      return INFINITY;
  }
}

/* Conversions go through one of these forms, in blocks. */
enum { BLOCK = 128 };
typedef union {
  double reals[BLOCK];
  int64_t integers[BLOCK]; /* the bits of uint64 too */
} block;

#define LOAD(array, T)                                                                    \
  for (int64_t i = 0; i < count; ++i, source += stride) array[i] = *(const T *)source; \
  break

/* Load floats as doubles, integers and truth values as integers of 64 bits. */
static void load(block *values, rt_type type, const char *source, int64_t stride, int64_t count) {
  switch (type) {
    case RT_T_BOOL:
    case RT_T_U8:
      LOAD(values->integers, uint8_t);
    case RT_T_I8:
      LOAD(values->integers, int8_t);
    case RT_T_I16:
      LOAD(values->integers, int16_t);
    case RT_T_I32:
      LOAD(values->integers, int32_t);
    case RT_T_I64:
    case RT_T_U64:
      LOAD(values->integers, int64_t);
    case RT_T_U16:
      LOAD(values->integers, uint16_t);
    case RT_T_U32:
      LOAD(values->integers, uint32_t);
    case RT_T_F32:
      LOAD(values->reals, float);
    case RT_T_F64:
      LOAD(values->reals, double);
    case RT_T_F16:
      for (int64_t i = 0; i < count; ++i, source += stride) values->reals[i] = decode_half(*(const uint16_t *)source);
      break;
    case RT_T_BF16:
      for (int64_t i = 0; i < count; ++i, source += stride) values->reals[i] = decode_bfloat(*(const uint16_t *)source);
      break;
    case RT_T_I4:
    case RT_T_U4:
    case RT_T_I2:
    case RT_T_U2: {
      const int bits = bits_of(type), is_signed = type == RT_T_I4 || type == RT_T_I2;
      for (int64_t i = 0; i < count; ++i, source += stride) {
        const int value = *(const uint8_t *)source & ((1 << bits) - 1);
        values->integers[i] = is_signed && value >> (bits - 1) ? value - (1 << bits) : value;
      }
      break;
    }
    default:
      for (int64_t i = 0; i < count; ++i, source += stride)
        values->reals[i] = decode(*(const uint8_t *)source, &FORMATS[type]);
  }
}

#define STORE(T, expression)                                                                   \
  for (int64_t i = 0; i < count; ++i, target += stride) *(T *)target = (T)(expression); \
  break

static void store_integers(const block *values, rt_type type, char *target, int64_t stride, int64_t count) {
  const int64_t *v = values->integers;
  switch (type) {
    case RT_T_BOOL:
      STORE(uint8_t, v[i] != 0);
    case RT_T_I8:
    case RT_T_U8:
      STORE(uint8_t, v[i]);
    case RT_T_I16:
    case RT_T_U16:
      STORE(uint16_t, v[i]);
    case RT_T_I32:
    case RT_T_U32:
      STORE(uint32_t, v[i]);
    case RT_T_I4:
    case RT_T_U4:
      STORE(uint8_t, v[i] & 15);
    case RT_T_I2:
    case RT_T_U2:
      STORE(uint8_t, v[i] & 3);
    default:
      STORE(int64_t, v[i]);
  }
}

static void store_reals(const block *values, rt_type type, char *target, int64_t stride, int64_t count) {
  const double *v = values->reals;
  switch (type) {
    case RT_T_F32:
      STORE(float, v[i]);
    case RT_T_F64:
      STORE(double, v[i]);
    case RT_T_F16:
      STORE(uint16_t, encode_half(v[i]));
    case RT_T_BF16:
      STORE(uint16_t, encode_bfloat(v[i]));
    default: /* by float32, as by ml_dtypes */
      STORE(uint8_t, encode((float)v[i], &FORMATS[type]));
  }
}

/* Store integers as floats. Narrow floats are rounded from float32, as numpy and ml_dtypes do. */
static void store_integers_as_reals(block *values, int is_uint64, rt_type type, char *target, int64_t stride,
                                    int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = values->integers[i];
    if (type == RT_T_F64)
      values->reals[i] = is_uint64 ? (double)(uint64_t)value : (double)value;
    else
      values->reals[i] = is_uint64 ? (float)(uint64_t)value : (float)value;
  }
  store_reals(values, type, target, stride, count);
}

static void store_reals_as_integers(block *values, rt_type type, char *target, int64_t stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = values->reals[i];
    if (type == RT_T_BOOL)
      values->integers[i] = value != 0;
    else if (type == RT_T_U64 && value >= 9223372036854775808.0 && value < 18446744073709551616.0)
      values->integers[i] = (int64_t)(uint64_t)value;
    else
      values->integers[i] = rt_truncated(value);
  }
  store_integers(values, type, target, stride, count);
}

#define PAIR(to, from) ((to) * RT_NUM_TYPES + (from))

#define DIRECT(TO, T, FROM, S, expression)           \
  case PAIR(TO, FROM): {                             \
    const S *restrict elements = (const S *)source;  \
    T *restrict results = (T *)target;               \
    for (int64_t i = 0; i < count; ++i) {            \
      const S x = elements[i];                       \
      results[i] = (T)(expression);                  \
    }                                                \
    return 1;                                        \
  }

#define DIRECT_FROM_REAL(FROM, S)                  \
  DIRECT(RT_T_I32, int32_t, FROM, S, x)            \
  DIRECT(RT_T_I64, int64_t, FROM, S, x)            \
  DIRECT(RT_T_BOOL, uint8_t, FROM, S, x != 0)

#define DIRECT_FROM_INTEGER(FROM, S)               \
  DIRECT(RT_T_F32, float, FROM, S, x)              \
  DIRECT(RT_T_F64, double, FROM, S, x)             \
  DIRECT(RT_T_BOOL, uint8_t, FROM, S, x != 0)

/* Convert compact elements of the most frequent pairs of types in one loop; return 0 for other pairs. */
static int convert_directly(rt_type to, char *target, rt_type from, const char *source, int64_t count) {
  switch (PAIR(to, from)) {
    DIRECT(RT_T_F64, double, RT_T_F32, float, x)
    DIRECT(RT_T_F32, float, RT_T_F64, double, x)
    DIRECT_FROM_REAL(RT_T_F32, float)
    DIRECT_FROM_REAL(RT_T_F64, double)
    DIRECT_FROM_INTEGER(RT_T_I32, int32_t)
    DIRECT_FROM_INTEGER(RT_T_I64, int64_t)
    DIRECT_FROM_INTEGER(RT_T_U8, uint8_t)
    DIRECT_FROM_INTEGER(RT_T_I8, int8_t)
    DIRECT(RT_T_F32, float, RT_T_BOOL, uint8_t, x)
    DIRECT(RT_T_F64, double, RT_T_BOOL, uint8_t, x)
    DIRECT(RT_T_I32, int32_t, RT_T_BOOL, uint8_t, x)
    DIRECT(RT_T_I64, int64_t, RT_T_BOOL, uint8_t, x)
    DIRECT(RT_T_I32, int32_t, RT_T_U8, uint8_t, x)
    DIRECT(RT_T_I64, int64_t, RT_T_U8, uint8_t, x)
    DIRECT(RT_T_I32, int32_t, RT_T_I8, int8_t, x)
    DIRECT(RT_T_I64, int64_t, RT_T_I8, int8_t, x)
    DIRECT(RT_T_I64, int64_t, RT_T_I32, int32_t, x)
    DIRECT(RT_T_I32, uint32_t, RT_T_I64, int64_t, x)
    DIRECT(RT_T_I8, uint8_t, RT_T_I32, int32_t, x)
    DIRECT(RT_T_U8, uint8_t, RT_T_I32, int32_t, x)
    DIRECT(RT_T_I8, uint8_t, RT_T_I64, int64_t, x)
    DIRECT(RT_T_U8, uint8_t, RT_T_I64, int64_t, x)
    default:
      return 0;
  }
}

void rt_convert(rt_type to, char *target, int64_t target_stride, rt_type from, const char *source,
                int64_t source_stride, int64_t count) {
  const int is_compact = source_stride == rt_type_nbytes(from) && target_stride == rt_type_nbytes(to);
  if (is_compact && convert_directly(to, target, from, source, count)) return;
  const int from_real = rt_type_in(from, RT_FLOATS), to_real = rt_type_in(to, RT_FLOATS);
  block values;
  for (int64_t start = 0; start < count; start += BLOCK) {
    const int64_t size = count - start < BLOCK ? count - start : BLOCK;
    load(&values, from, source, source_stride, size);
    if (from_real && to_real)
      store_reals(&values, to, target, target_stride, size);
    else if (from_real)
      store_reals_as_integers(&values, to, target, target_stride, size);
    else if (to_real)
      store_integers_as_reals(&values, from == RT_T_U64, to, target, target_stride, size);
    else
      store_integers(&values, to, target, target_stride, size);
    source += size * source_stride;
    target += size * target_stride;
  }
}

double rt_rounded(rt_type type, double value) {
  double memory = 0;
  rt_convert(type, (char *)&memory, 0, RT_T_F64, (const char *)&value, 0, 1);
  rt_convert(RT_T_F64, (char *)&value, 0, type, (const char *)&memory, 0, 1);
  return value;
}
