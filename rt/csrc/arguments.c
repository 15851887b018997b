/* The arguments of a call, in the words of byoc_core/runtime/arguments.py. */
#include <stdlib.h>
#include <string.h>

#include "dtypes.h"
#include "machine.h"
#include "tensor.h"

/* An argument in errors. */
typedef struct {
  const rt_vm_function *vm;
  const char *role;
  int32_t index;  /* of the input or output */
  int32_t number; /* of the parameter or result: those of states count too */
  const rt_spec *spec;
} argument;

static argument input_at(const byoc_rt_function *function, int32_t index) {
  const int32_t number = function->input_params[index];
  return (argument){function->vm, "input", index, number, &function->vm->params[number]};
}

static argument output_at(const byoc_rt_function *function, int32_t index) {
  const int32_t number = function->output_results[index];
  return (argument){function->vm, "output", index, number, &function->vm->results[number]};
}

RT_COLD static int32_t fail(const argument *self, const char *problem) {
  return byoc_rt_fail(BYOC_RT_CALL, "function `%s`, %s %d `%s`: %s", self->vm->name, self->role, (int)self->index,
                      self->spec->name, problem);
}

RT_COLD static int32_t fail_type(const argument *self, const DLTensor *tensor) {
  rt_line got = {.length = 0}, expected = {.length = 0};
  if (!rt_same_dtype(tensor->dtype, self->spec->dtype)) {
    rt_append_dtype(&got, tensor->dtype);
    rt_append_dtype(&expected, self->spec->dtype);
    rt_line text = {.length = 0};
    rt_append(&text, "wrong dtype; got %s, expected %s", got.text, expected.text);
    return fail(self, text.text);
  }
  if (tensor->ndim > 0 && tensor->ndim <= RT_MAX_NDIM && tensor->shape)
    rt_append_shape(&got, tensor->shape, tensor->ndim);
  rt_append_spec_shape(&expected, self->vm->dims, self->spec, NULL);
  return byoc_rt_fail(BYOC_RT_CALL, "function `%s`, %s %d `%s`: wrong rank; got %d%s%s, expected %d, shape %s",
                      self->vm->name, self->role, (int)self->index, self->spec->name, (int)tensor->ndim,
                      got.length ? ", shape " : "", got.text, (int)self->spec->ndim, expected.text);
}

/* Check device, dtype, rank and shape of a tensor; compute the bytes of its elements. */
static int32_t check_tensor(const argument *self, const DLTensor *tensor, int64_t *nbytes) {
  if (!tensor) return fail(self, "is a null pointer");
  if (tensor->device.device_type != kDLCPU) return fail(self, "is not in CPU memory");
  if (!rt_same_dtype(tensor->dtype, self->spec->dtype) || tensor->ndim != self->spec->ndim)
    return fail_type(self, tensor);
  if (tensor->ndim > 0 && !tensor->shape) return fail(self, "has no shape");
  if (!rt_count_bytes(tensor->shape, tensor->ndim, rt_itemsize(tensor->dtype), nbytes))
    return fail(self, "has a negative size, or more bytes than memory can hold");
  return *nbytes && !tensor->data ? fail(self, "has no data") : 0;
}

int32_t rt_check_value(const byoc_rt_function *function, int32_t index, const DLTensor *value) {
  const int32_t param = function->vm->states[index].param;
  const argument self = {function->vm, "state", index, param, &function->vm->params[param]};
  int64_t nbytes;
  return check_tensor(&self, value, &nbytes);
}

static int is_aligned(const DLTensor *tensor) {
  return (uintptr_t)rt_data(tensor) % (uintptr_t)rt_dtype_alignment(tensor->dtype) == 0;
}

/* Copy an argument that the function cannot read in place, for the time of the call. */
static int32_t copy_input(rt_frame *frame, const argument *self, const DLTensor *input, int64_t nbytes) {
  char *copy = malloc((size_t)nbytes + 1);
  if (!copy)
    return byoc_rt_fail(BYOC_RT_MEMORY, "function `%s`, input %d `%s`: %lld bytes for a copy cannot be allocated",
                        self->vm->name, (int)self->index, self->spec->name, (long long)nbytes);
  frame->copies[self->number] = copy;
  const DLTensor target = {.data = copy, .ndim = input->ndim, .dtype = input->dtype, .shape = input->shape};
  rt_copy_tensor(input, &target, rt_itemsize(input->dtype));
  if (input->dtype.code == kDLBool) rt_clean_bools((uint8_t *)copy, nbytes);
  frame->frame.tensors[self->number].data = copy;
  return 0;
}

static int32_t accept_input(rt_frame *frame, const argument *self, const DLTensor *input) {
  int64_t nbytes;
  const int32_t status = check_tensor(self, input, &nbytes);
  if (status) return status;
  if (nbytes && (!rt_has_compact_strides(input->shape, input->strides, input->ndim) || !is_aligned(input) ||
                 (input->dtype.code == kDLBool && !rt_are_clean_bools((const uint8_t *)rt_data(input), nbytes))))
    return copy_input(frame, self, input, nbytes);
  frame->frame.tensors[self->number].data = nbytes ? rt_data(input) : input->data;
  return 0;
}

int32_t rt_accept(rt_frame *frame, const DLTensor *const *inputs) {
  for (int32_t i = 0; i < frame->function->num_inputs; ++i) {
    const argument self = input_at(frame->function, i);
    const int32_t status = accept_input(frame, &self, inputs[i]);
    if (status) return status;
    frame->arguments[self.number] = inputs[i];
  }
  return 0;
}

/* The addresses of the elements of a tensor. */
typedef struct {
  uintptr_t begin, end;
} span;

static span span_of(const DLTensor *tensor) {
  const int64_t itemsize = rt_itemsize(tensor->dtype);
  const uintptr_t data = (uintptr_t)rt_data(tensor);
  int64_t nbytes, lowest, highest;
  if (!rt_count_bytes(tensor->shape, tensor->ndim, itemsize, &nbytes) || !nbytes) return (span){data, data};
  if (!rt_find_extent(tensor->shape, tensor->strides, tensor->ndim, &lowest, &highest)) return (span){0, UINTPTR_MAX};
  return (span){data + (uintptr_t)(lowest * itemsize), data + (uintptr_t)((highest + 1) * itemsize)};
}

static int overlaps(span left, span right) {
  return left.begin < right.end && right.begin < left.end && left.begin < left.end && right.begin < right.end;
}

RT_COLD static int32_t fail_axis(const rt_frame *frame, const argument *self, const DLTensor *output, int32_t axis) {
  rt_line text = {.length = 0};
  rt_append(&text, "axis %d has the wrong size; got ", (int)axis);
  rt_append_shape(&text, output->shape, output->ndim);
  rt_append(&text, ", expected ");
  rt_append_spec_shape(&text, self->vm->dims, self->spec, frame->sizes);
  return fail(self, text.text);
}

/* Check an output against the declaration and, if the size is known, against the shape. */
static int32_t check_output(const rt_frame *frame, const argument *self, const DLTensor *output) {
  const DLTensor *expected = &frame->frame.tensors[self->vm->first_result + self->number];
  int64_t nbytes;
  const int32_t status = check_tensor(self, output, &nbytes);
  if (status) return status;
  if (!rt_has_compact_strides(output->shape, output->strides, output->ndim)) return fail(self, "is not contiguous");
  if (nbytes && !is_aligned(output)) return fail(self, "is not aligned for the elements");
  if (!self->vm->is_early[self->number]) return 0;
  for (int32_t axis = 0; axis < output->ndim; ++axis)
    if (output->shape[axis] != expected->shape[axis]) return fail_axis(frame, self, output, axis);
  return 0;
}

RT_COLD static int32_t fail_shared(const argument *self, const argument *other) {
  rt_line text = {.length = 0};
  rt_append(&text, "shares memory with %s %d `%s`", other->role, (int)other->index, other->spec->name);
  return fail(self, text.text);
}

/* Check that an output shares no memory with inputs and with earlier outputs. */
static int32_t check_separate(const byoc_rt_function *function, const argument *self, const DLTensor *const *inputs,
                              DLTensor *const *outputs) {
  const span output = span_of(outputs[self->index]);
  for (int32_t i = 0; i < function->num_inputs; ++i) {
    const argument other = input_at(function, i);
    if (overlaps(output, span_of(inputs[i]))) return fail_shared(self, &other);
  }
  for (int32_t i = 0; i < self->index; ++i) {
    const argument other = output_at(function, i);
    if (overlaps(output, span_of(outputs[i]))) return fail_shared(self, &other);
  }
  return 0;
}

int32_t rt_check_outputs(const rt_frame *frame, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const byoc_rt_function *function = frame->function;
  for (int32_t i = 0; i < function->num_outputs; ++i) {
    const argument self = output_at(function, i);
    int32_t status = check_output(frame, &self, outputs[i]);
    if (!status) status = check_separate(function, &self, inputs, outputs);
    if (status) return status;
  }
  return 0;
}
