/* The laws of programs needed by the machine. The laws depending on the order of execution are not checked: a register
 * read before it is written holds undefined bytes, but lies in memory; a register never defined is found when used. */
#include <stdlib.h>
#include <string.h>

#include "archive.h"
#include "dtypes.h"
#include "status.h"
#include "program.h"

/* The state of checking a function. */
typedef struct {
  rt_pool *pool;
  const char *where; /* the program */
  const rt_program *program;
  rt_vm_function *function;
  int32_t index;     /* of the instruction; -1: none */
  int32_t *stamps;   /* by register: the last set of registers with the register */
  int32_t num_stamps;
} checker;

static int32_t fail(const checker *self, const char *problem) {
  rt_line place = {.length = 0};
  if (self->index >= 0) rt_append(&place, ", instruction %d", (int)self->index);
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: function `%s`%s: %s", self->where, self->function->name,
                      place.text, problem);
}

static int32_t fail_register(const checker *self, int32_t number, const char *problem) {
  rt_line name = {.length = 0};
  rt_append_register(&name, self->function, number);
  rt_append(&name, " %s", problem);
  rt_line text = {.length = 0};
  rt_append(&text, "register %s", name.text);
  return fail(self, text.text);
}

/* ---- Declarations ------------------------------------------------------------------------------------------------ */

/* Give the registers of constants dtype and shape. */
static int32_t check_constants(const checker *self) {
  rt_vm_function *function = self->function;
  for (int32_t i = 0; i < function->num_constants; ++i) {
    rt_register *reg = &function->registers[function->first_constant + i];
    if (reg->owner >= self->program->num_constants)
      return fail_register(self, function->first_constant + i, "cites a missing constant");
    const rt_constant_ref *constant = &self->program->constants[reg->owner];
    int32_t *dims = rt_take(self->pool, (size_t)constant->ndim, sizeof *dims);
    if (!dims) return rt_error_status();
    for (int32_t axis = 0; axis < constant->ndim; ++axis)
      if ((dims[axis] = rt_number(function->dims, constant->shape[axis])) < 0) return rt_error_status();
    reg->spec = (rt_spec){NULL, constant->dtype, constant->ndim, dims};
    reg->itemsize = rt_itemsize(constant->dtype);
  }
  return 0;
}

static int are_known(const rt_dims *dims, const rt_spec *spec, const uint8_t *is_known) {
  for (int32_t axis = 0; axis < spec->ndim; ++axis) {
    const int32_t *symbols;
    const int32_t count = rt_symbols_of(dims, spec->dims[axis], &symbols);
    for (int32_t i = 0; i < count; ++i)
      if (!is_known[symbols[i]]) return 0;
  }
  return 1;
}

/* Find the symbols determined by the inputs, and the results of known sizes. */
static int32_t find_known(const checker *self) {
  rt_vm_function *function = self->function;
  uint8_t *is_known = rt_take(self->pool, (size_t)rt_num_sizes(function->dims), 1);
  uint8_t *is_early = rt_take(self->pool, (size_t)function->num_results, 1);
  if (!is_known || !is_early) return rt_error_status();
  for (int has_changed = 1; has_changed;) {
    has_changed = 0;
    for (int32_t i = 0; i < function->num_params; ++i) {
      const rt_spec *spec = &function->params[i];
      for (int32_t axis = 0; axis < spec->ndim; ++axis) {
        int32_t symbol;
        if (!rt_determines(function->dims, spec->dims[axis], is_known, &symbol)) continue;
        is_known[symbol] = 1;
        has_changed = 1;
      }
    }
  }
  for (int32_t i = 0; i < function->num_results; ++i)
    is_early[i] = (uint8_t)are_known(function->dims, &function->results[i], is_known);
  function->is_known = is_known;
  function->is_early = is_early;
  return 0;
}

static int32_t check_planned(const checker *self, int32_t number) {
  const rt_register *reg = &self->function->registers[number];
  if (reg->owner >= self->function->num_storages) return fail_register(self, number, "lies in a missing storage");
  if (reg->offset < 0 || reg->offset % RT_ALIGNMENT) return fail_register(self, number, "is not aligned");
  return are_known(self->function->dims, &reg->spec, self->function->is_known)
             ? 0
             : fail_register(self, number, "has a size not determined by the inputs");
}

static int32_t check_dynamic(const checker *self, int32_t number) {
  rt_register *reg = &self->function->registers[number];
  rt_line name = {.length = 0};
  rt_append_register(&name, self->function, number);
  if (!(reg->spec.name = rt_copy(self->pool, rt_text_of(name.text)))) return rt_error_status();
  for (int32_t i = 0; i < reg->num_binds; ++i)
    if (self->function->is_known[reg->binds[i]])
      return fail_register(self, number, "binds a symbol already bound by the inputs");
  return 0;
}

static int32_t check_view(const checker *self, int32_t number) {
  const rt_vm_function *function = self->function;
  const rt_register *reg = &function->registers[number];
  if (reg->owner >= function->first_view || function->registers[reg->owner].kind == RT_DYNAMIC ||
      !are_known(function->dims, &function->registers[reg->owner].spec, function->is_known))
    return fail_register(self, number, "is a view of a register without memory of known size");
  if (!rt_same_dtype(reg->spec.dtype, function->registers[reg->owner].spec.dtype))
    return fail_register(self, number, "has another dtype than the base of the view");
  return 0;
}

static int32_t check_declarations(const checker *self) {
  const rt_vm_function *function = self->function;
  int32_t status = check_constants(self);
  if (!status) status = find_known(self);
  for (int32_t i = 0; i < function->num_registers && !status; ++i) {
    switch (function->registers[i].kind) {
      case RT_TENSOR:
        status = check_planned(self, i);
        break;
      case RT_DYNAMIC:
        status = check_dynamic(self, i);
        break;
      case RT_VIEW:
        status = check_view(self, i);
        break;
      default:
        break;
    }
  }
  return status;
}

/* ---- Instructions ------------------------------------------------------------------------------------------------ */

/* Begin an empty set of registers. */
static void begin_set(checker *self) { ++self->num_stamps; }

/* Add a register to the set; return whether the register was there already. */
static int was_in_set(checker *self, int32_t number) {
  const int was = self->stamps[number] == self->num_stamps;
  self->stamps[number] = self->num_stamps;
  return was;
}

/* Check that registers exist, and have memory as far as known before the run. */
static int32_t check_registers(const checker *self, const int32_t *registers, int32_t count) {
  const rt_vm_function *function = self->function;
  for (int32_t i = 0; i < count; ++i) {
    if (registers[i] >= function->num_registers) return fail(self, "no such register");
    if (function->registers[registers[i]].kind == RT_RESULT &&
        !function->is_early[registers[i] - function->first_result])
      return fail_register(self, registers[i], "has no memory before the function returns");
  }
  return 0;
}

static int32_t check_target(const checker *self, int32_t target) {
  return target < self->function->num_instructions ? 0 : fail(self, "the jump target is outside the function");
}

/* Check that two tensors may be the same: dtype, rank, and sizes known on both sides; symbols of different functions
 * are unrelated. */
static int32_t check_like(const checker *self, int32_t number, const rt_dims *dims, const rt_spec *expected) {
  const rt_spec *spec = &self->function->registers[number].spec;
  if (!rt_same_dtype(spec->dtype, expected->dtype) || spec->ndim != expected->ndim)
    return fail_register(self, number, "has another dtype or rank than declared by the callee");
  for (int32_t axis = 0; axis < spec->ndim; ++axis) {
    int64_t size, expected_size;
    if (rt_is_number(self->function->dims, spec->dims[axis], &size) &&
        rt_is_number(dims, expected->dims[axis], &expected_size) && size != expected_size)
      return fail_register(self, number, "has another size than declared by the callee");
  }
  return 0;
}

static int32_t check_scalar(const checker *self, int32_t number, uint8_t code, uint8_t bits) {
  const rt_spec *spec = &self->function->registers[number].spec;
  if (spec->ndim == 0 && rt_same_dtype(spec->dtype, (DLDataType){code, bits, 1})) return 0;
  return fail_register(self, number, "is not the scalar expected by the instruction");
}

/* Return whether a call defines its dynamic results, rather than filling them. */
static int is_defining(const rt_instruction *call) {
  return call->call_kind == RT_CALL_PACKED || call->call_kind == RT_CALL_FUNCTION ||
         (call->call_kind == RT_CALL_BUILTIN && call->callee == RT_CLONE);
}

static int32_t check_results(checker *self, const rt_instruction *call) {
  if (!call->num_results) return fail(self, "a call without results");
  begin_set(self);
  for (int32_t i = 0; i < call->num_results; ++i) {
    const int32_t number = call->results[i];
    const rt_register_kind owner = rt_owner(self->function, number)->kind;
    if (owner == RT_PARAM || owner == RT_CONSTANT) return fail_register(self, number, "is read-only");
    if (was_in_set(self, number)) return fail_register(self, number, "is written twice");
    if (owner != RT_DYNAMIC && call->call_kind == RT_CALL_PACKED)
      return fail_register(self, number, "cannot hold a returned value");
    if (self->function->registers[number].num_binds && !is_defining(call))
      return fail_register(self, number, "binds symbols: only a returned value can define the register");
  }
  return 0;
}

static int32_t check_function_call(const checker *self, const rt_instruction *call) {
  const rt_vm_function *callee = &self->program->functions[call->callee];
  if (callee->num_states) return fail(self, "calls a function with states");
  if (call->num_args != callee->num_params || call->num_results != callee->num_results)
    return fail(self, "wrong number of arguments or results of a function");
  int32_t status = 0;
  for (int32_t i = 0; i < call->num_args && !status; ++i)
    status = check_like(self, call->args[i], callee->dims, &callee->params[i]);
  for (int32_t i = 0; i < call->num_results && !status; ++i)
    status = check_like(self, call->results[i], callee->dims, &callee->results[i]);
  return status;
}

/* Check a builtin of equal arguments and results. */
static int32_t check_copies(const checker *self, const rt_instruction *call) {
  const rt_vm_function *function = self->function;
  for (int32_t i = 0; i < call->num_results; ++i) {
    const int32_t status = check_like(self, call->args[i], function->dims, &function->registers[call->results[i]].spec);
    if (status) return status;
  }
  return 0;
}

static int32_t check_all_dynamic(const checker *self, const rt_instruction *call) {
  for (int32_t i = 0; i < call->num_results; ++i)
    if (self->function->registers[call->results[i]].kind != RT_DYNAMIC)
      return fail_register(self, call->results[i], "is not dynamic");
  return 0;
}

static int32_t check_builtin(const checker *self, const rt_instruction *call) {
  static const int32_t num_args[RT_NUM_BUILTINS] = {[RT_COPY] = 1, [RT_LOOP_TEST] = 3};
  const int is_clone = call->callee == RT_CLONE;
  const int32_t expected = is_clone ? call->num_results : num_args[call->callee];
  if (call->num_args != expected || (!is_clone && call->num_results != 1))
    return fail(self, "wrong number of operands of a builtin");
  int32_t status = 0;
  switch (call->callee) {
    case RT_COPY:
      return check_copies(self, call);
    case RT_ALLOCATE:
      return check_all_dynamic(self, call);
    case RT_LOOP_TEST:
      status = check_scalar(self, call->args[0], kDLInt, 64);
      if (!status) status = check_scalar(self, call->args[1], kDLInt, 64);
      if (!status) status = check_scalar(self, call->args[2], kDLBool, 8);
      return status ? status : check_scalar(self, call->results[0], kDLBool, 8);
    case RT_CLONE:
      status = check_all_dynamic(self, call);
      return status ? status : check_copies(self, call);
    default:
      return check_scalar(self, call->results[0], kDLInt, 64);
  }
}

/* Mark the views with strides in a call of a callee without strides. */
static void require_compact(const checker *self, const int32_t *registers, int32_t count) {
  for (int32_t i = 0; i < count; ++i) self->function->registers[registers[i]].needs_compact = 1;
}

static int32_t check_call(checker *self, const rt_instruction *call) {
  const int32_t num_callees[] = {self->program->num_externs, self->program->num_externs, self->program->num_functions,
                                 RT_NUM_BUILTINS};
  if (call->callee >= num_callees[call->call_kind]) return fail(self, "no such callee");
  int32_t status = check_registers(self, call->args, call->num_args);
  if (!status) status = check_registers(self, call->results, call->num_results);
  if (!status) status = check_results(self, call);
  if (!status && call->call_kind == RT_CALL_FUNCTION) status = check_function_call(self, call);
  if (!status && call->call_kind == RT_CALL_BUILTIN) status = check_builtin(self, call);
  const int is_copy = call->call_kind == RT_CALL_BUILTIN && call->callee == RT_COPY;
  if (status || call->call_kind == RT_CALL_EXTERN || is_copy) return status;
  require_compact(self, call->args, call->num_args);
  require_compact(self, call->results, call->num_results);
  return 0;
}

static int32_t check_return(checker *self, const rt_instruction *ret) {
  const rt_vm_function *function = self->function;
  if (ret->num_args != function->num_results) return fail(self, "wrong number of returned values");
  begin_set(self);
  for (int32_t i = 0; i < ret->num_args; ++i) {
    const int32_t number = ret->args[i];
    if (number >= function->num_registers) return fail(self, "no such register");
    const int is_right = function->is_early[i] ? number == function->first_result + i
                                               : function->registers[number].kind == RT_DYNAMIC;
    if (!is_right) return fail_register(self, number, "is the wrong register for a result");
    if (was_in_set(self, number)) return fail_register(self, number, "is returned twice");
    const int32_t status = check_like(self, number, function->dims, &function->results[i]);
    if (status) return status;
  }
  return 0;
}

static int32_t check_instruction(checker *self, const rt_instruction *instruction) {
  int32_t status;
  switch (instruction->opcode) {
    case RT_CALL:
      return check_call(self, instruction);
    case RT_RET:
      return check_return(self, instruction);
    case RT_GOTO:
      return check_target(self, instruction->target);
    default:
      status = check_registers(self, instruction->args, 1);
      if (!status) status = check_scalar(self, instruction->args[0], kDLBool, 8);
      return status ? status : check_target(self, instruction->target);
  }
}

static int32_t check_code(checker *self) {
  const rt_vm_function *function = self->function;
  if (!function->num_instructions) return fail(self, "has no instructions");
  self->stamps = rt_take(self->pool, (size_t)function->num_registers, sizeof *self->stamps);
  if (!self->stamps) return rt_error_status();
  for (self->index = 0; self->index < function->num_instructions; ++self->index) {
    const int32_t status = check_instruction(self, &function->code[self->index]);
    if (status) return status;
  }
  self->index = function->num_instructions - 1;
  const int32_t last = function->code[self->index].opcode;
  return last == RT_RET || last == RT_GOTO ? 0 : fail(self, "the last instruction does not end the code");
}

/* ---- Programs ---------------------------------------------------------------------------------------------------- */

static int compare_strings(const void *left, const void *right) {
  return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Fail if a name is empty, or is used twice. */
static int32_t check_names(rt_pool *pool, const char *where, const char *kind, const char *const *names,
                           int32_t count) {
  const char **sorted = rt_take(pool, (size_t)count, sizeof *sorted);
  if (!sorted) return rt_error_status();
  for (int32_t i = 0; i < count; ++i) sorted[i] = names[i];
  if (count) qsort(sorted, (size_t)count, sizeof *sorted, compare_strings);
  for (int32_t i = 0; i < count; ++i)
    if (!*sorted[i] || (i && !strcmp(sorted[i - 1], sorted[i])))
      return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: a %s has no name, or two have the name `%s`", where,
                          kind,
                          sorted[i]);
  return 0;
}

static int32_t check_function_names(rt_pool *pool, const rt_program *program, const char *where) {
  const char **names = rt_take(pool, (size_t)program->num_functions, sizeof *names);
  if (!names) return rt_error_status();
  for (int32_t i = 0; i < program->num_functions; ++i) names[i] = program->functions[i].name;
  return check_names(pool, where, "function", names, program->num_functions);
}

/* Return whether an instruction writes a register also read by the instruction. */
static int is_in_place(checker *self, const rt_instruction *call) {
  if (call->opcode != RT_CALL || call->call_kind != RT_CALL_EXTERN) return 0;
  begin_set(self);
  for (int32_t i = 0; i < call->num_args; ++i) (void)was_in_set(self, call->args[i]);
  for (int32_t i = 0; i < call->num_results; ++i)
    if (was_in_set(self, call->results[i])) return 1;
  return 0;
}

static int has_views(checker *self) {
  if (self->function->num_views) return 1;
  for (int32_t i = 0; i < self->function->num_instructions; ++i)
    if (is_in_place(self, &self->function->code[i])) return 1;
  return 0;
}

int32_t rt_check_program(rt_pool *pool, rt_program *program, const char *where) {
  int version = RT_PLAIN_PROGRAM;
  int32_t status = check_function_names(pool, program, where);
  if (!status) status = check_names(pool, where, "symbol", program->externs, program->num_externs);
  for (int32_t i = 0; i < program->num_functions && !status; ++i) {
    checker self = {.pool = pool, .where = where, .program = program, .function = &program->functions[i], .index = -1};
    status = check_declarations(&self);
    if (!status) status = rt_check_states(pool, program, self.function, where);
  }
  for (int32_t i = 0; i < program->num_functions && !status; ++i) {
    checker self = {.pool = pool, .where = where, .program = program, .function = &program->functions[i], .index = -1};
    status = check_code(&self);
    if (!status && self.function->num_states) version = RT_PROGRAM_WITH_STATES;
    if (!status && version == RT_PLAIN_PROGRAM && has_views(&self)) version = RT_PROGRAM_WITH_VIEWS;
  }
  if (status || version == program->version) return status;
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: has the wrong format version; got %d, expected %d", where,
                      program->version, version);
}
