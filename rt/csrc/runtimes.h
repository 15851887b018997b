/* The runtimes of this process, by type key. */
#ifndef BYOC_RT_RUNTIMES_H_
#define BYOC_RT_RUNTIMES_H_

#include "byoc_rt.h"

/* Return the runtime of a type key, or NULL. */
const byoc_rt_runtime *rt_find_runtime(const char *type_key);

/* Add the runtimes of the libraries in BYOC_RT_RUNTIMES, unless added already. Return nonzero after setting an
 * error. */
int32_t rt_add_environment_runtimes(void);

#endif /* BYOC_RT_RUNTIMES_H_ */
