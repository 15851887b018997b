/* Runs the functions of graph documents. */
#ifndef BYOC_RT_GRAPH_FUNCTION_H_
#define BYOC_RT_GRAPH_FUNCTION_H_

#include "graph_document.h"
#include "graph_heap.h"

/* Run a function on inputs and outputs, or on inputs and the receiver of results if the function makes its results. */
int32_t rt_run_graph(const rt_graph *graph, rt_heap *heap, const DLTensor *const *inputs, int32_t num_inputs,
                     const DLTensor *const *outputs, byoc_rt_results *results, int32_t num_results);

#endif /* BYOC_RT_GRAPH_FUNCTION_H_ */
