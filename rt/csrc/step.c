/* The steps: instructions on dynamic registers, and calls of functions of the program. */
#include <stdlib.h>
#include <string.h>

#include "dtypes.h"
#include "status.h"
#include "machine.h"
#include "tensor.h"

/* The instruction of a step. */
typedef struct {
  rt_frame *frame;
  const rt_instruction *call;
  int32_t index;
  int depth;
} step;

/* Receives the results of an external function. */
struct byoc_rt_results {
  const step *step;
};

static DLTensor *tensor_of(const step *self, int32_t number) { return &self->frame->frame.tensors[number]; }

static const rt_register *register_of(const step *self, int32_t number) {
  return &self->frame->function->vm->registers[number];
}

/* Wrap the last error. */
static int32_t fail_below(const step *self) {
  const int32_t status = rt_error_status();
  return rt_fail_instruction(self->frame, self->index, status == BYOC_RT_MEMORY ? status : BYOC_RT_EXECUTION,
                             byoc_rt_last_error());
}

static int32_t fail(const step *self, const char *problem) {
  return rt_fail_instruction(self->frame, self->index, BYOC_RT_EXECUTION, problem);
}

/* Return the slot of a dynamic register. */
static DLManagedTensorVersioned **slot_of(const rt_frame *frame, int32_t number) {
  return &frame->dynamics[number - frame->function->vm->first_dynamic];
}

RT_COLD static int32_t fail_undefined(const rt_frame *frame, int32_t number) {
  rt_line name = {.length = 0};
  rt_append_register(&name, frame->function->vm, number);
  return byoc_rt_fail(BYOC_RT_EXECUTION, "register %s is read before it is defined", name.text);
}

/* Fail unless registers have memory. */
static int32_t check_defined(const step *self, const int32_t *registers, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    if (register_of(self, registers[i])->kind != RT_DYNAMIC || *slot_of(self->frame, registers[i])) continue;
    (void)fail_undefined(self->frame, registers[i]);
    return fail_below(self);
  }
  return 0;
}

DLManagedTensorVersioned *rt_take_dynamic(rt_frame *frame, int32_t number) {
  DLManagedTensorVersioned **slot = slot_of(frame, number), *taken = *slot;
  if (!taken) (void)fail_undefined(frame, number);
  *slot = NULL;
  return taken;
}

/* Give a dynamic register its tensor, in place of any earlier tensor. */
static void define(rt_frame *frame, int32_t number, DLManagedTensorVersioned *tensor) {
  DLManagedTensorVersioned **slot = slot_of(frame, number);
  rt_free_tensor(*slot);
  *slot = tensor;
  frame->frame.tensors[number].data = tensor->dl_tensor.data;
  frame->frame.tensors[number].shape = tensor->dl_tensor.shape;
}

/* Free the tensors made so far for the results of a call. */
static void drop_made(const step *self) {
  for (int32_t i = 0; i < self->call->num_results; ++i) {
    rt_free_tensor(self->frame->made[i]);
    self->frame->made[i] = NULL;
  }
}

static void begin_making(const step *self) {
  for (int32_t i = 0; i < self->call->num_results; ++i) self->frame->made[i] = NULL;
}

/* Check the tensors made for the dynamic results of a call against the registers, learn the sizes of symbols, and
 * define the registers. Free the tensors on an error. */
static int32_t define_made(const step *self) {
  rt_frame *frame = self->frame;
  const rt_vm_function *vm = frame->function->vm;
  const rt_place place = {vm->name, "returned value"};
  int32_t count = 0;
  for (int32_t i = 0; i < self->call->num_results; ++i) {
    if (!frame->made[i]) continue;
    const rt_register *reg = register_of(self, self->call->results[i]);
    for (int32_t k = 0; k < reg->num_binds; ++k) frame->sizes[reg->binds[k]] = RT_UNKNOWN;
    frame->specs[count] = reg->spec;
    frame->operands[count++] = &frame->made[i]->dl_tensor;
  }
  if (rt_check_tensors(vm->dims, frame->specs, frame->operands, count, place) ||
      rt_bind(vm->dims, frame->specs, frame->operands, count, frame->sizes, place)) {
    drop_made(self);
    return fail_below(self);
  }
  for (int32_t i = 0; i < self->call->num_results; ++i)
    if (frame->made[i]) define(frame, self->call->results[i], frame->made[i]);
  return 0;
}

/* Make a tensor of the shape of a register for the symbols known now; NULL after setting an error. */
static DLManagedTensorVersioned *allocate(const step *self, int32_t number) {
  const rt_vm_function *vm = self->frame->function->vm;
  const rt_spec *spec = &register_of(self, number)->spec;
  int64_t shape[RT_MAX_NDIM];
  for (int32_t axis = 0; axis < spec->ndim; ++axis)
    if (rt_axis_size(vm->dims, spec->dims[axis], self->frame->sizes, spec->name, &shape[axis])) return NULL;
  return rt_new_tensor(spec->dtype, spec->ndim, shape, spec->name);
}

/* ---- External functions ------------------------------------------------------------------------------------------ */

static int32_t call_fill(const step *self) {
  const byoc_rt_function *function = self->frame->function;
  const byoc_instruction *instruction = &function->code[self->index];
  TVMFFIAny result = {.type_index = kTVMFFINone};
  const int32_t status = instruction->function(instruction->context, self->frame->frame.operands + instruction->first,
                                               instruction->count, &result);
  return status ? rt_fail_extern(self->frame, self->index, status) : 0;
}

static int32_t run_extern(const step *self) {
  int32_t status = check_defined(self, self->call->args, self->call->num_args);
  if (!status) status = check_defined(self, self->call->results, self->call->num_results);
  return status ? status : call_fill(self);
}

DLTensor *byoc_rt_new_result(byoc_rt_results *results, int32_t index, DLDataType dtype, int32_t ndim,
                             const int64_t *shape) {
  const step *self = results->step;
  if (index < 0 || index >= self->call->num_results || ndim < 0 || ndim > RT_MAX_NDIM) {
    (void)byoc_rt_fail(BYOC_RT_EXECUTION, "result %d of rank %d: no such result", (int)index, (int)ndim);
    return NULL;
  }
  DLManagedTensorVersioned **made = &self->frame->made[index];
  rt_free_tensor(*made);
  *made = rt_new_tensor(dtype, ndim, shape, "result");
  return *made ? &(*made)->dl_tensor : NULL;
}

/* Call a function that makes its results. */
static int32_t run_make(const step *self, const byoc_rt_entry *entry) {
  rt_frame *frame = self->frame;
  byoc_rt_results results = {self};
  for (int32_t i = 0; i < self->call->num_args; ++i) frame->operands[i] = tensor_of(self, self->call->args[i]);
  begin_making(self);
  const int32_t status =
      entry->make(entry->context, frame->operands, self->call->num_args, &results, self->call->num_results);
  if (status) {
    (void)rt_fail_extern(frame, self->index, status); /* before the error of this thread can change */
    drop_made(self);
    return BYOC_RT_EXECUTION;
  }
  for (int32_t i = 0; i < self->call->num_results; ++i) {
    if (frame->made[i]) continue;
    drop_made(self);
    return fail(self, "the function has not made all of its results");
  }
  return define_made(self);
}

/* Call a function that fills buffers, on new buffers of the known sizes. */
static int32_t run_fill_new(const step *self) {
  begin_making(self);
  for (int32_t i = 0; i < self->call->num_results; ++i) {
    if (!(self->frame->made[i] = allocate(self, self->call->results[i]))) {
      drop_made(self);
      return fail_below(self);
    }
  }
  /* The arguments may be the earlier tensors of the registers: these stay until the call has returned. */
  TVMFFIAny *operands = self->frame->frame.operands + self->frame->function->code[self->index].first;
  for (int32_t i = 0; i < self->call->num_results; ++i)
    operands[self->call->num_args + i].v_ptr = &self->frame->made[i]->dl_tensor;
  const int32_t status = call_fill(self);
  for (int32_t i = 0; i < self->call->num_results; ++i)
    operands[self->call->num_args + i].v_ptr = tensor_of(self, self->call->results[i]);
  if (!status) return define_made(self);
  drop_made(self);
  return status;
}

static int32_t run_packed(const step *self) {
  const byoc_rt_entry *entry = &self->frame->function->program->externs[self->call->callee].entry;
  const int32_t status = check_defined(self, self->call->args, self->call->num_args);
  if (status) return status;
  return entry->make ? run_make(self, entry) : run_fill_new(self);
}

/* ---- Functions of the program ------------------------------------------------------------------------------------ */

RT_COLD static int32_t fail_buffer(const step *self, int32_t number, const DLTensor *result) {
  const DLTensor *buffer = tensor_of(self, number);
  rt_line text = {.length = 0};
  rt_append(&text, "register ");
  rt_append_register(&text, self->frame->function->vm, number);
  rt_append(&text, " has another size than the result; got ");
  rt_append_shape(&text, buffer->shape, buffer->ndim);
  rt_append(&text, ", expected ");
  rt_append_shape(&text, result->shape, result->ndim);
  return fail(self, text.text);
}

/* Check a buffer against the shape of a result. */
static int32_t check_buffer(const step *self, int32_t number, const DLTensor *result) {
  const DLTensor *buffer = tensor_of(self, number);
  for (int32_t axis = 0; axis < buffer->ndim; ++axis)
    if (buffer->shape[axis] != result->shape[axis]) return fail_buffer(self, number, result);
  return 0;
}

/* Give the callee memory for the results of sizes known before the run. */
static int32_t provide_results(const step *self, rt_frame *callee) {
  const rt_vm_function *vm = callee->function->vm;
  for (int32_t i = 0; i < vm->num_results; ++i) {
    if (!vm->is_early[i]) continue;
    DLTensor *result = &callee->frame.tensors[vm->first_result + i];
    const int32_t number = self->call->results[i];
    if (register_of(self, number)->kind == RT_DYNAMIC) {
      self->frame->made[i] = rt_new_tensor(result->dtype, result->ndim, result->shape, callee->function->where);
      if (!self->frame->made[i]) return fail_below(self);
      result->data = self->frame->made[i]->dl_tensor.data;
    } else {
      const int32_t status = check_buffer(self, number, result);
      if (status) return status;
      result->data = tensor_of(self, number)->data;
    }
  }
  return 0;
}

/* Take the results of sizes learnt by the callee: a dynamic register takes the tensor, a buffer the elements. */
static int32_t take_results(const step *self, rt_frame *callee, const rt_instruction *ret) {
  const rt_vm_function *vm = callee->function->vm;
  for (int32_t i = 0; i < vm->num_results; ++i) {
    if (vm->is_early[i]) continue;
    const int32_t number = self->call->results[i];
    DLManagedTensorVersioned *taken = rt_take_dynamic(callee, ret->args[i]);
    if (!taken) return fail_below(self);
    if (register_of(self, number)->kind == RT_DYNAMIC) {
      self->frame->made[i] = taken;
      continue;
    }
    const int32_t status = check_buffer(self, number, &taken->dl_tensor);
    if (!status) rt_copy_tensor(&taken->dl_tensor, tensor_of(self, number), register_of(self, number)->itemsize);
    rt_free_tensor(taken);
    if (status) return status;
  }
  return 0;
}

/* Fit a frame of the callee to the arguments of the call. */
static int32_t pass_arguments(const step *self, rt_frame *callee) {
  const DLTensor **arguments = self->frame->operands;
  for (int32_t i = 0; i < self->call->num_args; ++i) {
    arguments[i] = tensor_of(self, self->call->args[i]);
    callee->frame.tensors[i].data = arguments[i]->data;
  }
  return rt_lay_out(callee, arguments) ? fail_below(self) : 0;
}

static int32_t run_callee(const step *self, rt_frame *callee) {
  const rt_instruction *ret;
  int32_t status = pass_arguments(self, callee);
  if (!status) status = provide_results(self, callee);
  if (status) return status;
  rt_point_views(callee);
  status = rt_execute(callee, self->depth + 1, &ret);
  return status ? status : take_results(self, callee, ret);
}

static int32_t run_function(const step *self) {
  int32_t status = check_defined(self, self->call->args, self->call->num_args);
  if (status) return status;
  begin_making(self); /* the dynamic results */
  if (self->depth >= RT_MAX_CALLS) return fail(self, "functions are nested too deep");
  rt_frame *callee = rt_take_frame(&self->frame->function->program->functions[self->call->callee]);
  if (!callee) return fail_below(self);
  status = run_callee(self, callee);
  rt_return_frame(callee);
  if (!status) return define_made(self);
  drop_made(self);
  return status;
}

/* ---- Builtins ---------------------------------------------------------------------------------------------------- */

/* Give a dynamic register memory of undefined content. */
static int32_t run_allocate(const step *self) {
  const int32_t number = self->call->results[0];
  DLManagedTensorVersioned *made = allocate(self, number);
  if (!made) return fail_below(self);
  define(self->frame, number, made);
  return 0;
}

/* Define registers by copies of the arguments, made before any register changes. */
static int32_t run_clone(const step *self) {
  const int32_t status = check_defined(self, self->call->args, self->call->num_args);
  if (status) return status;
  begin_making(self);
  for (int32_t i = 0; i < self->call->num_args; ++i) {
    const DLTensor *argument = tensor_of(self, self->call->args[i]);
    DLManagedTensorVersioned *made = rt_new_tensor(argument->dtype, argument->ndim, argument->shape, "clone");
    if (!made) {
      drop_made(self);
      return fail_below(self);
    }
    self->frame->made[i] = made;
    rt_copy_tensor(argument, &made->dl_tensor, register_of(self, self->call->args[i])->itemsize);
  }
  return define_made(self);
}

static int32_t run_builtin(const step *self) {
  if (self->call->callee == RT_ALLOCATE) return run_allocate(self);
  if (self->call->callee == RT_CLONE) return run_clone(self);
  int32_t status = check_defined(self, self->call->args, self->call->num_args);
  if (!status) status = check_defined(self, self->call->results, self->call->num_results);
  if (status) return status;
  return rt_run_single(self->frame, self->index) ? 0 : rt_fail_copy(self->frame, self->index);
}

int32_t rt_step(rt_frame *frame, int32_t index, int depth, int32_t *next) {
  const step self = {frame, &frame->function->vm->code[index], index, depth};
  *next = index + 1;
  if (self.call->opcode == RT_IF) {
    const int32_t condition = self.call->args[0], status = check_defined(&self, &condition, 1);
    if (!status && !*(const uint8_t *)tensor_of(&self, condition)->data) *next = self.call->target;
    return status;
  }
  switch (self.call->call_kind) {
    case RT_CALL_EXTERN:
      return run_extern(&self);
    case RT_CALL_PACKED:
      return run_packed(&self);
    case RT_CALL_FUNCTION:
      return run_function(&self);
    default:
      return run_builtin(&self);
  }
}
