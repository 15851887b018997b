/* The native half of the runtime `graph`: modules of JSON graph documents, executed by the kernels of
 * kernel_table.h. */
#ifndef BYOC_RT_GRAPH_H_
#define BYOC_RT_GRAPH_H_

#include "byoc_rt.h"

const byoc_rt_runtime *rt_graph_runtime(void);

#endif /* BYOC_RT_GRAPH_H_ */
