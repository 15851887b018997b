/* The representation of a table of sizes, for the files that fill and read tables (dims*.c). */
#ifndef BYOC_RT_DIMS_TABLE_H_
#define BYOC_RT_DIMS_TABLE_H_

#include "core_abi.h"
#include "dims.h"

/* A size with a text; the operations inside an expression have none. */
typedef struct {
  const char *text;
  const int32_t *symbols;
  int32_t num_symbols, is_symbol;
  int32_t first; /* the first operation of the expression; the last is the size itself */
  int32_t stamp; /* of the last text with this symbol */
} rt_size_info;

struct rt_dims {
  rt_pool *pool;
  int32_t status; /* of errors */
  byoc_size_operation *operations; /* by index; a symbol has no operation: BYOC_SIZE_UNKNOWN */
  rt_size_info *infos;             /* by index */
  int32_t count, max_count;
  int32_t *slots; /* a hash table of texts: indices plus 1 */
  uint32_t num_slots, num_texts;
  int32_t num_stamps;
};

/* Add an operation; return its index, or -1 after setting an error. */
int32_t rt_add_operation(rt_dims *dims, byoc_size_operation operation);

/* Add the operations of an expression whose symbols are in the table; return the index, or -1 after setting an
 * error. */
int32_t rt_parse_dim(rt_dims *dims, rt_text text);

/* Return the bytes of the name at the start of a text; 0: no name. */
size_t rt_name_length(rt_text text);

/* Return whether a name calls a function: `max`, `min`, `broadcast`; set the operation. */
int rt_is_call_name(rt_text name, int32_t *operation);

#endif /* BYOC_RT_DIMS_TABLE_H_ */
