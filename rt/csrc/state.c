/* The values kept from call to call, as in byoc_core/vm/state.py. */
#include <stdlib.h>
#include <string.h>

#include "dtypes.h"
#include "pause.h"
#include "process.h"
#include "state.h"
#include "status.h"
#include "tensor.h"

enum { FIRST_ROWS = 16 };
static const int64_t DEFAULT_LIMIT = INT32_MAX;

static const rt_state_slot *slot_of(const byoc_rt_state *state, int32_t index) {
  return &state->function->vm->states[index];
}

static const rt_spec *spec_of(const byoc_rt_state *state, int32_t index) {
  return &state->function->vm->params[slot_of(state, index)->param];
}

RT_COLD static int32_t fail_null(void) { return byoc_rt_fail(BYOC_RT_CALL, "state: is a null pointer"); }

RT_COLD static int32_t fail(const byoc_rt_state *state, const char *problem) {
  return byoc_rt_fail(BYOC_RT_CALL, "state of function `%s`: %s", state->function->vm->name, problem);
}

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

RT_COLD static int32_t fail_limit(const byoc_rt_state *state, int32_t index, int64_t rows) {
  return byoc_rt_fail(BYOC_RT_CALL,
                      "state of function `%s`, `%s`: goes over the limit of rows; got %lld, expected at most %lld. Make "
                      "the state with a larger limit.",
                      state->function->vm->name, spec_of(state, index)->name, (long long)rows,
                      (long long)state->limit);
}

/* Return a buffer for a value of a shape, with room for more rows of a moving length than the `present_rows` of an older
 * buffer; NULL after setting an error. */
static DLManagedTensorVersioned *new_buffer(const byoc_rt_state *state, int32_t index, const int64_t *shape,
                                            int64_t present_rows) {
  const rt_spec *spec = spec_of(state, index);
  const int32_t axis = slot_of(state, index)->axis;
  int64_t roomy[RT_MAX_NDIM];
  for (int32_t i = 0; i < spec->ndim; ++i) roomy[i] = shape[i];
  if (axis >= 0) {
    if (shape[axis] > state->limit) {
      (void)fail_limit(state, index, shape[axis]);
      return NULL;
    }
    const int64_t wanted[] = {state->capacity, 2 * present_rows, FIRST_ROWS};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i)
      if (roomy[axis] < wanted[i]) roomy[axis] = wanted[i];
    if (roomy[axis] > state->limit) roomy[axis] = state->limit;
  }
  return rt_new_tensor(spec->dtype, spec->ndim, roomy, state->function->where);
}

static int64_t buffer_nbytes(const DLManagedTensorVersioned *buffer) {
  return buffer ? (int64_t)rt_value_nbytes(&buffer->dl_tensor) : 0;
}

void rt_place_value(byoc_rt_state *state, int32_t index, DLManagedTensorVersioned *buffer, const int64_t *shape) {
  kept_value *kept = &state->values[index];
  atomic_fetch_add(&state->nbytes, buffer_nbytes(buffer) - buffer_nbytes(kept->buffer));
  rt_free_tensor(kept->buffer);
  kept->buffer = buffer;
  kept->value.data = buffer->dl_tensor.data;
  for (int32_t axis = 0; axis < kept->value.ndim; ++axis) kept->value.shape[axis] = shape[axis];
}

/* The rows of a value lie one after the other, because all axes before the axis of rows have size 1. */
size_t rt_value_nbytes(const DLTensor *value) {
  int64_t nbytes = 0;
  (void)rt_count_bytes(value->shape, value->ndim, rt_itemsize(value->dtype), &nbytes);
  return (size_t)nbytes;
}

/* Make room for the rows of a new value. */
static int32_t reserve(byoc_rt_state *state, int32_t index, const int64_t *shape) {
  kept_value *kept = &state->values[index];
  const int32_t axis = slot_of(state, index)->axis;
  const int64_t room = kept->buffer->dl_tensor.shape[axis];
  if (shape[axis] < kept->value.shape[axis]) return fail(state, "the new value has fewer rows than the old value");
  if (shape[axis] <= room) return 0;
  DLManagedTensorVersioned *larger = new_buffer(state, index, shape, room);
  if (!larger) return rt_error_status();
  memcpy(larger->dl_tensor.data, kept->value.data, rt_value_nbytes(&kept->value));
  atomic_fetch_add(&state->moved_nbytes, (int64_t)rt_value_nbytes(&kept->value));
  rt_place_value(state, index, larger, kept->value.shape);
  return 0;
}

void rt_free_values(byoc_rt_state *state) {
  for (int32_t i = 0; i < state->num_values; ++i) {
    rt_free_tensor(state->values[i].buffer);
    state->values[i].buffer = NULL;
  }
  atomic_store(&state->nbytes, 0);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

int32_t rt_hold_state(byoc_rt_state *state) {
  if (!state) return fail_null();
  const int process = rt_process();
  int holder = 0;
  if (atomic_compare_exchange_strong(&state->holder, &holder, process)) return 0;
  if (holder != process && atomic_compare_exchange_strong(&state->holder, &holder, process)) {
    state->is_spoiled = 1; /* forked during a call of the parent, perhaps amid a new value */
    return 0;
  }
  return fail(state, "is in use by another call. Give each sequence of calls a state: byoc_rt_new_state, or "
                     "byoc_rt_fork_state.");
}

void rt_release_state(byoc_rt_state *state) { atomic_store(&state->holder, 0); }

static int32_t check_usable(const byoc_rt_state *state) {
  if (!state->is_spoiled) return 0;
  return fail(state, "is spoiled: an earlier call did not end. Call byoc_rt_reset_state, or byoc_rt_restore_state.");
}

/* Compute the sizes of the symbols of values; before the first call, moving lengths have 0 rows. */
static int32_t bind_values(const byoc_rt_state *state, rt_frame *frame) {
  const rt_vm_function *vm = state->function->vm;
  for (int32_t i = 0; i < vm->num_states; ++i) {
    frame->specs[i] = *spec_of(state, i);
    frame->operands[i] = &state->values[i].value;
    if (!state->has_values && vm->states[i].axis >= 0) frame->sizes[frame->specs[i].dims[vm->states[i].axis]] = 0;
  }
  if (!state->has_values) return 0;
  return rt_bind(vm->dims, frame->specs, frame->operands, vm->num_states, frame->sizes,
                 (rt_place){vm->name, "state"});
}

/* Compute the sizes of the symbols of values, then of inputs. */
static int32_t bind_inputs(const byoc_rt_state *state, rt_frame *frame) {
  const byoc_rt_function *function = state->function;
  const rt_vm_function *vm = function->vm;
  frame->is_laid_out = 0;
  rt_forget_sizes(vm->dims, frame->sizes);
  const int32_t status = bind_values(state, frame);
  if (status) return status;
  for (int32_t i = 0; i < function->num_inputs; ++i) {
    frame->specs[i] = vm->params[function->input_params[i]];
    frame->operands[i] = frame->arguments[function->input_params[i]];
  }
  return rt_bind(vm->dims, frame->specs, frame->operands, function->num_inputs, frame->sizes,
                 (rt_place){vm->name, "input"});
}

/* Make the value before the first call. */
static int32_t make_first_value(byoc_rt_state *state, int32_t index, const rt_frame *frame) {
  const rt_vm_function *vm = state->function->vm;
  const rt_spec *spec = spec_of(state, index);
  const int32_t initial = vm->states[index].initial;
  kept_value *kept = &state->values[index];
  int64_t shape[RT_MAX_NDIM];
  for (int32_t axis = 0; axis < spec->ndim; ++axis) {
    const int32_t status = rt_axis_size(vm->dims, spec->dims[axis], frame->sizes, spec->name, &shape[axis]);
    if (status) return status;
  }
  DLManagedTensorVersioned *buffer = new_buffer(state, index, shape, 0);
  if (!buffer) return rt_error_status();
  rt_place_value(state, index, buffer, shape);
  if (initial >= 0)
    memcpy(kept->value.data, state->function->program->vm_constants[initial]->data, rt_value_nbytes(&kept->value));
  else
    memset(kept->value.data, 0, rt_value_nbytes(&kept->value));
  return 0;
}

static int32_t make_first_values(byoc_rt_state *state, rt_frame *frame) {
  int32_t status = bind_inputs(state, frame);
  for (int32_t i = 0; i < state->num_values && !status; ++i) status = make_first_value(state, i, frame);
  return status;
}

int32_t rt_begin_state(byoc_rt_state *state, rt_frame *frame) {
  const rt_vm_function *vm = state->function->vm;
  int32_t status = check_usable(state);
  if (!status && !state->has_values) status = make_first_values(state, frame);
  if (status) return status;
  for (int32_t i = 0; i < vm->num_states; ++i) frame->arguments[vm->states[i].param] = &state->values[i].value;
  status = rt_lay_out(frame, frame->arguments);
  if (status) {
    const int32_t blamed = bind_inputs(state, frame); /* an error that names the input, rather than a parameter */
    return blamed ? blamed : status;
  }
  for (int32_t i = 0; i < vm->num_states && !status; ++i) {
    DLTensor *result = &frame->frame.tensors[vm->first_result + vm->states[i].result];
    if (vm->states[i].axis >= 0) status = reserve(state, i, result->shape);
    frame->frame.tensors[vm->states[i].param].data = result->data = state->values[i].value.data;
  }
  return !status && state->is_safe ? rt_save_values(state) : status;
}

void rt_set_length(byoc_rt_state *state) {
  int64_t longest = 0;
  for (int32_t i = 0; i < state->num_values && state->has_values; ++i) {
    const int32_t axis = slot_of(state, i)->axis;
    if (axis >= 0 && state->values[i].value.shape[axis] > longest) longest = state->values[i].value.shape[axis];
  }
  atomic_store(&state->length, longest);
}

void rt_end_state(byoc_rt_state *state, const rt_frame *frame, int32_t status) {
  const rt_vm_function *vm = state->function->vm;
  if (status && state->is_safe && !rt_is_ended()) {
    rt_return_to_saved(state);
    return;
  }
  state->has_values = 1;
  state->is_spoiled = status != 0;
  for (int32_t i = 0; i < vm->num_states && !status; ++i) {
    const rt_state_slot *slot = &vm->states[i];
    if (slot->axis < 0) continue;
    const DLTensor *result = &frame->frame.tensors[vm->first_result + slot->result];
    state->values[i].value.shape[slot->axis] = result->shape[slot->axis];
  }
  rt_set_length(state);
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

static int32_t check_options(const byoc_rt_state_options *options) {
  if (!options) return 0;
  if (options->struct_size < sizeof *options)
    return byoc_rt_fail(BYOC_RT_CALL,
                        "options: `struct_size` is not the size of byoc_rt_state_options; got %zu, expected %zu",
                        options->struct_size, sizeof *options);
  const int64_t limit = options->limit ? options->limit : DEFAULT_LIMIT;
  if (options->capacity < 0 || limit < 0 || options->capacity > limit || limit > DEFAULT_LIMIT)
    return byoc_rt_fail(BYOC_RT_CALL,
                        "options: capacity and limit are no numbers of rows; got %lld and %lld, expected 0 to the "
                        "limit, and a limit of at most %lld",
                        (long long)options->capacity, (long long)options->limit, (long long)DEFAULT_LIMIT);
  return 0;
}

byoc_rt_state *rt_make_state(const byoc_rt_function *function, int64_t capacity, int64_t limit,
                             const uint8_t *overwrites) {
  const rt_vm_function *vm = function->vm;
  size_t num_axes = 0;
  for (int32_t i = 0; i < vm->num_states; ++i) num_axes += (size_t)vm->params[vm->states[i].param].ndim;
  const size_t num_values = (size_t)vm->num_states;
  byoc_rt_state *state =
      calloc(1, sizeof *state + num_values * (sizeof *state->values + 1) + num_axes * sizeof(int64_t));
  if (!state) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "function `%s`: no memory for a state", vm->name);
    return NULL;
  }
  state->function = function;
  state->capacity = capacity;
  state->limit = limit;
  state->num_values = vm->num_states;
  state->values = (kept_value *)(void *)(state + 1);
  int64_t *shape = (int64_t *)(void *)(state->values + num_values);
  for (int32_t i = 0; i < vm->num_states; ++i) {
    const rt_spec *spec = spec_of(state, i);
    state->values[i].value =
        (DLTensor){.device = {kDLCPU, 0}, .ndim = spec->ndim, .dtype = spec->dtype, .shape = shape};
    shape += spec->ndim;
  }
  state->overwrites = (uint8_t *)shape;
  state->is_safe = overwrites != NULL;
  if (overwrites) memcpy(state->overwrites, overwrites, num_values);
  return state;
}

int32_t byoc_rt_new_state(const byoc_rt_function *function, const byoc_rt_state_options *options,
                          byoc_rt_state **state) {
  *state = NULL;
  if (!function) return byoc_rt_fail(BYOC_RT_CALL, "function: is a null pointer");
  if (!function->vm->num_states)
    return byoc_rt_fail(BYOC_RT_CALL, "function `%s`: keeps no states. Call byoc_rt_run.", function->vm->name);
  const int32_t status = check_options(options);
  if (status) return status;
  const int64_t limit = options && options->limit ? options->limit : DEFAULT_LIMIT;
  *state = rt_make_state(function, options ? options->capacity : 0, limit, NULL);
  return *state ? 0 : rt_error_status();
}

void byoc_rt_free_state(byoc_rt_state *state) {
  if (!state) return;
  rt_free_values(state);
  for (int32_t i = 0; i < state->num_values; ++i) free(state->values[i].saved);
  free(state);
}

const byoc_rt_function *byoc_rt_state_function(const byoc_rt_state *state) {
  if (!state) (void)fail_null();
  return state ? state->function : NULL;
}

int64_t byoc_rt_state_length(const byoc_rt_state *state) {
  if (!state) (void)fail_null();
  return state ? atomic_load(&state->length) : -1;
}

/* Find the value of a state; NULL after setting an error. */
static const DLTensor *find_value(const byoc_rt_state *state, int32_t index) {
  if (check_usable(state)) return NULL;
  if (state->has_values && index >= 0 && index < state->num_values) return &state->values[index].value;
  if (state->has_values)
    (void)byoc_rt_fail(BYOC_RT_CALL, "state of function `%s`: has no value %d; expected less than %d",
                       state->function->vm->name, (int)index, (int)state->num_values);
  else
    (void)fail(state, "has no values before the first call");
  return NULL;
}

const DLTensor *byoc_rt_state_value(byoc_rt_state *state, int32_t index) {
  if (rt_hold_state(state)) return NULL;
  const DLTensor *value = find_value(state, index);
  rt_release_state(state);
  return value;
}

int32_t byoc_rt_reset_state(byoc_rt_state *state) {
  const int32_t status = rt_hold_state(state);
  if (status) return status;
  rt_free_values(state);
  state->has_values = state->is_spoiled = 0;
  rt_set_length(state);
  rt_release_state(state);
  return 0;
}

/* Copy tensors of right types into new buffers of a state without values. */
static int32_t copy_values(byoc_rt_state *state, const DLTensor *const *values) {
  for (int32_t i = 0; i < state->num_values; ++i) {
    DLManagedTensorVersioned *buffer = new_buffer(state, i, values[i]->shape, 0);
    if (!buffer) return rt_error_status();
    kept_value *kept = &state->values[i];
    rt_place_value(state, i, buffer, values[i]->shape);
    if (rt_value_nbytes(&kept->value)) rt_copy_tensor(values[i], &kept->value, rt_itemsize(kept->value.dtype));
    if (kept->value.dtype.code == kDLBool) rt_clean_bools(kept->value.data, (int64_t)rt_value_nbytes(&kept->value));
  }
  state->has_values = 1;
  rt_set_length(state);
  return 0;
}

/* Check that the sizes of values do not contradict each other. */
static int32_t check_sizes(const byoc_rt_state *state, const DLTensor *const *values) {
  const rt_vm_function *vm = state->function->vm;
  rt_spec *specs = calloc((size_t)vm->num_states, sizeof *specs);
  int64_t *sizes = calloc((size_t)rt_num_sizes(vm->dims) + 1, sizeof *sizes);
  int32_t status = 0;
  if (!specs || !sizes) {
    status = byoc_rt_fail(BYOC_RT_MEMORY, "function `%s`: no memory for the sizes of a state", vm->name);
  } else {
    for (int32_t i = 0; i < vm->num_states; ++i) specs[i] = *spec_of(state, i);
    rt_forget_sizes(vm->dims, sizes);
    status = rt_bind(vm->dims, specs, values, vm->num_states, sizes, (rt_place){vm->name, "state"});
  }
  free(specs);
  free(sizes);
  return status;
}

/* Make a state of copies of tensors; NULL after setting an error. */
static byoc_rt_state *state_of_values(const byoc_rt_state *like, const DLTensor *const *values) {
  byoc_rt_state *state = rt_make_state(like->function, like->capacity, like->limit, NULL);
  if (state && copy_values(state, values)) {
    byoc_rt_free_state(state);
    return NULL;
  }
  return state;
}

static int32_t restore(byoc_rt_state *state, const DLTensor *const *values) {
  for (int32_t i = 0; i < state->num_values; ++i) {
    const int32_t status = rt_check_value(state->function, i, values[i]);
    if (status) return status;
  }
  const int32_t status = check_sizes(state, values);
  if (status) return status;
  byoc_rt_state *copied = state_of_values(state, values);
  if (!copied) return rt_error_status();
  for (int32_t i = 0; i < state->num_values; ++i) { /* the copies change owners */
    rt_place_value(state, i, copied->values[i].buffer, copied->values[i].value.shape);
    copied->values[i].buffer = NULL;
  }
  byoc_rt_free_state(copied);
  state->has_values = 1;
  state->is_spoiled = 0;
  rt_set_length(state);
  return 0;
}

int32_t byoc_rt_restore_state(byoc_rt_state *state, const DLTensor *const *values, int32_t num_values) {
  int32_t status = rt_hold_state(state);
  if (status) return status;
  if (num_values == state->num_values)
    status = restore(state, values);
  else
    status = byoc_rt_fail(BYOC_RT_CALL, "state of function `%s`: wrong number of values; got %d, expected %d",
                          state->function->vm->name, (int)num_values, (int)state->num_values);
  rt_release_state(state);
  return status;
}

/* Make a copy of a state; NULL after setting an error. */
static byoc_rt_state *copy_state(const byoc_rt_state *state) {
  if (check_usable(state)) return NULL;
  if (!state->has_values) return rt_make_state(state->function, state->capacity, state->limit, NULL);
  const DLTensor **values = calloc((size_t)state->num_values, sizeof *values);
  if (!values) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "function `%s`: no memory for a state", state->function->vm->name);
    return NULL;
  }
  for (int32_t i = 0; i < state->num_values; ++i) values[i] = &state->values[i].value;
  byoc_rt_state *copy = state_of_values(state, values);
  free(values);
  return copy;
}

int32_t byoc_rt_fork_state(byoc_rt_state *state, byoc_rt_state **fork) {
  *fork = NULL;
  const int32_t status = rt_hold_state(state);
  if (status) return status;
  *fork = copy_state(state);
  rt_release_state(state);
  return *fork ? 0 : rt_error_status();
}
