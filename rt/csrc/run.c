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
  if (!function) return byoc_rt_fail(BYOC_RT_CALL, "function: is a null pointer");
  if (num_inputs != function->vm->num_params)
    return fail_count(function, "input", num_inputs, function->vm->num_params);
  if (num_outputs != function->vm->num_results)
    return fail_count(function, "output", num_outputs, function->vm->num_results);
  return 0;
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
  const rt_vm_function *vm = frame->function->vm;
  for (int32_t i = 0; i < vm->num_results; ++i) {
    DLTensor *result = &frame->frame.tensors[vm->first_result + i];
    if (!vm->is_early[i]) continue;
    results[i] = rt_new_tensor(result->dtype, result->ndim, result->shape, frame->function->where);
    if (!results[i]) return rt_error_status();
    result->data = results[i]->dl_tensor.data;
  }
  return 0;
}

/* Take the results of sizes learnt during the run. */
static int32_t take_results(rt_frame *frame, const rt_instruction *ret, DLManagedTensorVersioned **results) {
  const rt_vm_function *vm = frame->function->vm;
  for (int32_t i = 0; i < vm->num_results; ++i)
    if (!vm->is_early[i] && !(results[i] = rt_take_dynamic(frame, ret->args[i]))) return rt_error_status();
  return 0;
}

static int32_t run(rt_frame *frame, const DLTensor *const *inputs, DLManagedTensorVersioned **results) {
  const rt_instruction *ret;
  int32_t status = rt_accept(frame, inputs);
  if (!status) status = make_results(frame, results);
  if (!status) status = execute(frame, &ret);
  return status ? status : take_results(frame, ret, results);
}

int32_t byoc_rt_run(const byoc_rt_function *function, const DLTensor *const *inputs, int32_t num_inputs,
                    DLManagedTensorVersioned **results, int32_t num_results) {
  int32_t status = check_counts(function, num_inputs, num_results);
  if (status) return status;
  rt_frame *frame = rt_take_frame(function);
  if (!frame) return rt_error_status();
  for (int32_t i = 0; i < num_results; ++i) results[i] = NULL;
  status = run(frame, inputs, results);
  rt_return_frame(frame);
  for (int32_t i = 0; i < num_results && status; ++i) {
    rt_free_tensor(results[i]);
    results[i] = NULL;
  }
  return status;
}

RT_COLD static int32_t fail_shape(const rt_vm_function *vm, int32_t index, const DLTensor *output,
                                  const DLTensor *result) {
  rt_line got = {.length = 0}, expected = {.length = 0};
  rt_append_shape(&got, output->shape, output->ndim);
  rt_append_shape(&expected, result->shape, result->ndim);
  return byoc_rt_fail(BYOC_RT_CALL,
                      "function `%s`, output %d `%s`: has another shape than the result; got %s, expected %s",
                      vm->name, (int)index, vm->results[index].name, got.text, expected.text);
}

/* Copy the results of sizes learnt during the run into the outputs. */
static int32_t copy_results(rt_frame *frame, const rt_instruction *ret, DLTensor *const *outputs) {
  const rt_vm_function *vm = frame->function->vm;
  for (int32_t i = 0; i < vm->num_results; ++i) {
    if (vm->is_early[i]) continue;
    DLManagedTensorVersioned *result = rt_take_dynamic(frame, ret->args[i]);
    if (!result) return rt_error_status();
    int32_t status = 0;
    for (int32_t axis = 0; axis < outputs[i]->ndim && !status; ++axis)
      if (outputs[i]->shape[axis] != result->dl_tensor.shape[axis])
        status = fail_shape(vm, i, outputs[i], &result->dl_tensor);
    if (!status) rt_copy_tensor(&result->dl_tensor, outputs[i], vm->registers[ret->args[i]].itemsize);
    rt_free_tensor(result);
    if (status) return status;
  }
  return 0;
}

static int32_t run_into(rt_frame *frame, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const rt_vm_function *vm = frame->function->vm;
  const rt_instruction *ret;
  int32_t status = rt_accept(frame, inputs);
  if (!status) status = rt_check_outputs(frame, inputs, outputs);
  if (status) return status;
  for (int32_t i = 0; i < vm->num_results; ++i)
    if (vm->is_early[i]) frame->frame.tensors[vm->first_result + i].data = rt_data(outputs[i]);
  status = execute(frame, &ret);
  return status ? status : copy_results(frame, ret, outputs);
}

int32_t byoc_rt_run_into(const byoc_rt_function *function, const DLTensor *const *inputs, int32_t num_inputs,
                         DLTensor *const *outputs, int32_t num_outputs) {
  int32_t status = check_counts(function, num_inputs, num_outputs);
  if (status) return status;
  rt_frame *frame = rt_take_frame(function);
  if (!frame) return rt_error_status();
  status = run_into(frame, inputs, outputs);
  rt_return_frame(frame);
  return status;
}
