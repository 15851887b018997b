/* The library as a native machine of byoc-core: sessions in Python run functions by it. */
#include "core_abi.h"
#include "machine.h"
#include "native_machine.h"
#include "pause.h"
#include "state.h"

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

static int32_t new_state(const void *function, const byoc_state_options *options, void **state) {
  *state = rt_make_state(function, options->capacity, options->limit, options->overwrites);
  return *state ? 0 : BYOC_RT_MEMORY;
}

static void free_state(void *state) { byoc_rt_free_state(state); }

/* Take a state with values, or before the first call, for a call; return 0 if another call or machine has it. */
static int hold_available(byoc_rt_state *state) {
  if (rt_hold_state(state)) return 0;
  if (!state->is_taken) return 1;
  rt_release_state(state);
  return 0;
}

static int32_t run_state(void *state, const DLTensor *const *inputs, int32_t num_inputs,
                         struct DLManagedTensorVersioned **results, int32_t num_results, const byoc_pause *pause) {
  if (!hold_available(state)) return BYOC_STATE_UNAVAILABLE;
  const rt_pauses before = rt_begin_pauses(pause);
  const int32_t status = rt_run_held_state(state, inputs, num_inputs, results, num_results);
  rt_end_pauses(before);
  rt_release_state(state);
  return status;
}

static int32_t run_state_into(void *state, const DLTensor *const *inputs, int32_t num_inputs, DLTensor *const *outputs,
                              int32_t num_outputs, const byoc_pause *pause) {
  if (!hold_available(state)) return BYOC_STATE_UNAVAILABLE;
  const rt_pauses before = rt_begin_pauses(pause);
  const int32_t status = rt_run_held_state_into(state, inputs, num_inputs, outputs, num_outputs);
  rt_end_pauses(before);
  rt_release_state(state);
  return status;
}

static byoc_state_size measure_state(const void *address) {
  const byoc_rt_state *state = address;
  return (byoc_state_size){atomic_load(&state->length), atomic_load(&state->nbytes), atomic_load(&state->moved_nbytes)};
}

static int32_t take_values(void *state, struct DLManagedTensorVersioned **buffers, int64_t *rows, byoc_taken *taken) {
  return rt_take_values(state, buffers, rows, taken);
}

static int32_t give_values(void *state, const byoc_state_value *values) { return rt_give_values(state, values); }

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
      .new_state = new_state,
      .free_state = free_state,
      .run_state = run_state,
      .run_state_into = run_state_into,
      .measure_state = measure_state,
      .take_values = take_values,
      .give_values = give_values,
      .tensor_of = tensor_of,
      .release = release,
      .last_error = byoc_rt_last_error,
  };
  return &machine;
}
