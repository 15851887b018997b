/* The laws of states, as in byoc_core/vm/state_laws.py. The law of reads after the destruction of an old value depends on
 * the order of execution and is not checked: such a read gives bytes inside of the buffer. */
#include "dtypes.h"
#include "program.h"
#include "status.h"

/* The place of an error. */
typedef struct {
  const char *where; /* the program */
  const rt_vm_function *function;
  int32_t index; /* of the state */
} place;

static int32_t fail(const place *self, const char *problem) {
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: function `%s`, state %d: %s", self->where,
                      self->function->name, (int)self->index, problem);
}

/* Mark a number as used; return 0 if it is out of range or was used before. */
static int use(uint8_t *is_used, int32_t number, int32_t count) {
  if (number < 0 || number >= count || is_used[number]) return 0;
  return is_used[number] = 1;
}

static int32_t check_initial(const place *self, const rt_program *program, const rt_state_slot *slot) {
  const rt_spec *spec = &self->function->params[slot->param];
  if (slot->axis >= 0) return fail(self, "has a moving length and an initial constant");
  if (slot->initial >= program->num_constants) return fail(self, "cites a missing constant");
  const rt_constant_ref *constant = &program->constants[slot->initial];
  int is_same = rt_same_dtype(constant->dtype, spec->dtype) && constant->ndim == spec->ndim;
  for (int32_t axis = 0; is_same && axis < spec->ndim; ++axis) {
    int64_t size;
    is_same = rt_is_number(self->function->dims, spec->dims[axis], &size) && size == constant->shape[axis];
  }
  return is_same ? 0 : fail(self, "the initial constant has another type");
}

/* Check the axis of a moving length: a symbol, behind axes of size 1. */
static int32_t check_axis(const place *self, const rt_spec *spec, int32_t moving) {
  if (moving >= spec->ndim) return fail(self, "has no such axis");
  if (!rt_is_symbol(self->function->dims, spec->dims[moving])) return fail(self, "has a moving length that is no symbol");
  for (int32_t axis = 0; axis < moving; ++axis) {
    int64_t size;
    if (!rt_is_number(self->function->dims, spec->dims[axis], &size) || size != 1)
      return fail(self, "has a moving length behind an axis of a size other than 1");
  }
  return 0;
}

static int32_t check_slot(const place *self, const rt_program *program, const rt_state_slot *slot) {
  const rt_spec *before = &self->function->params[slot->param], *after = &self->function->results[slot->result];
  if (!self->function->is_early[slot->result]) return fail(self, "the inputs do not determine the size of the result");
  const int32_t status = slot->axis < 0 ? 0 : check_axis(self, before, slot->axis);
  if (status) return status;
  int is_like = rt_same_dtype(before->dtype, after->dtype) && before->ndim == after->ndim;
  for (int32_t axis = 0; is_like && axis < before->ndim; ++axis)
    is_like = axis == slot->axis || before->dims[axis] == after->dims[axis]; /* equal sizes have equal numbers */
  if (!is_like) return fail(self, "the result does not fit the parameter");
  return slot->initial < 0 ? 0 : check_initial(self, program, slot);
}

/* Check that no moving length is in the size of an axis that does not move: no value could have this size later. */
static int32_t check_fixed_axes(rt_pool *pool, const rt_vm_function *function, const char *where) {
  uint8_t *is_moving = rt_take(pool, (size_t)rt_num_sizes(function->dims), 1); /* by symbol */
  if (!is_moving) return rt_error_status();
  for (int32_t i = 0; i < function->num_states; ++i) {
    const rt_state_slot *slot = &function->states[i];
    if (slot->axis >= 0) is_moving[function->params[slot->param].dims[slot->axis]] = 1;
  }
  for (int32_t i = 0; i < function->num_states; ++i) {
    const rt_state_slot *slot = &function->states[i];
    const rt_spec *spec = &function->params[slot->param];
    for (int32_t axis = 0; axis < spec->ndim; ++axis) {
      const int32_t *symbols, count = rt_symbols_of(function->dims, spec->dims[axis], &symbols);
      for (int32_t k = 0; axis != slot->axis && k < count; ++k)
        if (is_moving[symbols[k]])
          return fail(&(place){where, function, i}, "has a moving length on an axis that does not move");
    }
  }
  return 0;
}

int32_t rt_check_states(rt_pool *pool, const rt_program *program, const rt_vm_function *function, const char *where) {
  if (!function->num_states) return 0;
  uint8_t *params = rt_take(pool, (size_t)function->num_params, 1);
  uint8_t *results = rt_take(pool, (size_t)function->num_results, 1);
  if (!params || !results) return rt_error_status();
  int32_t status = 0;
  for (int32_t i = 0; i < function->num_states && !status; ++i) {
    const place self = {where, function, i};
    const rt_state_slot *slot = &function->states[i];
    if (!use(params, slot->param, function->num_params) || !use(results, slot->result, function->num_results))
      return fail(&self, "a parameter or result is missing, or belongs to two states");
    status = check_slot(&self, program, slot);
  }
  return status ? status : check_fixed_axes(pool, function, where);
}
