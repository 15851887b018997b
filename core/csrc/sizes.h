/* Sizes of a function, computed from those of its symbols.
 *
 * All sizes are numbers in one table: the symbols', then those that operations give, one after the other. An operation
 * reads what stands before it. Knows nothing of Python.
 */
#ifndef BYOC_SIZES_H_
#define BYOC_SIZES_H_

#include <stdint.h>

/* What an operation gives of the sizes l and r. */
enum {
  BYOC_SIZE_CONSTANT,  /* `value` */
  BYOC_SIZE_UNKNOWN,   /* nothing: a constant that 64 bits do not hold */
  BYOC_SIZE_ADD,       /* l + r */
  BYOC_SIZE_MULTIPLY,  /* l * r */
  BYOC_SIZE_FLOORDIV,  /* l / r, rounded down */
  BYOC_SIZE_MOD,       /* l - r * (l / r, rounded down) */
  BYOC_SIZE_MAX,
  BYOC_SIZE_MIN,
  BYOC_SIZE_BROADCAST, /* the one that is not 1, or both */
  BYOC_NUM_SIZE_OPS
};

typedef struct {
  int32_t op, left, right;
  int64_t value;
} byoc_size_operation;

/* Fills in the table behind its first `num_symbols` sizes. Returns 0 where a size has no value, or none that 64 bits hold. */
int byoc_compute_sizes(const byoc_size_operation *operations, int32_t num_operations, int32_t num_symbols, int64_t *sizes);

#endif /* BYOC_SIZES_H_ */
