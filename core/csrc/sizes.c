#include "sizes.h"

/* Compute the quotient, rounded down, and the remainder. */
static int divide(int64_t left, int64_t right, int64_t *quotient, int64_t *remainder) {
  if (right == 0 || (left == INT64_MIN && right == -1)) return 0;
  *quotient = left / right;
  *remainder = left % right;
  if (*remainder && (*remainder < 0) != (right < 0)) {
    --*quotient;
    *remainder += right;
  }
  return 1;
}

static int compute(const byoc_size_operation *operation, const int64_t *sizes, int64_t *result) {
  const int64_t left = sizes[operation->left], right = sizes[operation->right];
  int64_t unused;
  switch (operation->op) {
    case BYOC_SIZE_CONSTANT:
      *result = operation->value;
      return 1;
    case BYOC_SIZE_ADD:
      return !__builtin_add_overflow(left, right, result);
    case BYOC_SIZE_MULTIPLY:
      return !__builtin_mul_overflow(left, right, result);
    case BYOC_SIZE_FLOORDIV:
      return divide(left, right, result, &unused);
    case BYOC_SIZE_MOD:
      return divide(left, right, &unused, result);
    case BYOC_SIZE_MAX:
      *result = left > right ? left : right;
      return 1;
    case BYOC_SIZE_MIN:
      *result = left < right ? left : right;
      return 1;
    case BYOC_SIZE_BROADCAST:
      *result = left == 1 ? right : left;
      return left == right || left == 1 || right == 1;
    default:
      return 0;
  }
}

int byoc_compute_sizes(const byoc_size_operation *operations, int32_t num_operations, int32_t num_symbols, int64_t *sizes) {
  for (int32_t i = 0; i < num_operations; ++i)
    if (!compute(&operations[i], sizes, &sizes[num_symbols + i])) return 0;
  return 1;
}
