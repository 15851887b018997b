#include "kernel_elementwise.h"

#include <string.h>

#include "kernel_loops.h"

int32_t rt_broadcast_shape(const rt_call *call, const rt_array *const *arrays, int32_t count, int32_t *rank,
                           int64_t *shape) {
  *rank = 0;
  for (int32_t k = 0; k < count; ++k)
    if (arrays[k]->rank > *rank) *rank = arrays[k]->rank;
  for (int32_t axis = 0; axis < *rank; ++axis) shape[axis] = 1;
  for (int32_t k = 0; k < count; ++k) {
    const int32_t first = *rank - arrays[k]->rank;
    for (int32_t axis = 0; axis < arrays[k]->rank; ++axis) {
      const int64_t size = arrays[k]->shape[axis];
      if (size == 1 || size == shape[first + axis]) continue;
      if (shape[first + axis] != 1)
        return rt_reject(call, "operand %d does not broadcast: axis %d has size %lld, expected 1 or %lld", (int)k,
                         (int)axis, (long long)size, (long long)shape[first + axis]);
      shape[first + axis] = size;
    }
  }
  return 0;
}

void rt_broadcast_strides(const rt_array *array, int32_t rank, const int64_t *shape, int64_t *strides) {
  const int32_t first = rank - array->rank;
  for (int32_t axis = 0; axis < rank; ++axis) {
    const int is_repeated = axis < first || (array->shape[axis - first] == 1 && shape[axis] != 1);
    strides[axis] = is_repeated ? 0 : array->strides[axis - first];
  }
}

/* A function applied to blocks of converted elements. */
typedef struct {
  rt_inner inner;
  const void *context;
  int32_t count; /* of operands */
  rt_type types[RT_MAX_WALKED], wide[RT_MAX_WALKED];
} adapter;

enum { BLOCK = 128 };

static void apply_converted(const void *context, char *const *data, const int64_t *strides, int64_t count) {
  const adapter *self = context;
  double blocks[RT_MAX_WALKED][BLOCK]; /* of any type of up to 8 bytes */
  char *wide[RT_MAX_WALKED];
  int64_t steps[RT_MAX_WALKED];
  for (int32_t k = 0; k <= self->count; ++k) {
    wide[k] = (char *)blocks[k];
    steps[k] = rt_type_nbytes(self->wide[k]);
  }
  for (int64_t start = 0; start < count; start += BLOCK) {
    const int64_t size = count - start < BLOCK ? count - start : BLOCK;
    for (int32_t k = 0; k < self->count; ++k)
      rt_convert(self->wide[k], wide[k], steps[k], self->types[k], data[k] + start * strides[k], strides[k], size);
    self->inner(self->context, wide, steps, size);
    const int32_t last = self->count;
    rt_convert(self->types[last], data[last] + start * strides[last], strides[last], self->wide[last], wide[last],
               steps[last], size);
  }
}

enum { REPEATED = 512, SHORT_LINE = 16 };

/* Apply a function to lines of elements of its types; a repeated operand (stride 0) is spread over a block, for the
 * function's loop over compact elements. */
static void apply_lines(const void *context, char *const *data, const int64_t *strides, int64_t count) {
  const adapter *self = context;
  double blocks[RT_MAX_WALKED][REPEATED]; /* of any type of up to 8 bytes */
  char *at[RT_MAX_WALKED];
  int64_t steps[RT_MAX_WALKED];
  int32_t num_repeated = 0;
  for (int32_t k = 0; k < self->count; ++k) num_repeated += strides[k] == 0;
  if (!num_repeated || num_repeated == self->count || count < SHORT_LINE) {
    self->inner(self->context, data, strides, count);
    return;
  }
  const int64_t length = count < REPEATED ? count : REPEATED;
  for (int32_t k = 0; k <= self->count; ++k) {
    const int64_t nbytes = rt_type_nbytes(self->types[k]);
    at[k] = data[k];
    steps[k] = strides[k];
    if (strides[k]) continue;
    at[k] = (char *)blocks[k];
    steps[k] = nbytes;
    memcpy(at[k], data[k], (size_t)nbytes);
    for (int64_t filled = 1; filled < length; filled *= 2)
      memcpy(at[k] + filled * nbytes, at[k], (size_t)((filled < length - filled ? filled : length - filled) * nbytes));
  }
  for (int64_t start = 0; start < count; start += length) {
    self->inner(self->context, at, steps, count - start < length ? count - start : length);
    for (int32_t k = 0; k <= self->count; ++k) at[k] += strides[k] * length;
  }
}

static rt_inner choose_loop(const rt_loops *loops) {
#ifdef RT_HAS_WIDE_LOOPS
  if (__builtin_cpu_supports("avx2")) return loops->wide;
#endif
  return loops->plain;
}

/* Return the type with a function for operands of a type; RT_NUM_TYPES if there is none. */
static rt_type find_wide(const rt_functions *functions, rt_type type) {
  if (functions->inner[type].plain) return type;
  if (rt_type_in(type, RT_FLOATS)) {
    if (type != RT_T_F64 && functions->inner[RT_T_F32].plain) return RT_T_F32;
    return functions->inner[RT_T_F64].plain ? RT_T_F64 : RT_NUM_TYPES;
  }
  const rt_type wide = rt_type_in(type, RT_SIGNED) ? RT_T_I8 : RT_T_U8;
  return rt_type_nbytes(type) == 1 && functions->inner[wide].plain ? wide : RT_NUM_TYPES;
}

int32_t rt_apply_to(rt_call *call, const rt_functions *functions, const rt_array *const *arrays, int32_t count,
                    const void *context) {
  int64_t shape[RT_MAX_RANK], all_strides[RT_MAX_WALKED][RT_MAX_RANK];
  int32_t rank;
  const int32_t status = rt_broadcast_shape(call, arrays, count, &rank, shape);
  if (status) return status;
  rt_array *result = rt_result(call, 0, rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  char *data[RT_MAX_WALKED];
  const int64_t *strides[RT_MAX_WALKED];
  const rt_type type = arrays[0]->type, wide = find_wide(functions, type);
  if (wide == RT_NUM_TYPES) return rt_reject(call, "has no kernel for %s in this runtime", rt_type_name(type));
  adapter converted = {.inner = choose_loop(&functions->inner[wide]), .context = context, .count = count};
  for (int32_t k = 0; k < count; ++k) {
    rt_broadcast_strides(arrays[k], rank, shape, all_strides[k]);
    data[k] = arrays[k]->data;
    strides[k] = all_strides[k];
    converted.types[k] = type;
    converted.wide[k] = wide;
  }
  data[count] = result->data;
  strides[count] = result->strides;
  converted.types[count] = result->type;
  converted.wide[count] = result->type == type ? wide : result->type;
  if (wide == type)
    rt_walk(count + 1, data, strides, rank, shape, apply_lines, &converted);
  else
    rt_walk(count + 1, data, strides, rank, shape, apply_converted, &converted);
  return 0;
}

int32_t rt_apply(rt_call *call, const rt_functions *functions, int32_t count, const void *context) {
  const rt_array *arrays[RT_MAX_WALKED];
  for (int32_t k = 0; k < count; ++k) arrays[k] = rt_operand(call, k);
  return rt_apply_to(call, functions, arrays, count, context);
}

int32_t rt_run_unary(rt_call *call, const void *context) { return rt_apply(call, context, 1, NULL); }

int32_t rt_run_binary(rt_call *call, const void *context) { return rt_apply(call, context, 2, NULL); }
