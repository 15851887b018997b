/* The sizes of symbols, from the shapes of tensors. */
#include "dims_table.h"
#include "dtypes.h"

/* The power of a symbol in an expression. */
typedef enum { ABSENT, LINEAR, OTHER } degree;

/* The part of a symbol in an expression: absent, or linear, with a factor; `has_fixed_factor`: a number. */
typedef struct {
  degree degree;
  int has_fixed_factor;
  int64_t factor;
} symbol_part;

static const symbol_part absent_part = {ABSENT, 1, 0}, other_part = {OTHER, 0, 0};

/* Return the part of a symbol in the product of an expression and an expression without the symbol. */
static symbol_part scaled(symbol_part part, const byoc_size_operation *factor) {
  if (part.degree != LINEAR) return part;
  if (factor->op != BYOC_SIZE_CONSTANT || __builtin_mul_overflow(part.factor, factor->value, &part.factor))
    part.has_fixed_factor = 0;
  return part;
}

static symbol_part find_part(const rt_dims *dims, int32_t size, int32_t symbol) {
  const byoc_size_operation *operation = &dims->operations[size];
  if (size == symbol) return (symbol_part){LINEAR, 1, 1};
  if (operation->op == BYOC_SIZE_CONSTANT || operation->op == BYOC_SIZE_UNKNOWN) return absent_part;
  symbol_part left = find_part(dims, operation->left, symbol), right = find_part(dims, operation->right, symbol);
  if (left.degree == ABSENT && right.degree == ABSENT) return absent_part;
  if (left.degree == OTHER || right.degree == OTHER) return other_part;
  if (operation->op == BYOC_SIZE_ADD) {
    left.has_fixed_factor = left.has_fixed_factor && right.has_fixed_factor &&
                            !__builtin_add_overflow(left.factor, right.factor, &left.factor);
    left.degree = LINEAR;
    return left;
  }
  if (operation->op != BYOC_SIZE_MULTIPLY || (left.degree == LINEAR && right.degree == LINEAR)) return other_part;
  return left.degree == LINEAR ? scaled(left, &dims->operations[operation->right])
                               : scaled(right, &dims->operations[operation->left]);
}

int rt_determines(const rt_dims *dims, int32_t dim, const uint8_t *is_known, int32_t *symbol) {
  const rt_size_info *info = &dims->infos[dim];
  int32_t num_unknown = 0;
  for (int32_t i = 0; i < info->num_symbols; ++i) {
    if (is_known[info->symbols[i]]) continue;
    *symbol = info->symbols[i];
    ++num_unknown;
  }
  if (num_unknown != 1) return 0;
  const symbol_part part = find_part(dims, dim, *symbol);
  return part.degree == LINEAR && part.has_fixed_factor && part.factor != 0;
}

/* The relation of an axis to its declared size. */
typedef enum { FITS, OPEN, WRONG } fit;

/* Solve for the only unknown symbol of a size, in which the symbol is linear. */
static fit solve(const rt_dims *dims, int32_t dim, int32_t symbol, int64_t size, int64_t *sizes) {
  int64_t at_zero, at_one, factor, rest;
  sizes[symbol] = 0;
  int is_computed = rt_try_size(dims, dim, sizes, &at_zero);
  sizes[symbol] = 1;
  is_computed = is_computed && rt_try_size(dims, dim, sizes, &at_one);
  sizes[symbol] = RT_UNKNOWN;
  if (!is_computed || __builtin_sub_overflow(at_one, at_zero, &factor) || __builtin_sub_overflow(size, at_zero, &rest))
    return WRONG;
  if (factor == 0) return rest == 0 ? FITS : WRONG;
  if (factor == -1 ? rest > 0 || rest == INT64_MIN : rest % factor != 0 || rest / factor < 0) return WRONG;
  sizes[symbol] = factor == -1 ? -rest : rest / factor;
  return FITS;
}

/* Compare an axis with its declared size, perhaps binding a symbol. */
static fit bind_axis(const rt_dims *dims, int32_t dim, int64_t size, int64_t *sizes) {
  const rt_size_info *info = &dims->infos[dim];
  int64_t value;
  if (info->is_symbol && sizes[dim] == RT_UNKNOWN) {
    if (size < 0) return WRONG;
    sizes[dim] = size;
    return FITS;
  }
  int32_t unknown = -1;
  for (int32_t i = 0; i < info->num_symbols; ++i) {
    if (sizes[info->symbols[i]] != RT_UNKNOWN) continue;
    if (unknown >= 0) return OPEN;
    unknown = info->symbols[i];
  }
  if (unknown < 0) return rt_try_size(dims, dim, sizes, &value) && value == size ? FITS : WRONG;
  return find_part(dims, dim, unknown).degree == LINEAR ? solve(dims, dim, unknown, size, sizes) : OPEN;
}

RT_COLD static int32_t fail_axis(const rt_dims *dims, const rt_spec *spec, const DLTensor *tensor, int32_t index,
                                 int32_t axis,
                         const int64_t *sizes, rt_place place) {
  rt_line got = {.length = 0}, expected = {.length = 0};
  rt_append_shape(&got, tensor->shape, tensor->ndim);
  rt_append_spec_shape(&expected, dims, spec, sizes);
  return byoc_rt_fail(BYOC_RT_CALL, "function `%s`, %s %d `%s`: axis %d has the wrong size; got %s, expected %s",
                      place.function, place.role, (int)index, spec->name, (int)axis, got.text, expected.text);
}

int32_t rt_bind(const rt_dims *dims, const rt_spec *specs, const DLTensor *const *tensors, int32_t count,
                int64_t *sizes, rt_place place) {
  int64_t num_open = INT64_MAX;
  /* A size of several symbols may be open until another axis binds a symbol: repeat while this helps. */
  do {
    const int64_t before = num_open;
    num_open = 0;
    for (int32_t i = 0; i < count; ++i) {
      for (int32_t axis = 0; axis < specs[i].ndim; ++axis) {
        const fit found = bind_axis(dims, specs[i].dims[axis], tensors[i]->shape[axis], sizes);
        if (found == WRONG) return fail_axis(dims, &specs[i], tensors[i], i, axis, sizes, place);
        num_open += found == OPEN;
      }
    }
    if (num_open == before) break;
  } while (num_open);
  return 0;
}

RT_COLD static int32_t fail_tensor(const rt_dims *dims, const rt_spec *spec, const DLTensor *tensor, int32_t index,
                                   rt_place place) {
  rt_line got = {.length = 0}, expected = {.length = 0};
  const int has_dtype = rt_same_dtype(tensor->dtype, spec->dtype);
  if (has_dtype) {
    rt_append(&got, "%d", (int)tensor->ndim);
    rt_append(&expected, "%d, shape ", (int)spec->ndim);
    rt_append_spec_shape(&expected, dims, spec, NULL);
  } else {
    rt_append_dtype(&got, tensor->dtype);
    rt_append_dtype(&expected, spec->dtype);
  }
  return byoc_rt_fail(BYOC_RT_CALL, "function `%s`, %s %d `%s`: wrong %s; got %s, expected %s", place.function,
                      place.role, (int)index, spec->name, has_dtype ? "rank" : "dtype", got.text, expected.text);
}

int32_t rt_check_tensors(const rt_dims *dims, const rt_spec *specs, const DLTensor *const *tensors, int32_t count,
                         rt_place place) {
  for (int32_t i = 0; i < count; ++i)
    if (!rt_same_dtype(tensors[i]->dtype, specs[i].dtype) || tensors[i]->ndim != specs[i].ndim)
      return fail_tensor(dims, &specs[i], tensors[i], i, place);
  return 0;
}
