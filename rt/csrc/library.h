/* Libraries of generated code in this process, each loaded once, as in byoc_core/runtime/csource/library_pool.py.
 *
 * A loaded library stays until the process ends: threads of libgomp, handlers of `fork` and keys of threads may point
 * into the library's code. A library without constants is shared by all modules of the same bytes. A copy with a table
 * of constants belongs to one module at a time; once returned, it goes to another module of the same bytes.
 */
#ifndef BYOC_RT_LIBRARY_H_
#define BYOC_RT_LIBRARY_H_

#include <stddef.h>
#include <stdint.h>

typedef struct rt_library rt_library;

/* Return a loaded library with these bytes; `has_table`: of no other module. NULL after setting an error that names
 * `where`. Any number of threads may call at once. */
rt_library *rt_take_library(const uint8_t *data, size_t nbytes, int has_table, const char *where);

/* Return a library of rt_take_library; NULL is ignored. */
void rt_return_library(rt_library *library);

/* Return the address of an exported symbol, or NULL after setting an error. */
void *rt_find_symbol(const rt_library *library, const char *symbol, const char *where);

/* Return the bytes of a variable at an address of the library, as far as the system tells; else SIZE_MAX. */
size_t rt_variable_nbytes(const void *address);

#endif /* BYOC_RT_LIBRARY_H_ */
