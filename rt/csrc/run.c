/* Calls of functions by the user of the library. */
#include <string.h>

#include "machine.h"
#include "status.h"
#include "tensor.h"

RT_COLD static int32_t fail_count(const byoc_rt_function *function, const char *role, int32_t got, int32_t expected) {
  return byoc_rt_fail(BYOC_RT_CALL, "function `%s`: wrong number of %ss; got %d, expected %d", function->vm->name, role,
                      (int)got, (int)expected);
}

static int32_t check_counts(const byoc_rt_function *function, int32_t num_inputs, int32_t num_outputs) {
  if (num_inputs != function->num_inputs) return fail_count(function, "input", num_inputs, function->num_inputs);
  if (num_outputs != function->num_outputs)
    return fail_count(function, "output", num_outputs, function->num_outputs);
  return 0;
}

/* Check the function of a call without a state. */
static int32_t check_stateless(const byoc_rt_function *function) {
  if (!function) return byoc_rt_fail(BYOC_RT_CALL, "function: is a null pointer");
  if (!function->vm->num_states) return 0;
  return byoc_rt_fail(BYOC_RT_CALL,
                      "function `%s`: keeps states from call to call. Make a state by byoc_rt_new_state, and call "
                      "byoc_rt_run_state.",
                      function->vm->name);
}

/* Fit a frame to the inputs of a call, and to the values of a state, if any. */
static int32_t begin(rt_frame *frame, const DLTensor *const *inputs, byoc_rt_state *state) {
  const int32_t status = rt_accept(frame, inputs);
  if (status) return status;
  return state ? rt_begin_state(state, frame) : rt_lay_out(frame, frame->arguments);
}

/* Run a frame whose parameters and results of known sizes have memory. */
static int32_t execute(rt_frame *frame, const rt_instruction **ret) {
  const rt_threads *threads = &frame->function->program->threads;
  rt_point_views(frame);
  const int before = rt_enter_threads(threads);
  const int32_t status = rt_execute(frame, 0, ret);
  rt_leave_threads(threads, before);
  return status;
}

/* Make the results of sizes known before the run. */
static int32_t make_results(rt_frame *frame, DLManagedTensorVersioned **results) {
  const byoc_rt_function *function = frame->function;
  for (int32_t i = 0; i < function->num_outputs; ++i) {
    const int32_t number = function->output_results[i];
    DLTensor *result = &frame->frame.tensors[function->vm->first_result + number];
    if (!function->vm->is_early[number]) continue;
    results[i] = rt_new_tensor(result->dtype, result->ndim, result->shape, frame->function->where);
    if (!results[i]) return rt_error_status();
    result->data = results[i]->dl_tensor.data;
  }
  return 0;
}

/* Take the results of sizes learnt during the run. */
static int32_t take_results(rt_frame *frame, const rt_instruction *ret, DLManagedTensorVersioned **results) {
  const byoc_rt_function *function = frame->function;
  for (int32_t i = 0; i < function->num_outputs; ++i) {
    const int32_t number = function->output_results[i];
    if (function->vm->is_early[number]) continue;
    if (!(results[i] = rt_take_dynamic(frame, ret->args[number]))) return rt_error_status();
  }
  return 0;
}

static int32_t run(rt_frame *frame, byoc_rt_state *state, const DLTensor *const *inputs,
                   DLManagedTensorVersioned **results) {
  const rt_instruction *ret;
  int32_t status = begin(frame, inputs, state);
  if (!status) status = make_results(frame, results);
  if (status) return status;
  status = execute(frame, &ret);
  if (!status) status = take_results(frame, ret, results);
  if (state) rt_end_state(state, frame, status);
  return status;
}

/* Run a function on new results. */
static int32_t run_new(const byoc_rt_function *function, byoc_rt_state *state, const DLTensor *const *inputs,
                       int32_t num_inputs, DLManagedTensorVersioned **results, int32_t num_results) {
  int32_t status = check_counts(function, num_inputs, num_results);
  if (status) return status;
  rt_frame *frame = rt_take_frame(function);
  if (!frame) return rt_error_status();
  for (int32_t i = 0; i < num_results; ++i) results[i] = NULL;
  status = run(frame, state, inputs, results);
  rt_return_frame(frame);
  for (int32_t i = 0; i < num_results && status; ++i) {
    rt_free_tensor(results[i]);
    results[i] = NULL;
  }
  return status;
}

int32_t byoc_rt_run(const byoc_rt_function *function, const DLTensor *const *inputs, int32_t num_inputs,
                    DLManagedTensorVersioned **results, int32_t num_results) {
  const int32_t status = check_stateless(function);
  return status ? status : run_new(function, NULL, inputs, num_inputs, results, num_results);
}

int32_t rt_run_held_state(byoc_rt_state *state, const DLTensor *const *inputs, int32_t num_inputs,
                          DLManagedTensorVersioned **results, int32_t num_results) {
  return run_new(byoc_rt_state_function(state), state, inputs, num_inputs, results, num_results);
}

int32_t byoc_rt_run_state(byoc_rt_state *state, const DLTensor *const *inputs, int32_t num_inputs,
                          DLManagedTensorVersioned **results, int32_t num_results) {
  int32_t status = rt_hold_state(state);
  if (status) return status;
  status = rt_run_held_state(state, inputs, num_inputs, results, num_results);
  rt_release_state(state);
  return status;
}

RT_COLD static int32_t fail_shape(const byoc_rt_function *function, int32_t index, const DLTensor *output,
                                  const DLTensor *result) {
  rt_line got = {.length = 0}, expected = {.length = 0};
  rt_append_shape(&got, output->shape, output->ndim);
  rt_append_shape(&expected, result->shape, result->ndim);
  return byoc_rt_fail(BYOC_RT_CALL,
                      "function `%s`, output %d `%s`: has another shape than the result; got %s, expected %s",
                      function->vm->name, (int)index, function->outputs[index].name, got.text, expected.text);
}

/* Copy the results of sizes learnt during the run into the outputs. */
static int32_t copy_results(rt_frame *frame, const rt_instruction *ret, DLTensor *const *outputs) {
  const byoc_rt_function *function = frame->function;
  for (int32_t i = 0; i < function->num_outputs; ++i) {
    const int32_t number = function->output_results[i];
    if (function->vm->is_early[number]) continue;
    DLManagedTensorVersioned *result = rt_take_dynamic(frame, ret->args[number]);
    if (!result) return rt_error_status();
    int32_t status = 0;
    for (int32_t axis = 0; axis < outputs[i]->ndim && !status; ++axis)
      if (outputs[i]->shape[axis] != result->dl_tensor.shape[axis])
        status = fail_shape(function, i, outputs[i], &result->dl_tensor);
    if (!status) rt_copy_tensor(&result->dl_tensor, outputs[i], function->vm->registers[ret->args[number]].itemsize);
    rt_free_tensor(result);
    if (status) return status;
  }
  return 0;
}

static int32_t run_into(rt_frame *frame, byoc_rt_state *state, const DLTensor *const *inputs,
                        DLTensor *const *outputs) {
  const byoc_rt_function *function = frame->function;
  const rt_instruction *ret;
  int32_t status = begin(frame, inputs, state);
  if (!status) status = rt_check_outputs(frame, inputs, outputs);
  if (status) return status;
  for (int32_t i = 0; i < function->num_outputs; ++i) {
    const int32_t number = function->output_results[i];
    if (function->vm->is_early[number])
      frame->frame.tensors[function->vm->first_result + number].data = rt_data(outputs[i]);
  }
  status = execute(frame, &ret);
  if (!status) status = copy_results(frame, ret, outputs);
  if (state) rt_end_state(state, frame, status);
  return status;
}

/* Run a function on given outputs. */
static int32_t run_given(const byoc_rt_function *function, byoc_rt_state *state, const DLTensor *const *inputs,
                         int32_t num_inputs, DLTensor *const *outputs, int32_t num_outputs) {
  int32_t status = check_counts(function, num_inputs, num_outputs);
  if (status) return status;
  rt_frame *frame = rt_take_frame(function);
  if (!frame) return rt_error_status();
  status = run_into(frame, state, inputs, outputs);
  rt_return_frame(frame);
  return status;
}

int32_t byoc_rt_run_into(const byoc_rt_function *function, const DLTensor *const *inputs, int32_t num_inputs,
                         DLTensor *const *outputs, int32_t num_outputs) {
  const int32_t status = check_stateless(function);
  return status ? status : run_given(function, NULL, inputs, num_inputs, outputs, num_outputs);
}

int32_t rt_run_held_state_into(byoc_rt_state *state, const DLTensor *const *inputs, int32_t num_inputs,
                               DLTensor *const *outputs, int32_t num_outputs) {
  return run_given(byoc_rt_state_function(state), state, inputs, num_inputs, outputs, num_outputs);
}

int32_t byoc_rt_run_state_into(byoc_rt_state *state, const DLTensor *const *inputs, int32_t num_inputs,
                               DLTensor *const *outputs, int32_t num_outputs) {
  int32_t status = rt_hold_state(state);
  if (status) return status;
  status = rt_run_held_state_into(state, inputs, num_inputs, outputs, num_outputs);
  rt_release_state(state);
  return status;
}
