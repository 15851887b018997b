/* Parts of reading graph documents: the attributes and the types of nodes. */
#ifndef BYOC_RT_GRAPH_READ_H_
#define BYOC_RT_GRAPH_READ_H_

#include "graph_document.h"

/* Read the attributes of a node of `op`, defaults filled in. */
int32_t rt_read_attributes(rt_pool *pool, rt_dims *dims, const rt_json *object, const char *where, rt_node *node);

/* Check the types of a node of `op` against the op's signature. */
int32_t rt_check_types(const rt_node *node, const rt_type *operand_types, const char *where);

#endif /* BYOC_RT_GRAPH_READ_H_ */
