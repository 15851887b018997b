/* Sizes of a function, computed from the sizes of symbols.
 *
 * A single table holds all sizes: first the sizes of symbols, then the results of operations in order. An operation
 * reads earlier entries only. Independent of Python.
 */
#ifndef BYOC_SIZES_H_
#define BYOC_SIZES_H_

#include <stdint.h>

/* The results of operations on the sizes l and r. */
enum {
  BYOC_SIZE_CONSTANT,  /* `value` */
  BYOC_SIZE_UNKNOWN,   /* none: a constant beyond 64 bits */
  BYOC_SIZE_ADD,       /* l + r */
  BYOC_SIZE_MULTIPLY,  /* l * r */
  BYOC_SIZE_FLOORDIV,  /* l / r, rounded down */
  BYOC_SIZE_MOD,       /* l - r * (l / r, rounded down) */
  BYOC_SIZE_MAX,
  BYOC_SIZE_MIN,
  BYOC_SIZE_BROADCAST, /* the size other than 1, or the common size */
  BYOC_NUM_SIZE_OPS
};

typedef struct {
  int32_t op, left, right;
  int64_t value;
} byoc_size_operation;

/* Fill in the table after the first `num_symbols` sizes. Return 0 if a size has no value, or exceeds 64 bits. */
int byoc_compute_sizes(const byoc_size_operation *operations, int32_t num_operations, int32_t num_symbols, int64_t *sizes);

#endif /* BYOC_SIZES_H_ */
