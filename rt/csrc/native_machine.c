/* The library as a native machine of byoc-core: sessions in Python run functions by it. */
#include "core_abi.h"
#include "machine.h"
#include "native_machine.h"
#include "pause.h"

static int32_t load(const void *data, size_t nbytes, void **program) {
  return byoc_rt_load_bytes(data, nbytes, NULL, (byoc_rt_program **)program);
}

static void unload(void *program) { byoc_rt_unload(program); }

static int32_t find_function(void *program, const char *name, int32_t *num_inputs, int32_t *num_outputs,
                             const void **found) {
  const byoc_rt_function *function = byoc_rt_find_function(program, name);
  if (!function) return BYOC_RT_CALL;
  *num_inputs = byoc_rt_num_inputs(function);
  *num_outputs = byoc_rt_num_outputs(function);
  *found = function;
  return 0;
}

static int32_t run(const void *function, const DLTensor *const *inputs, int32_t num_inputs,
                   struct DLManagedTensorVersioned **results, int32_t num_results, const byoc_pause *pause) {
  const rt_pauses before = rt_begin_pauses(pause);
  const int32_t status = byoc_rt_run(function, inputs, num_inputs, results, num_results);
  rt_end_pauses(before);
  return status;
}

static int32_t run_into(const void *function, const DLTensor *const *inputs, int32_t num_inputs,
                        DLTensor *const *outputs, int32_t num_outputs, const byoc_pause *pause) {
  const rt_pauses before = rt_begin_pauses(pause);
  const int32_t status = byoc_rt_run_into(function, inputs, num_inputs, outputs, num_outputs);
  rt_end_pauses(before);
  return status;
}

static const DLTensor *tensor_of(const struct DLManagedTensorVersioned *result) { return &result->dl_tensor; }

static void release(struct DLManagedTensorVersioned *result) { result->deleter(result); }

BYOC_EXPORT const byoc_native_machine *byoc_native_machine_table(void) {
  static const byoc_native_machine machine = {
      .version = BYOC_NATIVE_MACHINE_VERSION,
      .add_runtime = byoc_rt_load_runtime,
      .load = load,
      .unload = unload,
      .find_function = find_function,
      .run = run,
      .run_into = run_into,
      .tensor_of = tensor_of,
      .release = release,
      .last_error = byoc_rt_last_error,
  };
  return &machine;
}
