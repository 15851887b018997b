/* An op in the table of kernels. */
#ifndef BYOC_RT_KERNEL_OP_H_
#define BYOC_RT_KERNEL_OP_H_

#include "kernel.h"

/* Attributes: `name:kind` separated by spaces. Kinds: bool, int, float, text, dtype, ints, floats, or choices
 * `a|b|c`. A `?` behind the kind permits none, which is then the default; `=value` gives another default, `=1,2` a
 * list.
 *
 * Types: a letter for each operand, a colon, and a letter for each result. `T` stands for the same type everywhere,
 * a type of `types`; `*` behind a letter for any number of operands or results of this type. The other letters:
 *     b bool, l int64, s a signed integer, i an integer, f a float, q an integer (the same type everywhere),
 *     @ the type of the attribute `dtype`, ? any type, = for results: the type of the operand of the same number. */
typedef struct {
  const char *name;
  rt_kernel kernel;
  const void *context; /* passed to the kernel */
  const char *signature;
  rt_types types;
  const char *attributes;
} rt_op;

/* Find the op of a name; NULL if the table has no such op. */
const rt_op *rt_find_op(const char *name);

#endif /* BYOC_RT_KERNEL_OP_H_ */
