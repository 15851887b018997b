/* What kernels see of a call: operands, attributes, results, scratch memory, and errors.
 *
 * A kernel checks the operands and attributes of a node, asks for each result, and fills the results. A function
 * returning a pointer returns NULL, and a function returning int32_t a nonzero status, after setting an error: the
 * kernel returns the status, or BYOC_RT_EXECUTION, at once.
 */
#ifndef BYOC_RT_KERNEL_H_
#define BYOC_RT_KERNEL_H_

#include "byoc_rt.h"
#include "kernel_convert.h"
#include "kernel_walk.h"

/* A tensor. Strides are in bytes; the strides of a tensor without elements are 0. */
typedef struct {
  char *data;
  rt_type type;
  int32_t rank;
  int64_t count; /* of elements */
  int64_t shape[RT_MAX_RANK], strides[RT_MAX_RANK];
} rt_array;

/* The kinds of attributes, by the letters of an attribute table (kernel_table.h). */
typedef enum {
  RT_ATTR_BOOL,
  RT_ATTR_INT,
  RT_ATTR_FLOAT,
  RT_ATTR_TEXT,
  RT_ATTR_CHOICE, /* a text among those of the table: `integer` is its number */
  RT_ATTR_DTYPE,  /* `integer` is the rt_type */
  RT_ATTR_INTS,   /* integers, or sizes */
  RT_ATTR_FLOATS,
} rt_attr_kind;

typedef struct {
  const char *name;
  rt_attr_kind kind;
  int is_none;
  int32_t count; /* of `integers` or `reals` */
  int64_t integer;
  double real;
  const char *text;
  const int64_t *integers;
  const double *reals;
  const int32_t *dims; /* of `integer`, or of each of `integers`: the size, or -1 for a number; NULL: all numbers */
} rt_attr;

typedef struct rt_call rt_call;
typedef int32_t (*rt_kernel)(rt_call *call, const void *context);

/* Return the operand `index`, with any strides; compact and aligned; compact and of a type. */
int32_t rt_num_operands(const rt_call *call);
const rt_array *rt_operand(const rt_call *call, int32_t index);
const rt_array *rt_compact(rt_call *call, int32_t index);
const rt_array *rt_converted(rt_call *call, int32_t index, rt_type type);

/* Return a copy of integers as compact int64; uint64 numbers beyond int64 become INT64_MAX. */
const rt_array *rt_integers(rt_call *call, int32_t index);

/* Return the only element of an operand. */
int32_t rt_scalar_real(rt_call *call, int32_t index, double *value);
int32_t rt_scalar_integer(rt_call *call, int32_t index, int64_t *value);

/* Return the attribute of a name in the op's table; the value of a flag, an integer or a choice, and a number. */
const rt_attr *rt_attribute(const rt_call *call, const char *name);
int64_t rt_integer(const rt_call *call, const char *name);
double rt_real(const rt_call *call, const char *name);

/* Return an attribute as an axis of a tensor of `rank` axes, counted from the front; -1 after an error. */
int32_t rt_axis(const rt_call *call, const char *name, int32_t rank);

/* Set a flag for each axis named by an attribute, each once; all axes if the attribute is none. */
int32_t rt_axes(const rt_call *call, const char *name, int32_t rank, uint8_t *is_named);

/* Return a compact result of the declared type. */
int32_t rt_num_results(const rt_call *call);
rt_type rt_result_type(const rt_call *call, int32_t index);
rt_array *rt_result(rt_call *call, int32_t index, int32_t rank, const int64_t *shape);

/* Make a result of the elements of a compact tensor of the same type, without a copy where possible. */
int32_t rt_alias(rt_call *call, int32_t index, const rt_array *array, int32_t rank, const int64_t *shape);

/* Return an operand as compact rows of a type: the marked axes last, a row for each position along the other axes. */
const char *rt_rows(rt_call *call, int32_t index, rt_type type, const uint8_t *is_last, int64_t *num_rows,
                    int64_t *length);

/* As rt_rows, as a copy of float64 to be changed; and store rows of float64 in a result of the operand's shape. */
double *rt_take_rows(rt_call *call, int32_t index, const uint8_t *is_last, int64_t *num_rows, int64_t *length);
void rt_put_rows(const rt_array *result, const uint8_t *is_last, const double *rows);

/* Return memory until the end of the kernel, aligned to 64 bytes. */
void *rt_scratch(rt_call *call, int64_t count, int64_t nbytes);

/* Return compact memory of another type for the elements of a result, and convert the elements at the end. The
 * memory is the result's own if the types are equal. */
char *rt_open(rt_call *call, rt_array *result, rt_type type);
void rt_close(rt_array *result, rt_type type, const char *memory);

/* Set an error of kind BYOC_RT_EXECUTION that names the function and the node; return BYOC_RT_EXECUTION. */
int32_t rt_reject(const rt_call *call, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Fail unless an operand has a shape. */
int32_t rt_check_shape(const rt_call *call, const char *operand, const rt_array *array, int32_t rank,
                       const int64_t *shape);

/* Fail unless indices lie inside an axis; negative indices count from the end. Indices are counted from the front
 * then. */
int32_t rt_resolve(const rt_call *call, int64_t *indices, int64_t count, int64_t size, int32_t axis);

/* ---- Arrays ------------------------------------------------------------------------------------------------------ */

/* Describe compact memory. Return 0 if the number of bytes exceeds INT64_MAX or a size is negative. */
int rt_describe(rt_array *array, char *data, rt_type type, int32_t rank, const int64_t *shape);

int rt_is_row_major(const rt_array *array);

/* Return the product of sizes; -1, which is no size, if it exceeds 64 bits or a size is negative. */
int64_t rt_product(int64_t left, int64_t right);

/* Return the number of elements of a shape; -1 if it exceeds 64 bits or a size is negative. */
int64_t rt_num_elements(int32_t rank, const int64_t *shape);

/* Return the number of integers start, start + step, ... before `stop`; -1 if it exceeds 64 bits. The step is not 0. */
int64_t rt_count_steps(int64_t start, int64_t stop, int64_t step);

/* Copy elements between arrays of equal shape and type, or convert between types. */
void rt_copy_array(const rt_array *target, const rt_array *source);

/* Set the product of the sizes before an axis, and after it. */
void rt_split_axis(const rt_array *array, int32_t axis, int64_t *outer, int64_t *inner);

/* Return the type for steps rounded as by numpy: float32 for narrow floats, int64 for integers except uint64, the type
 * itself otherwise. Integer arithmetic in 64 bits wraps around to the same low bits. */
rt_type rt_working_type(rt_type type);

/* Return the widest type of the same kind: float64, int64 (bools too), or uint64 for uint64. */
rt_type rt_wide_type(rt_type type);

#endif /* BYOC_RT_KERNEL_H_ */
