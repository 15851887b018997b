/* Graph documents, read from JSON and checked: functions of nodes, with everything needed to run them. */
#ifndef BYOC_RT_GRAPH_DOCUMENT_H_
#define BYOC_RT_GRAPH_DOCUMENT_H_

#include "dims.h"
#include "json.h"
#include "kernel_op.h"

typedef struct rt_graph rt_graph;

/* A node: an op with a kernel, or a body. */
typedef struct {
  const char *name; /* of the op or composite */
  const rt_op *op;  /* NULL: the body is run */
  rt_graph *body;
  int32_t num_operands, num_results;
  const int32_t *operands; /* values */
  int32_t first_result;    /* value; further results follow */
  const rt_type *result_types;
  const rt_attr *attrs;
  int32_t num_attrs;
  int32_t num_integers; /* of attributes with sizes; 0: all attributes are numbers */
  const int32_t *dead;  /* values without a use behind the node */
  int32_t num_dead;
} rt_node;

/* A function. Values are numbered: inputs, constants, then the results of nodes. */
struct rt_graph {
  const char *name;
  const char *where; /* for errors */
  rt_dims *dims;
  int32_t num_inputs, num_constants, num_nodes, num_outputs, num_values;
  const rt_spec *inputs;
  const rt_array *constants;
  const rt_node *nodes;
  const rt_spec *outputs;
  const int32_t *output_values;
  int makes_results; /* a result has a size determined by running alone */
  int32_t most_operands;
};

typedef struct {
  int32_t num_functions;
  rt_graph *functions;
} rt_document;

/* Read the document of a payload. Return NULL after setting an error of kind BYOC_RT_ARTIFACT (no document, or a
 * broken law), BYOC_RT_UNSUPPORTED (an op or a dtype without a kernel) or BYOC_RT_LINK (a constant is missing or of
 * another type). */
rt_document *rt_read_document(rt_pool *pool, const byoc_rt_payload *payload);

#endif /* BYOC_RT_GRAPH_DOCUMENT_H_ */
