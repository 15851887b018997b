/* The run of a graph function: values in arrays, memory in blocks of the heap, kernels node by node. */
#include "graph_function.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tensor.h"

/* A running function, or a running body of a node. */
typedef struct {
  const rt_graph *graph;
  rt_heap *heap;
  rt_array *values;
  rt_block **blocks;             /* owners of the values' memory; NULL: the caller's, or a constant's */
  int64_t *sizes;                /* of the symbols */
  const DLTensor *const *tensors; /* outputs to fill, or NULL */
  byoc_rt_results *results;       /* receiver of results, or NULL */
  uint8_t *is_filled;             /* by output */
} frame;

struct rt_call {
  frame *owner;
  const rt_node *node;
  int32_t node_index;
  const rt_array **operands;
  rt_attr *attrs;
  rt_block *scratch; /* list of blocks */
};

int32_t rt_reject(const rt_call *call, const char *format, ...) {
  rt_line line = {0};
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  rt_append(&line, "%s, node %d (`%s`): %s", call->owner->graph->where, (int)call->node_index, call->node->name, text);
  return byoc_rt_fail(BYOC_RT_EXECUTION, "%s", line.text);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

void *rt_scratch(rt_call *call, int64_t count, int64_t nbytes) {
  int64_t total;
  if (__builtin_mul_overflow(count, nbytes, &total) || total < 0) {
    byoc_rt_fail(BYOC_RT_MEMORY, "%s: the memory of a kernel exceeds 64 bits", call->owner->graph->where);
    return NULL;
  }
  rt_block *block = rt_heap_take(call->owner->heap, total);
  if (!block) return NULL;
  block->next = call->scratch;
  call->scratch = block;
  return block->data;
}

static void release_scratch(rt_call *call) {
  while (call->scratch) {
    rt_block *block = call->scratch;
    call->scratch = block->next;
    rt_heap_release(call->owner->heap, block);
  }
}

static int32_t too_large(const rt_call *call) {
  return rt_reject(call, "a result exceeds 64 bits, or has a negative size");
}

/* Return the first output of a value that is still to be filled; -1 if there is none. */
static int32_t output_of(const frame *f, int32_t value) {
  if (!f->tensors && !f->results) return -1;
  for (int32_t i = 0; i < f->graph->num_outputs; ++i)
    if (f->graph->output_values[i] == value) return i;
  return -1;
}

static void describe_tensor(const DLTensor *tensor, rt_type type, rt_array *array) {
  (void)rt_describe(array, rt_data(tensor), type, tensor->ndim, tensor->shape);
  if (tensor->strides && array->count)
    for (int32_t axis = 0; axis < tensor->ndim; ++axis)
      array->strides[axis] = tensor->strides[axis] * rt_type_nbytes(type);
}

static int has_shape(const rt_array *array, int32_t rank, const int64_t *shape) {
  return array->rank == rank && (!rank || !memcmp(array->shape, shape, (size_t)rank * sizeof *shape));
}

static int32_t fail_result(const frame *f, int32_t output, const rt_array *array, const DLTensor *tensor) {
  rt_line got = {0}, expected = {0};
  rt_append_shape(&got, array->shape, array->rank);
  rt_append_shape(&expected, tensor->shape, tensor->ndim);
  return byoc_rt_fail(BYOC_RT_EXECUTION, "%s, output `%s`: the result is not of the declared type; got %s, expected %s",
                      f->graph->where, f->graph->outputs[output].name, got.text, expected.text);
}

/* Set the memory of a described value to an output of the function; the memory stays NULL if there is none to be
 * used. */
static int32_t place_in_output(frame *f, int32_t value, rt_array *array) {
  const int32_t output = output_of(f, value);
  if (output < 0) return 0;
  if (f->results) {
    DLTensor *tensor =
        byoc_rt_new_result(f->results, output, rt_dtype_of(array->type), array->rank, array->shape);
    if (!tensor) return BYOC_RT_EXECUTION;
    array->data = rt_data(tensor);
  } else {
    const DLTensor *tensor = f->tensors[output];
    if (!has_shape(array, tensor->ndim, tensor->shape)) return fail_result(f, output, array, tensor);
    if (!rt_has_compact_strides(tensor->shape, tensor->strides, tensor->ndim)) return 0;
    array->data = rt_data(tensor);
  }
  f->is_filled[output] = 1;
  return 0;
}

rt_array *rt_result(rt_call *call, int32_t index, int32_t rank, const int64_t *shape) {
  frame *f = call->owner;
  const int32_t value = call->node->first_result + index;
  rt_array *array = &f->values[value];
  if (rank > RT_MAX_RANK) {
    rt_reject(call, "a result has rank %d; this runtime has at most %d axes", (int)rank, RT_MAX_RANK);
    return NULL;
  }
  if (!rt_describe(array, NULL, call->node->result_types[index], rank, shape)) {
    too_large(call);
    return NULL;
  }
  if (place_in_output(f, value, array)) return NULL;
  if (!array->data) {
    rt_block *block = rt_heap_take(f->heap, array->count * rt_type_nbytes(array->type));
    if (!block) return NULL;
    f->blocks[value] = block;
    array->data = block->data;
  }
  return array;
}

int32_t rt_alias(rt_call *call, int32_t index, const rt_array *array, int32_t rank, const int64_t *shape) {
  frame *f = call->owner;
  const int32_t value = call->node->first_result + index;
  int32_t source = -1; /* the operand with this memory */
  for (int32_t i = 0; i < call->node->num_operands && source < 0; ++i)
    if (call->operands[i] == array) source = call->node->operands[i];
  if (source >= 0 && output_of(f, value) < 0) {
    char *data = array->data;
    if (!rt_describe(&f->values[value], data, array->type, rank, shape)) return too_large(call);
    f->blocks[value] = f->blocks[source];
    if (f->blocks[source]) ++f->blocks[source]->uses;
    return 0;
  }
  const rt_array *result = rt_result(call, index, rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (result->count) memcpy(result->data, array->data, (size_t)(result->count * rt_type_nbytes(result->type)));
  return 0;
}

char *rt_open(rt_call *call, rt_array *result, rt_type type) {
  return result->type == type ? result->data : rt_scratch(call, result->count, rt_type_nbytes(type));
}

void rt_close(rt_array *result, rt_type type, const char *memory) {
  if (result->type != type)
    rt_convert(result->type, result->data, rt_type_nbytes(result->type), type, memory, rt_type_nbytes(type),
               result->count);
}

/* ---- Operands ---------------------------------------------------------------------------------------------------- */

int32_t rt_num_operands(const rt_call *call) { return call->node->num_operands; }

const rt_array *rt_operand(const rt_call *call, int32_t index) { return call->operands[index]; }

static const rt_array *copy_operand(rt_call *call, int32_t index, rt_type type) {
  const rt_array *array = call->operands[index];
  rt_array *copy = rt_scratch(call, 1, sizeof *copy);
  if (!copy || !rt_describe(copy, NULL, type, array->rank, array->shape)) return NULL;
  copy->data = rt_scratch(call, copy->count, rt_type_nbytes(type));
  if (!copy->data) return NULL;
  rt_copy_array(copy, array);
  return copy;
}

const rt_array *rt_converted(rt_call *call, int32_t index, rt_type type) {
  const rt_array *array = call->operands[index];
  return array->type == type && rt_is_row_major(array) ? array : copy_operand(call, index, type);
}

const rt_array *rt_compact(rt_call *call, int32_t index) {
  return rt_converted(call, index, call->operands[index]->type);
}

const rt_array *rt_integers(rt_call *call, int32_t index) {
  const rt_array *array = copy_operand(call, index, RT_T_I64);
  if (!array || call->operands[index]->type != RT_T_U64) return array;
  int64_t *integers = (int64_t *)array->data;
  for (int64_t i = 0; i < array->count; ++i)
    if (integers[i] < 0) integers[i] = INT64_MAX;
  return array;
}

/* Describe an array with the marked axes last. Return the number of the other axes. */
static int32_t put_axes_last(const rt_array *array, const uint8_t *is_last, rt_array *view) {
  int32_t rank = 0, first = 0;
  *view = *array;
  for (int last = 0; last < 2; ++last) {
    if (last) first = rank;
    for (int32_t axis = 0; axis < array->rank; ++axis) {
      if ((is_last[axis] != 0) != last) continue;
      view->shape[rank] = array->shape[axis];
      view->strides[rank++] = array->strides[axis];
    }
  }
  return first;
}

static const char *read_rows(rt_call *call, const rt_array *array, rt_type type, const uint8_t *is_last, int is_copy,
                             int64_t *num_rows, int64_t *length) {
  rt_array view, rows;
  const int32_t first = put_axes_last(array, is_last, &view);
  *num_rows = rt_num_elements(first, view.shape);
  *length = rt_num_elements(view.rank - first, view.shape + first);
  if (*num_rows < 0 || *length < 0 || !rt_describe(&rows, NULL, type, view.rank, view.shape)) {
    rt_reject(call, "an operand exceeds 64 bits");
    return NULL;
  }
  if (!is_copy && type == view.type && rt_is_row_major(&view)) return view.data;
  rows.data = rt_scratch(call, rows.count, rt_type_nbytes(type));
  if (rows.data) rt_copy_array(&rows, &view);
  return rows.data;
}

const char *rt_rows(rt_call *call, int32_t index, rt_type type, const uint8_t *is_last, int64_t *num_rows,
                    int64_t *length) {
  return read_rows(call, call->operands[index], type, is_last, 0, num_rows, length);
}

double *rt_take_rows(rt_call *call, int32_t index, const uint8_t *is_last, int64_t *num_rows, int64_t *length) {
  return (double *)(uintptr_t)read_rows(call, call->operands[index], RT_T_F64, is_last, 1, num_rows, length);
}

void rt_put_rows(const rt_array *result, const uint8_t *is_last, const double *rows) {
  rt_array view, source;
  put_axes_last(result, is_last, &view);
  (void)rt_describe(&source, (char *)(uintptr_t)rows, RT_T_F64, view.rank, view.shape);
  rt_copy_array(&view, &source);
}

static int32_t check_scalar(const rt_call *call, int32_t index) {
  if (call->operands[index]->count == 1) return 0;
  return rt_reject(call, "operand %d is no scalar", (int)index);
}

int32_t rt_scalar_real(rt_call *call, int32_t index, double *value) {
  const int32_t status = check_scalar(call, index);
  if (!status) rt_convert(RT_T_F64, (char *)value, 0, call->operands[index]->type, call->operands[index]->data, 0, 1);
  return status;
}

int32_t rt_scalar_integer(rt_call *call, int32_t index, int64_t *value) {
  const int32_t status = check_scalar(call, index);
  if (status) return status;
  rt_convert(RT_T_I64, (char *)value, 0, call->operands[index]->type, call->operands[index]->data, 0, 1);
  if (call->operands[index]->type == RT_T_U64 && *value < 0) *value = INT64_MAX;
  return 0;
}

int32_t rt_check_shape(const rt_call *call, const char *operand, const rt_array *array, int32_t rank,
                       const int64_t *shape) {
  if (has_shape(array, rank, shape)) return 0;
  rt_line got = {0}, expected = {0};
  rt_append_shape(&got, array->shape, array->rank);
  rt_append_shape(&expected, shape, rank);
  return rt_reject(call, "operand `%s` has the wrong shape; got %.200s, expected %.200s", operand, got.text,
                   expected.text);
}

int32_t rt_resolve(const rt_call *call, int64_t *indices, int64_t count, int64_t size, int32_t axis) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] < -size || indices[i] >= size) {
      if (!size)
        return rt_reject(call, "an index lies outside axis %d; got %lld, expected no index at all: the axis is empty",
                         (int)axis, (long long)indices[i]);
      return rt_reject(call, "an index lies outside axis %d; got %lld, expected %lld to %lld", (int)axis,
                       (long long)indices[i], (long long)-size, (long long)size - 1);
    }
    if (indices[i] < 0) indices[i] += size;
  }
  return 0;
}

/* ---- Attributes -------------------------------------------------------------------------------------------------- */

const rt_attr *rt_attribute(const rt_call *call, const char *name) {
  for (int32_t i = 0; i < call->node->num_attrs; ++i)
    if (!strcmp(call->attrs[i].name, name)) return &call->attrs[i];
  return NULL; /* never: kernels name attributes of their table */
}

int64_t rt_integer(const rt_call *call, const char *name) { return rt_attribute(call, name)->integer; }

double rt_real(const rt_call *call, const char *name) { return rt_attribute(call, name)->real; }

static int32_t resolve_axis(const rt_call *call, const char *name, int64_t axis, int32_t rank) {
  if (axis >= -rank && axis < rank) return (int32_t)(axis < 0 ? axis + rank : axis);
  rt_reject(call, "attribute `%s` names no axis of a tensor of rank %d; got %lld", name, (int)rank, (long long)axis);
  return -1;
}

int32_t rt_axis(const rt_call *call, const char *name, int32_t rank) {
  return resolve_axis(call, name, rt_integer(call, name), rank);
}

int32_t rt_axes(const rt_call *call, const char *name, int32_t rank, uint8_t *is_named) {
  const rt_attr *attr = rt_attribute(call, name);
  memset(is_named, attr->is_none ? 1 : 0, RT_MAX_RANK);
  for (int32_t i = 0; i < attr->count; ++i) {
    const int32_t axis = resolve_axis(call, name, attr->integers[i], rank);
    if (axis < 0) return BYOC_RT_EXECUTION;
    if (is_named[axis]) return rt_reject(call, "attribute `%s` names axis %d twice", name, (int)axis);
    is_named[axis] = 1;
  }
  return 0;
}

/* Compute the sizes among the attributes of a node. */
static int32_t evaluate_attributes(rt_call *call) {
  const rt_node *node = call->node;
  call->attrs = (rt_attr *)(uintptr_t)node->attrs;
  if (!node->num_integers) return 0;
  call->attrs = rt_scratch(call, node->num_attrs, sizeof *call->attrs);
  int64_t *integers = rt_scratch(call, node->num_integers, sizeof *integers);
  if (!call->attrs || !integers) return BYOC_RT_MEMORY;
  memcpy(call->attrs, node->attrs, (size_t)node->num_attrs * sizeof *call->attrs);
  const frame *f = call->owner;
  for (int32_t i = 0; i < node->num_attrs; ++i) {
    rt_attr *attr = &call->attrs[i];
    if (!attr->dims) continue;
    const int32_t count = attr->kind == RT_ATTR_INTS ? attr->count : 1;
    for (int32_t k = 0; k < count; ++k) {
      integers[k] = attr->kind == RT_ATTR_INTS ? attr->integers[k] : 0;
      if (attr->dims[k] < 0) continue;
      const int32_t status = rt_size(f->graph->dims, attr->dims[k], f->sizes, f->graph->where, &integers[k]);
      if (status) return status;
    }
    attr->integer = integers[0];
    attr->integers = integers;
    integers += count;
  }
  return 0;
}

int32_t rt_num_results(const rt_call *call) { return call->node->num_results; }

rt_type rt_result_type(const rt_call *call, int32_t index) { return call->node->result_types[index]; }

/* ---- Functions --------------------------------------------------------------------------------------------------- */

static int64_t aligned(int64_t nbytes) { return (nbytes + 15) / 16 * 16; }

/* Return the memory of a frame in a block, everything zero. */
static rt_block *new_frame(const rt_graph *graph, rt_heap *heap, frame *f, const rt_array ***operands) {
  const int64_t values = aligned(graph->num_values * (int64_t)sizeof *f->values);
  const int64_t blocks = aligned(graph->num_values * (int64_t)sizeof *f->blocks);
  const int64_t sizes = aligned(rt_num_sizes(graph->dims) * (int64_t)sizeof *f->sizes);
  const int64_t filled = aligned(graph->num_outputs);
  const int64_t total = values + blocks + sizes + filled + graph->most_operands * (int64_t)sizeof **operands;
  rt_block *block = rt_heap_take(heap, total);
  if (!block) return NULL;
  char *at = block->data + values;
  memset(at, 0, (size_t)(total - values));
  *f = (frame){.graph = graph, .heap = heap, .values = (rt_array *)block->data, .blocks = (rt_block **)at};
  f->sizes = (int64_t *)(at + blocks);
  f->is_filled = (uint8_t *)(at + blocks + sizes);
  *operands = (const rt_array **)(at + blocks + sizes + filled);
  rt_forget_sizes(graph->dims, f->sizes);
  for (int32_t i = 0; i < graph->num_constants; ++i) f->values[graph->num_inputs + i] = graph->constants[i];
  return block;
}

static void release_values(frame *f) {
  for (int32_t i = 0; i < f->graph->num_values; ++i) {
    rt_heap_release(f->heap, f->blocks[i]);
    f->blocks[i] = NULL;
  }
}

static int32_t run_body(rt_call *call);

static int32_t run_nodes(frame *f, const rt_array **operands) {
  for (int32_t i = 0; i < f->graph->num_nodes; ++i) {
    const rt_node *node = &f->graph->nodes[i];
    rt_call call = {.owner = f, .node = node, .node_index = i, .operands = operands};
    for (int32_t k = 0; k < node->num_operands; ++k) operands[k] = &f->values[node->operands[k]];
    int32_t status = node->op ? evaluate_attributes(&call) : 0;
    if (!status) status = node->op ? node->op->kernel(&call, node->op->context) : run_body(&call);
    release_scratch(&call);
    if (status) return status;
    for (int32_t k = 0; k < node->num_dead; ++k) {
      rt_heap_release(f->heap, f->blocks[node->dead[k]]);
      f->blocks[node->dead[k]] = NULL;
    }
  }
  return 0;
}

/* Check arguments against their declarations, and bind symbols by their shapes. */
static int32_t take_arguments(frame *f, const rt_spec *specs, const DLTensor *const *tensors, int32_t count,
                              const char *role) {
  const rt_place place = {f->graph->name, role};
  const int32_t status = rt_check_tensors(f->graph->dims, specs, tensors, count, place);
  return status ? status : rt_bind(f->graph->dims, specs, tensors, count, f->sizes, place);
}

/* Bind the symbols of a body by the shapes of the operands. */
static int32_t bind_body(frame *f, const rt_array *const *operands) {
  const rt_graph *graph = f->graph;
  rt_block *block = rt_heap_take(f->heap, graph->num_inputs * (int64_t)(sizeof(DLTensor) + sizeof(DLTensor *)));
  if (!block) return BYOC_RT_MEMORY;
  DLTensor *tensors = (DLTensor *)block->data;
  const DLTensor **pointers = (const DLTensor **)(tensors + graph->num_inputs);
  for (int32_t i = 0; i < graph->num_inputs; ++i) {
    tensors[i] = (DLTensor){.data = operands[i]->data,
                            .device = {kDLCPU, 0},
                            .ndim = operands[i]->rank,
                            .dtype = rt_dtype_of(operands[i]->type),
                            .shape = (int64_t *)(uintptr_t)operands[i]->shape};
    pointers[i] = &tensors[i];
  }
  const int32_t status = take_arguments(f, graph->inputs, pointers, graph->num_inputs, "input");
  rt_heap_release(f->heap, block);
  return status;
}

/* Hand a value of a body over to the node's result. */
static int32_t return_value(rt_call *call, frame *body, int32_t output) {
  frame *f = call->owner;
  const int32_t inner = body->graph->output_values[output], value = call->node->first_result + output;
  f->values[value] = body->values[inner];
  f->blocks[value] = body->blocks[inner];
  if (f->blocks[value]) ++f->blocks[value]->uses;
  return 0;
}

static int32_t run_body(rt_call *call) {
  frame body;
  const rt_array **operands = NULL;
  const rt_graph *graph = call->node->body;
  frame *f = call->owner;
  rt_block *block = new_frame(graph, f->heap, &body, &operands);
  if (!block) return BYOC_RT_MEMORY;
  for (int32_t i = 0; i < graph->num_inputs; ++i) {
    body.values[i] = *call->operands[i];
    body.blocks[i] = f->blocks[call->node->operands[i]];
    if (body.blocks[i]) ++body.blocks[i]->uses;
  }
  int32_t status = bind_body(&body, call->operands);
  if (!status) status = run_nodes(&body, operands);
  for (int32_t i = 0; i < graph->num_outputs && !status; ++i) status = return_value(call, &body, i);
  release_values(&body);
  rt_heap_release(f->heap, block);
  return status;
}

/* Fill an output with a value that is elsewhere. */
static int32_t copy_output(frame *f, int32_t output) {
  const rt_array *value = &f->values[f->graph->output_values[output]];
  rt_array target;
  if (f->results) {
    const DLTensor *tensor =
        byoc_rt_new_result(f->results, output, rt_dtype_of(value->type), value->rank, value->shape);
    if (!tensor) return BYOC_RT_EXECUTION;
    describe_tensor(tensor, value->type, &target);
  } else {
    const DLTensor *tensor = f->tensors[output];
    if (!has_shape(value, tensor->ndim, tensor->shape)) return fail_result(f, output, value, tensor);
    describe_tensor(tensor, value->type, &target);
  }
  rt_copy_array(&target, value);
  return 0;
}

static int32_t run_frame(frame *f, const DLTensor *const *inputs, const rt_array **operands) {
  const rt_graph *graph = f->graph;
  int32_t status = take_arguments(f, graph->inputs, inputs, graph->num_inputs, "input");
  if (!status && f->tensors) status = take_arguments(f, graph->outputs, f->tensors, graph->num_outputs, "output");
  if (status) return status;
  for (int32_t i = 0; i < graph->num_inputs; ++i) {
    rt_type type = RT_T_BOOL;
    (void)rt_type_of(graph->inputs[i].dtype, &type);
    describe_tensor(inputs[i], type, &f->values[i]);
  }
  status = run_nodes(f, operands);
  for (int32_t i = 0; i < graph->num_outputs && !status; ++i)
    if (!f->is_filled[i]) status = copy_output(f, i);
  return status;
}

int32_t rt_run_graph(const rt_graph *graph, rt_heap *heap, const DLTensor *const *inputs, int32_t num_inputs,
                     const DLTensor *const *outputs, byoc_rt_results *results, int32_t num_results) {
  if (num_inputs != graph->num_inputs || num_results != graph->num_outputs)
    return byoc_rt_fail(BYOC_RT_CALL, "%s: wrong number of arguments; got %d inputs and %d results, expected %d and %d",
                        graph->where, (int)num_inputs, (int)num_results, (int)graph->num_inputs,
                        (int)graph->num_outputs);
  frame f;
  const rt_array **operands = NULL;
  rt_block *block = new_frame(graph, heap, &f, &operands);
  if (!block) return BYOC_RT_MEMORY;
  f.tensors = outputs;
  f.results = results;
  const int32_t status = run_frame(&f, inputs, operands);
  release_values(&f);
  rt_heap_release(heap, block);
  return status;
}
