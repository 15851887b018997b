/* Values that survive failed calls, and values that change their machine. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

/* ---- Values before a failed call --------------------------------------------------------------------------------- */

int32_t rt_save_values(byoc_rt_state *state) {
  for (int32_t i = 0; i < state->num_values && state->has_values; ++i) {
    kept_value *kept = &state->values[i];
    const size_t nbytes = rt_value_nbytes(&kept->value);
    if (!state->overwrites[i] || !nbytes) continue;
    if (nbytes > kept->saved_nbytes) {
      char *memory = realloc(kept->saved, nbytes);
      if (!memory)
        return byoc_rt_fail(BYOC_RT_MEMORY, "%s: no memory for the values before the call", state->function->where);
      kept->saved = memory;
      kept->saved_nbytes = nbytes;
    }
    memcpy(kept->saved, kept->value.data, nbytes);
  }
  return 0;
}

void rt_return_to_saved(byoc_rt_state *state) {
  if (!state->has_values) rt_free_values(state);
  for (int32_t i = 0; i < state->num_values && state->has_values; ++i) {
    kept_value *kept = &state->values[i];
    const size_t nbytes = rt_value_nbytes(&kept->value);
    if (state->overwrites[i] && nbytes) memcpy(kept->value.data, kept->saved, nbytes);
  }
}

/* ---- Values that change their machine ---------------------------------------------------------------------------- */

int32_t rt_take_values(byoc_rt_state *state, DLManagedTensorVersioned **buffers, int64_t *rows, byoc_taken *taken) {
  const int32_t status = rt_hold_state(state);
  if (status) return status;
  /* Values taken before are lost: the taker was interrupted, or is the parent of this process. */
  const int is_spoiled = state->is_spoiled || state->is_taken;
  *taken = is_spoiled ? BYOC_TAKEN_SPOILED : state->has_values ? BYOC_TAKEN_VALUES : BYOC_TAKEN_NONE;
  for (int32_t i = 0; i < state->num_values && *taken == BYOC_TAKEN_VALUES; ++i) {
    const int32_t axis = state->function->vm->states[i].axis;
    rows[i] = axis >= 0 ? state->values[i].value.shape[axis] : 0;
    buffers[i] = state->values[i].buffer;
    state->values[i].buffer = NULL;
  }
  if (*taken != BYOC_TAKEN_VALUES) rt_free_values(state);
  state->has_values = state->is_spoiled = 0;
  state->is_taken = 1; /* measures stay, for threads that still read */
  rt_release_state(state);
  return 0;
}

/* A buffer of the caller as a tensor, with the shape behind. */
typedef struct {
  DLManagedTensorVersioned tensor;
  void (*release)(void *context);
  void *context;
  int64_t shape[];
} given_buffer;

static void delete_given(DLManagedTensorVersioned *tensor) {
  given_buffer *given = (given_buffer *)(void *)tensor;
  given->release(given->context);
  free(given);
}

static given_buffer *new_given(const byoc_state_value *value, const char *where) {
  const size_t shape_nbytes = (size_t)value->buffer.ndim * sizeof(int64_t);
  given_buffer *given = malloc(sizeof *given + shape_nbytes);
  if (!given) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "%s: no memory for the values of a state", where);
    return NULL;
  }
  given->tensor = (DLManagedTensorVersioned){
      .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, .deleter = delete_given, .dl_tensor = value->buffer};
  if (shape_nbytes) memcpy(given->shape, value->buffer.shape, shape_nbytes);
  given->tensor.dl_tensor.shape = given->shape;
  given->release = value->release;
  given->context = value->context;
  return given;
}

/* Take over buffers; a state keeps all or none. */
static int32_t place_given(byoc_rt_state *state, const byoc_state_value *values) {
  given_buffer **given = calloc((size_t)state->num_values, sizeof *given);
  int32_t count = 0;
  if (!given)
    return byoc_rt_fail(BYOC_RT_MEMORY, "%s: no memory for the values of a state", state->function->where);
  while (count < state->num_values && (given[count] = new_given(&values[count], state->function->where))) ++count;
  const int is_complete = count == state->num_values;
  for (int32_t i = 0; i < count; ++i) {
    if (!is_complete) {
      free(given[i]);
      continue;
    }
    const int32_t axis = state->function->vm->states[i].axis;
    rt_place_value(state, i, &given[i]->tensor, given[i]->shape);
    if (axis >= 0) state->values[i].value.shape[axis] = values[i].rows;
  }
  free(given);
  return is_complete ? 0 : BYOC_RT_MEMORY;
}

int32_t rt_give_values(byoc_rt_state *state, const byoc_state_value *values) {
  int32_t status = rt_hold_state(state);
  if (status) return status;
  rt_free_values(state);
  if (values) status = place_given(state, values);
  if (!status) {
    atomic_store(&state->moved_nbytes, 0);
    state->has_values = values != NULL;
    state->is_spoiled = state->is_taken = 0;
    rt_set_length(state);
  }
  rt_release_state(state);
  return status;
}
