/* The runtime `graph`. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "graph_function.h"

typedef struct {
  rt_pool *pool;
  rt_heaps *heaps;
  rt_document *document;
  struct entry *entries; /* by function */
} graph_module;

/* The context of a function's entry. */
typedef struct entry {
  const rt_graph *graph;
  rt_heaps *heaps;
  const byoc_rt_tensor_info *inputs, *outputs;
} entry;

static void unload(void *pointer) {
  graph_module *module = pointer;
  if (!module) return;
  rt_heaps_free(module->heaps);
  rt_pool_free(module->pool);
  free(module);
}

/* Return the public description of inputs or outputs; NULL after setting an error. */
static const byoc_rt_tensor_info *describe(rt_pool *pool, const rt_dims *dims, const rt_spec *specs, int32_t count) {
  byoc_rt_tensor_info *infos = rt_take(pool, (size_t)count, sizeof *infos);
  for (int32_t i = 0; i < count && infos; ++i) {
    int64_t *shape = rt_take(pool, (size_t)specs[i].ndim, sizeof *shape);
    const char **texts = rt_take(pool, (size_t)specs[i].ndim, sizeof *texts);
    if (!shape || !texts) return NULL;
    for (int32_t axis = 0; axis < specs[i].ndim; ++axis) {
      if (!rt_is_number(dims, specs[i].dims[axis], &shape[axis])) shape[axis] = -1;
      texts[axis] = rt_dim_text(dims, specs[i].dims[axis]);
    }
    infos[i] = (byoc_rt_tensor_info){specs[i].name, specs[i].dtype, specs[i].ndim, shape, texts};
  }
  return infos;
}

static int32_t make_entries(graph_module *module) {
  const int32_t count = module->document->num_functions;
  module->entries = rt_take(module->pool, (size_t)count, sizeof *module->entries);
  if (!module->entries) return BYOC_RT_MEMORY;
  for (int32_t i = 0; i < count; ++i) {
    const rt_graph *graph = &module->document->functions[i];
    entry *made = &module->entries[i];
    made->graph = graph;
    made->heaps = module->heaps;
    made->inputs = describe(module->pool, graph->dims, graph->inputs, graph->num_inputs);
    made->outputs = describe(module->pool, graph->dims, graph->outputs, graph->num_outputs);
    if (!made->inputs || !made->outputs) return BYOC_RT_MEMORY;
  }
  return 0;
}

static int32_t load(const byoc_rt_payload *payload, void **pointer) {
  graph_module *module = calloc(1, sizeof *module);
  if (!module) return byoc_rt_fail(BYOC_RT_MEMORY, "%s: a module cannot be allocated", payload->where);
  int32_t status = BYOC_RT_MEMORY;
  module->pool = rt_pool_new();
  module->heaps = module->pool ? rt_heaps_new() : NULL;
  if (module->heaps) {
    module->document = rt_read_document(module->pool, payload);
    status = module->document ? 0 : BYOC_RT_ARTIFACT;
  }
  if (!status) status = make_entries(module);
  if (status) {
    unload(module);
    return status;
  }
  *pointer = module;
  return 0;
}

enum { MANY_ARGUMENTS = 64 };

/* Return the tensors of arguments, in `few` or in new memory; NULL after setting an error. */
static const DLTensor **tensors_of(const rt_graph *graph, const TVMFFIAny *args, int32_t count,
                                   const DLTensor **few) {
  const DLTensor **tensors = few;
  if (count > MANY_ARGUMENTS) tensors = malloc((size_t)count * sizeof *tensors);
  if (!tensors) {
    byoc_rt_fail(BYOC_RT_MEMORY, "%s: the arguments cannot be allocated", graph->where);
    return NULL;
  }
  for (int32_t i = 0; i < count; ++i) tensors[i] = args[i].v_ptr;
  return tensors;
}

static int32_t fill(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  const entry *self = context;
  const rt_graph *graph = self->graph;
  (void)result;
  if (num_args != graph->num_inputs + graph->num_outputs)
    return byoc_rt_fail(BYOC_RT_CALL, "%s: wrong number of arguments; got %d, expected %d", graph->where,
                        (int)num_args, (int)(graph->num_inputs + graph->num_outputs));
  const DLTensor *few[MANY_ARGUMENTS];
  const DLTensor **tensors = tensors_of(graph, args, num_args, few);
  if (!tensors) return BYOC_RT_MEMORY;
  int32_t status = BYOC_RT_MEMORY;
  rt_heap *heap = rt_heap_acquire(self->heaps);
  if (heap) {
    status = rt_run_graph(graph, heap, tensors, graph->num_inputs, tensors + graph->num_inputs, NULL,
                          graph->num_outputs);
    rt_heap_return(self->heaps, heap);
  }
  if (tensors != few) free(tensors);
  return status;
}

static int32_t make(void *context, const DLTensor *const *inputs, int32_t num_inputs, byoc_rt_results *results,
                    int32_t num_results) {
  const entry *self = context;
  rt_heap *heap = rt_heap_acquire(self->heaps);
  if (!heap) return BYOC_RT_MEMORY;
  const int32_t status = rt_run_graph(self->graph, heap, inputs, num_inputs, NULL, results, num_results);
  rt_heap_return(self->heaps, heap);
  return status;
}

static int32_t find(void *pointer, const char *symbol, byoc_rt_entry *found) {
  graph_module *module = pointer;
  for (int32_t i = 0; i < module->document->num_functions; ++i) {
    const rt_graph *graph = &module->document->functions[i];
    if (strcmp(graph->name, symbol)) continue;
    const size_t struct_size = found->struct_size;
    *found = (byoc_rt_entry){.struct_size = struct_size,
                             .context = &module->entries[i],
                             .num_inputs = graph->num_inputs,
                             .num_outputs = graph->num_outputs,
                             .inputs = module->entries[i].inputs,
                             .outputs = module->entries[i].outputs};
    if (graph->makes_results)
      found->make = make;
    else
      found->fill = fill;
    found->takes_strides = !graph->makes_results;
    return 0;
  }
  return byoc_rt_fail(BYOC_RT_LINK, "the graph document has no function `%s`", symbol);
}

const byoc_rt_runtime *rt_graph_runtime(void) {
  static const byoc_rt_runtime runtime = {
      .struct_size = sizeof(byoc_rt_runtime),
      .abi_version = BYOC_RT_ABI_VERSION,
      .type_key = "graph",
      .min_format = 1,
      .max_format = 3,
      .load = load,
      .unload = unload,
      .find = find,
  };
  return &runtime;
}
