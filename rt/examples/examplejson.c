/* The native half of byoc-examplejson: runs the regions of this backend in programs without Python.
 *
 *     cc -shared -fPIC examplejson.c $(python -m byoc_rt --cflags --libs) -o libexamplejson.so
 *     BYOC_RT_RUNTIMES=./libexamplejson.so ./program model.byoc
 *
 * A payload is a text of graphs of float32 tensors, described in the README of byoc-examplejson:
 *
 *     subgraph_0
 *       input 0 10 10
 *       input 1 10 10
 *       add 2 inputs: 0 1 shape: 10 10
 *       output 2
 *
 * All ops are elementwise, so a call computes all values of an element before the next element.
 */
#define _POSIX_C_SOURCE 200809L
#include <byoc_rt.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NDIM = 8 };
typedef enum { INPUT, ADD, SUBTRACT, MULTIPLY } op;

/* A value of a graph: an input, or an op on two earlier values of the same shape. */
typedef struct {
  op op;
  int64_t id;
  int32_t left, right; /* positions of the operands in the graph */
  int32_t ndim;
  int64_t shape[MAX_NDIM], count;
} value;

typedef struct graph {
  struct graph *next;
  const char *name;
  value *values;
  int32_t num_values, num_inputs;
  int32_t *outputs; /* positions of values */
  int32_t num_outputs;
} graph;

typedef struct {
  char *text; /* a copy of the payload, cut into words */
  graph *graphs;
} module;

/* A line being read: the rest of its words, and its name for errors. */
typedef struct {
  const char *where;
  int line;
  char *rest;
} reader;

static int32_t damaged(const reader *reader, const char *problem) {
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s, line %d: %s", reader->where, reader->line, problem);
}

static int32_t no_memory(void) { return byoc_rt_fail(BYOC_RT_MEMORY, "examplejson: no memory"); }

static char *next_word(reader *reader) { return strtok_r(NULL, " \t\r", &reader->rest); }

/* Return whether a word is a number of at most 15 digits. */
static int read_number(const char *word, int64_t *number) {
  const size_t length = word ? strlen(word) : 0;
  if (length < 1 || length > 15 || strspn(word, "0123456789") != length) return 0;
  *number = strtoll(word, NULL, 10);
  return 1;
}

/* Return the position of the value with the id in a word, or -1. */
static int32_t find_value(const graph *graph, const char *word) {
  int64_t id;
  if (!read_number(word, &id)) return -1;
  for (int32_t i = 0; i < graph->num_values; ++i)
    if (graph->values[i].id == id) return i;
  return -1;
}

/* Read the sizes in the rest of a line. */
static int32_t read_shape(reader *reader, value *value) {
  value->count = 1;
  for (const char *word = next_word(reader); word; word = next_word(reader)) {
    int64_t size;
    if (!read_number(word, &size)) return damaged(reader, "a size is no number");
    if (value->ndim == MAX_NDIM || __builtin_mul_overflow(value->count, size, &value->count))
      return damaged(reader, "the tensor is too large");
    value->shape[value->ndim++] = size;
  }
  return 0;
}

static int has_shape(const value *value, int32_t ndim, const int64_t *shape) {
  return value->ndim == ndim && (!ndim || !memcmp(value->shape, shape, (size_t)ndim * sizeof(int64_t)));
}

static int32_t read_value(reader *reader, graph *graph, op op) {
  value new_value = {.op = op};
  const char *id = next_word(reader);
  if (!read_number(id, &new_value.id) || find_value(graph, id) >= 0) return damaged(reader, "a new id is expected");
  if (op != INPUT) {
    const char *inputs = next_word(reader);
    new_value.left = find_value(graph, next_word(reader));
    new_value.right = find_value(graph, next_word(reader));
    const char *shape = next_word(reader);
    if (!inputs || strcmp(inputs, "inputs:") || !shape || strcmp(shape, "shape:") || new_value.left < 0 ||
        new_value.right < 0)
      return damaged(reader, "expected `inputs: ID ID shape: SIZES`, with ids of earlier values");
  }
  if (read_shape(reader, &new_value)) return BYOC_RT_ARTIFACT;
  if (op != INPUT) {
    const value *left = &graph->values[new_value.left], *right = &graph->values[new_value.right];
    if (!has_shape(left, new_value.ndim, new_value.shape) || !has_shape(right, new_value.ndim, new_value.shape))
      return damaged(reader, "the shapes differ");
  }
  value *values = realloc(graph->values, ((size_t)graph->num_values + 1) * sizeof(value));
  if (!values) return no_memory();
  graph->values = values;
  values[graph->num_values++] = new_value;
  graph->num_inputs += op == INPUT;
  return 0;
}

static int32_t add_output(graph *graph, int32_t position) {
  int32_t *outputs = realloc(graph->outputs, ((size_t)graph->num_outputs + 1) * sizeof(int32_t));
  if (!outputs) return no_memory();
  graph->outputs = outputs;
  outputs[graph->num_outputs++] = position;
  return 0;
}

static int32_t read_outputs(reader *reader, graph *graph) {
  for (const char *word = next_word(reader); word; word = next_word(reader)) {
    const int32_t position = find_value(graph, word);
    if (position < 0) return damaged(reader, "an output is no id of a value");
    if (add_output(graph, position)) return BYOC_RT_MEMORY;
  }
  return graph->num_outputs ? 0 : damaged(reader, "an id is expected");
}

static int32_t read_line(reader *reader, module *module, char *line) {
  static const struct {
    const char *name;
    op op;
  } OPS[] = {{"input", INPUT}, {"add", ADD}, {"sub", SUBTRACT}, {"mul", MULTIPLY}};
  const int is_indented = *line == ' ' || *line == '\t';
  char *word = strtok_r(line, " \t\r", &reader->rest);
  if (!word) return 0;
  if (!is_indented) {
    graph *added = calloc(1, sizeof(graph));
    if (!added) return no_memory();
    *added = (graph){.next = module->graphs, .name = word};
    module->graphs = added;
    return 0;
  }
  graph *current = module->graphs;
  if (!current || current->num_outputs) return damaged(reader, "the name of a graph is expected");
  if (!strcmp(word, "output")) return read_outputs(reader, current);
  for (size_t i = 0; i < sizeof OPS / sizeof *OPS; ++i)
    if (!strcmp(word, OPS[i].name)) return read_value(reader, current, OPS[i].op);
  return damaged(reader, "the op is unknown");
}

static void unload(void *context) {
  module *module = context;
  for (graph *graph = module->graphs, *next; graph; graph = next) {
    next = graph->next;
    free(graph->values);
    free(graph->outputs);
    free(graph);
  }
  free(module->text);
  free(module);
}

static int32_t read_text(const byoc_rt_payload *payload, module *module) {
  module->text = malloc(payload->nbytes + 1);
  if (!module->text) return no_memory();
  memcpy(module->text, payload->data, payload->nbytes);
  module->text[payload->nbytes] = '\0';
  reader reader = {.where = payload->where};
  for (char *line = module->text, *next; line; line = next) {
    next = strchr(line, '\n');
    if (next) *next++ = '\0';
    ++reader.line;
    const int32_t status = read_line(&reader, module, line);
    if (status) return status;
  }
  for (graph *graph = module->graphs; graph; graph = graph->next) { /* without outputs, the last op is the output */
    const int32_t last = graph->num_values - 1;
    if (graph->num_outputs) continue;
    if (last < 0 || graph->values[last].op == INPUT) return damaged(&reader, "a graph has no output");
    if (add_output(graph, last)) return BYOC_RT_MEMORY;
  }
  return 0;
}

static int32_t load(const byoc_rt_payload *payload, void **result) {
  module *loaded = calloc(1, sizeof(module));
  if (!loaded) return no_memory();
  const int32_t status = read_text(payload, loaded);
  if (status) unload(loaded);
  else *result = loaded;
  return status;
}

/* Return the elements of an argument, or NULL after setting an error: the program may not fit the graph. */
static float *elements_of(const TVMFFIAny *argument, const value *value) {
  const DLTensor *tensor = argument->v_ptr;
  const DLDataType dtype = tensor->dtype;
  if (dtype.code == kDLFloat && dtype.bits == 32 && dtype.lanes == 1 && has_shape(value, tensor->ndim, tensor->shape))
    return (float *)((char *)tensor->data + tensor->byte_offset);
  byoc_rt_fail(BYOC_RT_EXECUTION, "examplejson: an argument does not fit value %lld", (long long)value->id);
  return NULL;
}

/* Compute an element of each value that has so many elements. */
static void compute(const graph *graph, float *const *inputs, int64_t index, float *numbers) {
  for (int32_t i = 0; i < graph->num_values; ++i) {
    const value *value = &graph->values[i];
    if (value->op == INPUT) ++inputs;
    if (index >= value->count) continue;
    const float left = numbers[value->left], right = numbers[value->right];
    switch (value->op) {
      case INPUT:
        numbers[i] = inputs[-1][index];
        break;
      case ADD:
        numbers[i] = left + right;
        break;
      case SUBTRACT:
        numbers[i] = left - right;
        break;
      case MULTIPLY:
        numbers[i] = left * right;
        break;
    }
  }
}

static int32_t fill(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  const graph *graph = context;
  (void)result;
  float **arrays = malloc((size_t)num_args * sizeof(float *));
  float *numbers = calloc((size_t)graph->num_values, sizeof(float));
  int32_t status = arrays && numbers ? 0 : no_memory(), argument = 0;
  int64_t largest = 0;
  for (int32_t i = 0; i < graph->num_values && !status; ++i) {
    const value *value = &graph->values[i];
    if (value->count > largest) largest = value->count;
    if (value->op == INPUT && !(arrays[argument] = elements_of(&args[argument], value))) status = BYOC_RT_EXECUTION;
    argument += value->op == INPUT;
  }
  for (int32_t i = 0; i < graph->num_outputs && !status; ++i, ++argument) {
    const value *value = &graph->values[graph->outputs[i]];
    if (!(arrays[argument] = elements_of(&args[argument], value))) status = BYOC_RT_EXECUTION;
  }
  for (int64_t index = 0; index < largest && !status; ++index) {
    compute(graph, arrays, index, numbers);
    for (int32_t i = 0; i < graph->num_outputs; ++i) {
      const int32_t position = graph->outputs[i];
      if (index < graph->values[position].count) arrays[graph->num_inputs + i][index] = numbers[position];
    }
  }
  free(numbers);
  free(arrays);
  return status;
}

static int32_t find(void *context, const char *symbol, byoc_rt_entry *entry) {
  module *module = context;
  for (graph *graph = module->graphs; graph; graph = graph->next) {
    if (strcmp(graph->name, symbol)) continue;
    entry->context = graph;
    entry->fill = fill;
    entry->num_inputs = graph->num_inputs;
    entry->num_outputs = graph->num_outputs;
    return 0;
  }
  return byoc_rt_fail(BYOC_RT_LINK, "examplejson: there is no graph `%s`", symbol);
}

__attribute__((visibility("default"))) const byoc_rt_runtime *byoc_rt_runtime_v1(void) {
  static const byoc_rt_runtime RUNTIME = {
      .struct_size = sizeof(byoc_rt_runtime),
      .abi_version = BYOC_RT_ABI_VERSION,
      .type_key = "examplejson",
      .min_format = 1,
      .max_format = 1,
      .load = load,
      .unload = unload,
      .find = find,
  };
  return &RUNTIME;
}
