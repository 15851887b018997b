/* Sizes of a function: numbers, symbols, and expressions of symbols, in the text of byoc_core.dims (`2*n+1`,
 * `n//2`, `(m-1)%4`, `max(m, n)`, `broadcast(m, n)`).
 *
 * A function has one table of sizes. `rt_dim` adds the size of a text to the table, and returns the size's index; equal
 * texts have equal indices. Each call has an array of rt_num_sizes(dims) values of type int64_t: rt_forget_sizes makes
 * all symbols unknown, rt_bind (or a plain assignment sizes[symbol] = value) makes symbols known, and rt_size computes
 * a size from the symbols known at that moment. A symbol may be bound again: sizes are computed anew with each rt_size.
 *
 *     int32_t n = rt_symbol(dims, rt_text_of("n")), twice = rt_dim(dims, rt_text_of("2*n"));
 *     int64_t *sizes = malloc(sizeof(int64_t) * rt_num_sizes(dims)), value;   // once all texts are read
 *     rt_forget_sizes(dims, sizes);
 *     sizes[n] = 5;
 *     if (rt_size(dims, twice, sizes, "function `f`", &value)) return ...;    // value is 10
 *
 * A table is changed by one thread (while a program is loaded), then read by any number of threads.
 */
#ifndef BYOC_RT_DIMS_H_
#define BYOC_RT_DIMS_H_

#include <stdint.h>

#include "byoc_rt.h"
#include "memory.h"
#include "text.h"

typedef struct rt_dims rt_dims;

/* The value of a symbol not yet known. */
#define RT_UNKNOWN INT64_MIN

/* Return an empty table, or NULL after setting an error. Errors of the functions below have the kind `status`. */
rt_dims *rt_dims_new(rt_pool *pool, int32_t status);

/* Return the index of the size of a text, added if missing; -1 after setting an error: the text is no size. */
int32_t rt_dim(rt_dims *dims, rt_text text);

/* Return the index of a symbol, added if missing; -1 after setting an error: the text cannot name a symbol. */
int32_t rt_symbol(rt_dims *dims, rt_text name);

/* Return the index of a number as a size, added if missing; -1 after setting an error. */
int32_t rt_number(rt_dims *dims, int64_t value);

/* Return the length of the array of values. */
int32_t rt_num_sizes(const rt_dims *dims);

/* Return the text of a size. */
const char *rt_dim_text(const rt_dims *dims, int32_t dim);

/* Return whether a size is a number, and set the value; `value` may be NULL. */
int rt_is_number(const rt_dims *dims, int32_t dim, int64_t *value);

/* Return whether a size is a single symbol. */
int rt_is_symbol(const rt_dims *dims, int32_t dim);

/* Return the number of symbols in a size, and the indices of these symbols. */
int32_t rt_symbols_of(const rt_dims *dims, int32_t dim, const int32_t **symbols);

/* Make all symbols unknown. */
void rt_forget_sizes(const rt_dims *dims, int64_t *sizes);

/* Compute a size. Return nonzero after setting an error of kind BYOC_RT_CALL, which names `where`: a symbol is unknown,
 * a divisor is 0, two sizes do not broadcast, or a number exceeds 64 bits. The size may be negative; rt_axis_size fails
 * for negative sizes too. */
int32_t rt_size(const rt_dims *dims, int32_t dim, int64_t *sizes, const char *where, int64_t *size);
int32_t rt_axis_size(const rt_dims *dims, int32_t dim, int64_t *sizes, const char *where, int64_t *size);

/* Return whether the symbols marked in `is_known` (by index of a size) determine a further symbol by the size of an
 * axis, for all values: one symbol is unknown, and the size is factor * symbol + a sum of known sizes, with a number as
 * factor. Set the symbol. */
int rt_determines(const rt_dims *dims, int32_t dim, const uint8_t *is_known, int32_t *symbol);

/* As rt_size, without an error: return 1 if the size has a value. */
int rt_try_size(const rt_dims *dims, int32_t dim, int64_t *sizes, int64_t *size);

/* The declaration of a tensor: one size for each axis. */
typedef struct rt_spec {
  const char *name;
  DLDataType dtype;
  int32_t ndim;
  const int32_t *dims;
} rt_spec;

/* Names a tensor in errors: "function `main`, input 0 `x`". */
typedef struct {
  const char *function, *role; /* role: "input", "output", ... */
} rt_place;

/* Check the dtypes and ranks of tensors against their specs. Return nonzero after setting an error of kind
 * BYOC_RT_CALL. */
int32_t rt_check_tensors(const rt_dims *dims, const rt_spec *specs, const DLTensor *const *tensors, int32_t count,
                         rt_place place);

/* Check the shapes of tensors, of the declared ranks, against their specs, and bind each unknown symbol determined by
 * the shapes. An axis determines a symbol if all other symbols of its size are known, and the size is factor * symbol +
 * offset. Symbols known before stay. Return nonzero after setting an error of kind BYOC_RT_CALL: a size is not the
 * declared size, or contradicts the size of its symbol elsewhere. */
int32_t rt_bind(const rt_dims *dims, const rt_spec *specs, const DLTensor *const *tensors, int32_t count,
                int64_t *sizes, rt_place place);

/* Append the declared shape and the known symbols of the shape: "[n, 4] with n = 2"; `sizes` may be NULL. */
void rt_append_spec_shape(rt_line *line, const rt_dims *dims, const rt_spec *spec, const int64_t *sizes);

#endif /* BYOC_RT_DIMS_H_ */
