#include "graph_document.h"

#include <string.h>

#include "graph_read.h"
#include "records.h"

enum { MAX_BODY_DEPTH = 16, MAX_VERSION = 3 };

static int32_t fail(const char *where, const char *problem) {
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: %s", where, problem);
}

/* Return a text that is not empty, ended by a NUL; NULL after setting an error. */
static const char *read_name(rt_pool *pool, const rt_json *record, const char *field, const char *where) {
  const char *text = rt_read_string(pool, rt_json_field(record, field), field, where);
  if (text && !*text) fail(where, "has an empty text");
  return text && *text ? text : NULL;
}

static const rt_json *read_list(const rt_json *node, const char *where) {
  if (rt_json_is(node, RT_JSON_ARRAY) && node->count < INT32_MAX / 2) return node;
  fail(where, "is not a list");
  return NULL;
}

/* The state of reading the functions of a payload. */
typedef struct {
  rt_pool *pool;
  const byoc_rt_payload *payload;
  rt_dims *unread; /* sizes checked for their form alone */
} reader;

/* The values of a function so far. */
typedef struct {
  rt_type *types;
  int32_t count, capacity;
} value_table;

static int32_t add_value(reader *r, value_table *values, rt_type type) {
  if (values->count == values->capacity) {
    const int32_t capacity = values->capacity * 2 + 16;
    rt_type *types = rt_take(r->pool, (size_t)capacity, sizeof *types);
    if (!types) return BYOC_RT_MEMORY;
    if (values->count) memcpy(types, values->types, (size_t)values->count * sizeof *types);
    values->types = types;
    values->capacity = capacity;
  }
  values->types[values->count++] = type;
  return 0;
}

static const char *join(reader *r, const char *where, const char *part, int64_t index) {
  rt_line line = {0};
  if (index >= 0)
    rt_append(&line, "%s, %s %lld", where, part, (long long)index);
  else
    rt_append(&line, "%s, %s", where, part);
  return rt_copy(r->pool, (rt_text){line.text, line.length});
}

static int32_t read_dtype(const rt_json *node, const char *where, rt_type *type) {
  DLDataType dtype;
  const int32_t status = rt_read_dtype(node, where, &dtype);
  return status || rt_type_of(dtype, type) ? status : fail(where, "has an unknown dtype");
}

/* Read a shape as sizes. Numbers are not negative. */
static int32_t read_shape(reader *r, rt_dims *dims, const rt_json *node, const char *where, rt_spec *spec) {
  const rt_json *list = read_list(node, where);
  if (!list) return BYOC_RT_ARTIFACT;
  if (list->count > RT_MAX_RANK)
    return byoc_rt_fail(BYOC_RT_UNSUPPORTED, "%s: has rank %lu; this runtime has at most %d axes", where,
                        (unsigned long)list->count, RT_MAX_RANK);
  int32_t *sizes = rt_take(r->pool, list->count, sizeof *sizes);
  if (!sizes) return BYOC_RT_MEMORY;
  for (uint32_t axis = 0; axis < list->count; ++axis) {
    const rt_json *size = &list->items[axis];
    if (rt_json_is(size, RT_JSON_INTEGER) && size->integer >= 0)
      sizes[axis] = rt_number(dims, size->integer);
    else if (rt_json_is(size, RT_JSON_TEXT))
      sizes[axis] = rt_dim(dims, size->text);
    else
      return fail(where, "has a size that is neither a number, 0 or more, nor an expression");
    if (sizes[axis] < 0) return BYOC_RT_ARTIFACT;
  }
  spec->ndim = (int32_t)list->count;
  spec->dims = sizes;
  return 0;
}

static int32_t read_inputs(reader *r, rt_graph *graph, const rt_json *node, value_table *values) {
  const rt_json *list = read_list(node, graph->where);
  if (!list) return BYOC_RT_ARTIFACT;
  rt_spec *inputs = rt_take(r->pool, list->count, sizeof *inputs);
  if (!inputs) return BYOC_RT_MEMORY;
  for (uint32_t i = 0; i < list->count; ++i) {
    const rt_json *item = &list->items[i];
    const char *where = join(r, graph->where, "input", i);
    if (!where) return BYOC_RT_MEMORY;
    if (rt_check_record(item, "name dtype shape", where)) return BYOC_RT_ARTIFACT;
    rt_type type;
    int32_t status = read_dtype(rt_json_field(item, "dtype"), where, &type);
    if (!status) status = read_shape(r, graph->dims, rt_json_field(item, "shape"), where, &inputs[i]);
    if (!status) status = add_value(r, values, type);
    if (status) return status;
    inputs[i].dtype = rt_dtype_of(type);
    inputs[i].name = read_name(r->pool, item, "name", where);
    if (!inputs[i].name) return BYOC_RT_ARTIFACT;
  }
  graph->num_inputs = (int32_t)list->count;
  graph->inputs = inputs;
  return 0;
}

/* Read a constant, and compare its declared type with the tensor. */
static int32_t read_constant(reader *r, const rt_json *item, const char *where, rt_array *array) {
  if (rt_check_record(item, "digest dtype shape", where)) return BYOC_RT_ARTIFACT;
  const char *name = read_name(r->pool, item, "digest", where);
  if (!name) return BYOC_RT_ARTIFACT;
  if (strlen(name) != 64) return fail(where, "has no valid digest");
  rt_type type;
  const int32_t status = read_dtype(rt_json_field(item, "dtype"), where, &type);
  if (status) return status;
  const rt_json *shape = read_list(rt_json_field(item, "shape"), where);
  if (!shape) return BYOC_RT_ARTIFACT;
  const DLTensor *tensor = r->payload->constant(r->payload->context, name);
  if (!tensor) return BYOC_RT_LINK;
  int fits = rt_same_dtype(tensor->dtype, rt_dtype_of(type)) && (uint32_t)tensor->ndim == shape->count &&
             shape->count <= RT_MAX_RANK && !tensor->strides;
  for (uint32_t axis = 0; axis < shape->count && fits; ++axis)
    fits = rt_json_is(&shape->items[axis], RT_JSON_INTEGER) && shape->items[axis].integer == tensor->shape[axis];
  if (!fits || !rt_describe(array, (char *)tensor->data + tensor->byte_offset, type, tensor->ndim, tensor->shape))
    return byoc_rt_fail(BYOC_RT_LINK, "%s: constant %.12s is of another type", where, name);
  return 0;
}

static int32_t read_constants(reader *r, rt_graph *graph, const rt_json *node, value_table *values) {
  const rt_json *list = read_list(node, graph->where);
  if (!list) return BYOC_RT_ARTIFACT;
  rt_array *constants = rt_take(r->pool, list->count, sizeof *constants);
  if (!constants) return BYOC_RT_MEMORY;
  for (uint32_t i = 0; i < list->count; ++i) {
    const char *where = join(r, graph->where, "constant", i);
    if (!where) return BYOC_RT_MEMORY;
    int32_t status = read_constant(r, &list->items[i], where, &constants[i]);
    if (!status) status = add_value(r, values, constants[i].type);
    if (status) return status;
  }
  graph->num_constants = (int32_t)list->count;
  graph->constants = constants;
  return 0;
}

/* Read the number of a value defined earlier. */
static int32_t read_id(const rt_json *node, int32_t count, const char *where, int32_t *id) {
  if (!rt_json_is(node, RT_JSON_INTEGER) || node->integer < 0 || node->integer >= count)
    return fail(where, "reads a value not defined earlier");
  *id = (int32_t)node->integer;
  return 0;
}

static int32_t read_operands(reader *r, const rt_json *object, const value_table *values, const char *where,
                             rt_node *node, rt_type **types) {
  const rt_json *list = read_list(rt_json_field(object, "inputs"), where);
  if (!list) return BYOC_RT_ARTIFACT;
  int32_t *operands = rt_take(r->pool, list->count, sizeof *operands);
  *types = rt_take(r->pool, list->count, sizeof **types);
  if (!operands || !*types) return BYOC_RT_MEMORY;
  for (uint32_t i = 0; i < list->count; ++i) {
    const int32_t status = read_id(&list->items[i], values->count, where, &operands[i]);
    if (status) return status;
    (*types)[i] = values->types[operands[i]];
  }
  node->num_operands = (int32_t)list->count;
  node->operands = operands;
  return 0;
}

/* Read the types of a node's results. Sizes are checked for their form alone: kernels determine the sizes. */
static int32_t read_results(reader *r, const rt_json *object, const char *where, rt_node *node) {
  const rt_json *list = read_list(rt_json_field(object, "outputs"), where);
  if (!list) return BYOC_RT_ARTIFACT;
  if (!list->count) return fail(where, "has no output");
  rt_type *types = rt_take(r->pool, list->count, sizeof *types);
  if (!types) return BYOC_RT_MEMORY;
  for (uint32_t i = 0; i < list->count; ++i) {
    if (rt_check_record(&list->items[i], "dtype shape", where)) return BYOC_RT_ARTIFACT;
    rt_spec spec;
    int32_t status = read_dtype(rt_json_field(&list->items[i], "dtype"), where, &types[i]);
    if (!status) status = read_shape(r, r->unread, rt_json_field(&list->items[i], "shape"), where, &spec);
    if (status) return status;
  }
  node->num_results = (int32_t)list->count;
  node->result_types = types;
  return 0;
}

static int32_t read_function(reader *r, const rt_json *object, const char *where, int depth, rt_graph *graph);

static int32_t read_body(reader *r, const rt_json *object, const char *where, int depth, const rt_type *types,
                         rt_node *node) {
  if (depth >= MAX_BODY_DEPTH) return fail(where, "has bodies nested too deep");
  node->body = rt_take(r->pool, 1, sizeof *node->body);
  if (!node->body) return BYOC_RT_MEMORY;
  const int32_t status = read_function(r, object, where, depth + 1, node->body);
  if (status) return status;
  int fits = node->body->num_inputs == node->num_operands && node->body->num_outputs == node->num_results;
  for (int32_t i = 0; i < node->num_operands && fits; ++i)
    fits = rt_same_dtype(node->body->inputs[i].dtype, rt_dtype_of(types[i]));
  for (int32_t i = 0; i < node->num_results && fits; ++i)
    fits = rt_same_dtype(node->body->outputs[i].dtype, rt_dtype_of(node->result_types[i]));
  return fits ? 0 : fail(where, "the body has other inputs or outputs than the node");
}

/* Check that the symbols of a node's attributes are in shapes passed by the caller. */
static int32_t check_symbols(const rt_graph *graph, const rt_node *node, const uint8_t *is_given, const char *where) {
  for (int32_t i = 0; i < node->num_attrs; ++i) {
    const rt_attr *attr = &node->attrs[i];
    const int32_t count = !attr->dims ? 0 : attr->kind == RT_ATTR_INTS ? attr->count : 1;
    for (int32_t k = 0; k < count; ++k) {
      const int32_t *symbols = NULL;
      const int32_t num_symbols = attr->dims[k] < 0 ? 0 : rt_symbols_of(graph->dims, attr->dims[k], &symbols);
      for (int32_t s = 0; s < num_symbols; ++s)
        if (!is_given[symbols[s]])
          return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s, attribute `%s`: symbol %s is in no shape passed by the caller",
                              where, attr->name, rt_dim_text(graph->dims, symbols[s]));
    }
  }
  return 0;
}

static int32_t read_node(reader *r, rt_graph *graph, const rt_json *object, int depth, value_table *values,
                         const char *place, rt_node *node) {
  if (rt_check_record(object, "op inputs attrs outputs ?body ?origin", place)) return BYOC_RT_ARTIFACT;
  node->name = read_name(r->pool, object, "op", place);
  if (!node->name) return BYOC_RT_ARTIFACT;
  rt_line line = {0};
  rt_append(&line, "%s (`%s`)", place, node->name);
  const char *where = line.text;
  rt_type *types = NULL;
  int32_t status = read_operands(r, object, values, where, node, &types);
  if (!status) status = read_results(r, object, where, node);
  if (status) return status;
  if (node->num_operands > graph->most_operands) graph->most_operands = node->num_operands;
  node->first_result = values->count;
  const rt_json *body = rt_json_field(object, "body");
  if (body) {
    const char *body_where = join(r, where, "body", -1);
    if (!body_where) return BYOC_RT_MEMORY;
    status = read_body(r, body, body_where, depth, types, node);
  } else {
    node->op = rt_find_op(node->name);
    if (!node->op) {
      rt_line given = {0};
      for (int32_t i = 0; i < node->num_operands; ++i) rt_append(&given, "%s%s", i ? ", " : "", rt_type_name(types[i]));
      return byoc_rt_fail(BYOC_RT_UNSUPPORTED, "%s: the op has no kernel in this runtime (operands: %s)", where,
                          given.length ? given.text : "none");
    }
    status = rt_read_attributes(r->pool, graph->dims, rt_json_field(object, "attrs"), where, node);
    if (!status) status = rt_check_types(node, types, where);
  }
  for (int32_t i = 0; i < node->num_results && !status; ++i) status = add_value(r, values, node->result_types[i]);
  return status;
}

static int32_t read_nodes(reader *r, rt_graph *graph, const rt_json *node, int depth, value_table *values) {
  const rt_json *list = read_list(node, graph->where);
  if (!list) return BYOC_RT_ARTIFACT;
  rt_node *nodes = rt_take(r->pool, list->count, sizeof *nodes);
  if (!nodes) return BYOC_RT_MEMORY;
  for (uint32_t i = 0; i < list->count; ++i) {
    const char *where = join(r, graph->where, "node", i);
    if (!where) return BYOC_RT_MEMORY;
    const int32_t status = read_node(r, graph, &list->items[i], depth, values, where, &nodes[i]);
    if (status) return status;
    if (values->count > INT32_MAX / 4) return fail(where, "has too many values before it");
  }
  graph->num_nodes = (int32_t)list->count;
  graph->nodes = nodes;
  return 0;
}

/* Return the declared sizes of a value: of an input, a constant, or the result of a node. */
static int32_t declared_shape(reader *r, rt_graph *graph, const rt_json *object, int32_t id, rt_spec *spec) {
  if (id < graph->num_inputs) {
    spec->ndim = graph->inputs[id].ndim;
    spec->dims = graph->inputs[id].dims;
    return 0;
  }
  if (id < graph->num_inputs + graph->num_constants) {
    const rt_json *constant = rt_json_item(rt_json_field(object, "constants"), (uint32_t)(id - graph->num_inputs));
    return read_shape(r, graph->dims, rt_json_field(constant, "shape"), graph->where, spec);
  }
  int32_t index = 0;
  while (id >= graph->nodes[index].first_result + graph->nodes[index].num_results) ++index;
  const rt_json *node = rt_json_item(rt_json_field(object, "nodes"), (uint32_t)index);
  const rt_json *result =
      rt_json_item(rt_json_field(node, "outputs"), (uint32_t)(id - graph->nodes[index].first_result));
  return read_shape(r, graph->dims, rt_json_field(result, "shape"), graph->where, spec);
}

static int32_t read_outputs(reader *r, rt_graph *graph, const rt_json *object, const value_table *values) {
  const rt_json *list = read_list(rt_json_field(object, "outputs"), graph->where);
  if (!list) return BYOC_RT_ARTIFACT;
  rt_spec *outputs = rt_take(r->pool, list->count, sizeof *outputs);
  int32_t *ids = rt_take(r->pool, list->count, sizeof *ids);
  if (!outputs || !ids) return BYOC_RT_MEMORY;
  for (uint32_t i = 0; i < list->count; ++i) {
    const rt_json *item = &list->items[i];
    const char *where = join(r, graph->where, "output", i);
    if (!where) return BYOC_RT_MEMORY;
    if (rt_check_record(item, "name value", where)) return BYOC_RT_ARTIFACT;
    int32_t status = read_id(rt_json_field(item, "value"), values->count, where, &ids[i]);
    if (!status) status = declared_shape(r, graph, object, ids[i], &outputs[i]);
    if (status) return status;
    outputs[i].dtype = rt_dtype_of(values->types[ids[i]]);
    outputs[i].name = read_name(r->pool, item, "name", where);
    if (!outputs[i].name) return BYOC_RT_ARTIFACT;
  }
  graph->num_outputs = (int32_t)list->count;
  graph->outputs = outputs;
  graph->output_values = ids;
  return 0;
}

static void mark_symbols(const rt_dims *dims, const rt_spec *specs, int32_t count, uint8_t *is_given) {
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t axis = 0; axis < specs[i].ndim; ++axis) {
      const int32_t *symbols = NULL;
      const int32_t num_symbols = rt_symbols_of(dims, specs[i].dims[axis], &symbols);
      for (int32_t s = 0; s < num_symbols; ++s) is_given[symbols[s]] = 1;
    }
  }
}

/* Decide whether the function makes its results, and check the symbols of attributes. */
static int32_t read_symbols(reader *r, rt_graph *graph) {
  const size_t num_sizes = (size_t)rt_num_sizes(graph->dims);
  uint8_t *of_inputs = rt_take(r->pool, num_sizes + 1, 1), *of_outputs = rt_take(r->pool, num_sizes + 1, 1);
  if (!of_inputs || !of_outputs) return BYOC_RT_MEMORY;
  mark_symbols(graph->dims, graph->inputs, graph->num_inputs, of_inputs);
  mark_symbols(graph->dims, graph->outputs, graph->num_outputs, of_outputs);
  for (size_t i = 0; i < num_sizes; ++i) graph->makes_results |= of_outputs[i] && !of_inputs[i];
  for (int32_t i = 0; i < graph->num_nodes; ++i) {
    rt_line line = {0};
    rt_append(&line, "%s, node %d (`%s`)", graph->where, (int)i, graph->nodes[i].name);
    const int32_t status = check_symbols(graph, &graph->nodes[i], of_inputs, line.text);
    if (status) return status;
  }
  return 0;
}

/* List for each node the values without a later use. */
static int32_t find_dead_values(reader *r, rt_graph *graph) {
  int32_t *last_uses = rt_take(r->pool, (size_t)graph->num_values, sizeof *last_uses);
  if (!last_uses) return BYOC_RT_MEMORY;
  const int32_t first = graph->num_inputs + graph->num_constants;
  for (int32_t i = 0; i < graph->num_values; ++i) last_uses[i] = -1;
  for (int32_t i = 0; i < graph->num_nodes; ++i) {
    const rt_node *node = &graph->nodes[i];
    for (int32_t k = 0; k < node->num_results; ++k) last_uses[node->first_result + k] = i;
    for (int32_t k = 0; k < node->num_operands; ++k) last_uses[node->operands[k]] = i;
  }
  for (int32_t i = 0; i < graph->num_outputs; ++i) last_uses[graph->output_values[i]] = graph->num_nodes;
  int32_t *dead = rt_take(r->pool, (size_t)graph->num_values, sizeof *dead);
  int32_t *starts = rt_take(r->pool, (size_t)graph->num_nodes + 2, sizeof *starts);
  if (!dead || !starts) return BYOC_RT_MEMORY;
  for (int32_t i = first; i < graph->num_values; ++i) ++starts[last_uses[i] + 1];
  for (int32_t i = 0; i <= graph->num_nodes; ++i) starts[i + 1] += starts[i];
  rt_node *nodes = (rt_node *)(uintptr_t)graph->nodes;
  for (int32_t i = 0; i < graph->num_nodes; ++i) nodes[i].dead = dead + starts[i];
  for (int32_t i = first; i < graph->num_values; ++i) {
    if (last_uses[i] < graph->num_nodes) {
      rt_node *node = &nodes[last_uses[i]];
      dead[starts[last_uses[i]] + node->num_dead++] = i;
    }
  }
  return 0;
}

static int32_t read_function(reader *r, const rt_json *object, const char *where, int depth, rt_graph *graph) {
  if (rt_check_record(object, "name inputs constants nodes outputs", where)) return BYOC_RT_ARTIFACT;
  graph->name = read_name(r->pool, object, "name", where);
  if (!graph->name) return BYOC_RT_ARTIFACT;
  graph->dims = rt_dims_new(r->pool, BYOC_RT_ARTIFACT);
  if (!graph->dims) return BYOC_RT_MEMORY;
  rt_line line = {0};
  if (depth)
    rt_append(&line, "%s", where);
  else
    rt_append(&line, "graph function `%s`", graph->name);
  graph->where = rt_copy(r->pool, (rt_text){line.text, line.length});
  if (!graph->where) return BYOC_RT_MEMORY;
  value_table values = {0};
  int32_t status = read_inputs(r, graph, rt_json_field(object, "inputs"), &values);
  if (!status) status = read_constants(r, graph, rt_json_field(object, "constants"), &values);
  if (!status) status = read_nodes(r, graph, rt_json_field(object, "nodes"), depth, &values);
  if (!status) status = read_outputs(r, graph, object, &values);
  if (!status) status = read_symbols(r, graph);
  graph->num_values = values.count;
  return status ? status : find_dead_values(r, graph);
}

static int32_t read_functions(reader *r, const rt_json *root, rt_document *document) {
  const char *where = r->payload->where;
  if (rt_check_record(root, "schema version functions ?kernels", where)) return BYOC_RT_ARTIFACT;
  const rt_json *schema = rt_json_field(root, "schema"), *version = rt_json_field(root, "version");
  if (!rt_json_is(schema, RT_JSON_TEXT) || !rt_equals(schema->text, "byoc.graph"))
    return fail(where, "has another schema than `byoc.graph`");
  if (!rt_json_is(version, RT_JSON_INTEGER) || version->integer < 1 || version->integer > MAX_VERSION)
    return fail(where, "has a version unknown to this runtime");
  const rt_json *kernels = rt_json_field(root, "kernels");
  if (kernels && !read_list(kernels, where)) return BYOC_RT_ARTIFACT;
  if (kernels && kernels->count)
    return byoc_rt_fail(BYOC_RT_UNSUPPORTED, "%s: needs kernels of plugins, absent from this runtime", where);
  const rt_json *list = read_list(rt_json_field(root, "functions"), where);
  if (!list) return BYOC_RT_ARTIFACT;
  document->functions = rt_take(r->pool, list->count, sizeof *document->functions);
  if (!document->functions) return BYOC_RT_MEMORY;
  for (uint32_t i = 0; i < list->count; ++i) {
    const char *place = join(r, where, "function", i);
    if (!place) return BYOC_RT_MEMORY;
    const int32_t status = read_function(r, &list->items[i], place, 0, &document->functions[i]);
    if (status) return status;
  }
  document->num_functions = (int32_t)list->count;
  return 0;
}

rt_document *rt_read_document(rt_pool *pool, const byoc_rt_payload *payload) {
  const rt_text text = {(const char *)payload->data, payload->nbytes};
  const rt_json *root = rt_json_read(pool, text, BYOC_RT_ARTIFACT, payload->where);
  rt_document *document = root ? rt_take(pool, 1, sizeof *document) : NULL;
  if (!document) return NULL;
  reader r = {pool, payload, rt_dims_new(pool, BYOC_RT_ARTIFACT)};
  return !r.unread || read_functions(&r, root, document) ? NULL : document;
}
