/* Linking: external symbols become functions of modules, and instructions become instructions of the executor. */
#include <stdlib.h>
#include <string.h>

#include "dtypes.h"
#include "status.h"
#include "machine.h"

/* The state of linking a function. */
typedef struct {
  byoc_rt_program *program;
  byoc_rt_function *function;
  int32_t index; /* of the instruction */
} linker;

static int32_t fail(const linker *self, const char *problem, const char *symbol) {
  return byoc_rt_fail(BYOC_RT_LINK, "function `%s`, instruction %d: `%s` %s", self->function->vm->name,
                      (int)self->index, symbol, problem);
}

/* ---- External symbols -------------------------------------------------------------------------------------------- */

static int defines(const rt_module *module, const char *symbol) {
  for (int32_t i = 0; i < module->entry->num_functions; ++i)
    if (!strcmp(module->entry->functions[i], symbol)) return 1;
  return 0;
}

/* Find the only module that defines a symbol. */
static int32_t find_module(const byoc_rt_program *program, const char *symbol, const rt_module **found) {
  *found = NULL;
  for (int32_t i = 0; i < program->num_modules; ++i) {
    if (!defines(&program->modules[i], symbol)) continue;
    if (*found)
      return byoc_rt_fail(BYOC_RT_LINK, "symbol `%s`: is defined by two modules; got runtimes `%s` and `%s`", symbol,
                          (*found)->runtime->type_key, program->modules[i].runtime->type_key);
    *found = &program->modules[i];
  }
  if (*found) return 0;
  return byoc_rt_fail(BYOC_RT_LINK, "%s: external symbol `%s` is not defined by any module", program->artifact.where,
                      symbol);
}

static int32_t find_extern(const byoc_rt_program *program, const char *symbol, rt_extern *out) {
  const rt_module *module;
  int32_t status = find_module(program, symbol, &module);
  if (status) return status;
  *out = (rt_extern){.entry = {.struct_size = sizeof out->entry}, .type_key = module->runtime->type_key};
  status = module->runtime->find(module->module, symbol, &out->entry);
  if (status) return rt_error_status();
  if (!out->entry.fill == !out->entry.make)
    return byoc_rt_fail(BYOC_RT_LINK, "runtime `%s`: gives no function, or two, for symbol `%s`", out->type_key,
                        symbol);
  return 0;
}

static int32_t link_externs(byoc_rt_program *program) {
  const rt_program *vm = &program->vm;
  program->externs = rt_take(program->pool, (size_t)vm->num_externs, sizeof *program->externs);
  if (!program->externs) return rt_error_status();
  for (int32_t i = 0; i < vm->num_externs; ++i) {
    const int32_t status = find_extern(program, vm->externs[i], &program->externs[i]);
    if (status) return status;
  }
  return 0;
}

static int32_t link_constants(byoc_rt_program *program) {
  const rt_program *vm = &program->vm;
  program->vm_constants = rt_take(program->pool, (size_t)vm->num_constants, sizeof *program->vm_constants);
  if (!program->vm_constants) return rt_error_status();
  for (int32_t i = 0; i < vm->num_constants; ++i) {
    const rt_constant_ref *ref = &vm->constants[i];
    const DLTensor *constant = rt_find_constant(&program->constants, ref->digest);
    int is_same = constant && rt_same_dtype(constant->dtype, ref->dtype) && constant->ndim == ref->ndim;
    for (int32_t axis = 0; is_same && axis < ref->ndim; ++axis) is_same = constant->shape[axis] == ref->shape[axis];
    if (!is_same)
      return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s, member program: cites a missing constant; got %s",
                          program->artifact.where, ref->digest);
    program->vm_constants[i] = constant;
  }
  return 0;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* Compare a register with the declared type of an argument: dtype, rank, and sizes known on both sides. */
static int fits(const rt_vm_function *vm, int32_t number, const byoc_rt_tensor_info *declared) {
  const rt_spec *spec = &vm->registers[number].spec;
  if (!rt_same_dtype(spec->dtype, declared->dtype) || spec->ndim != declared->ndim) return 0;
  for (int32_t axis = 0; axis < spec->ndim; ++axis) {
    int64_t size;
    if (declared->shape[axis] >= 0 && rt_is_number(vm->dims, spec->dims[axis], &size) && size != declared->shape[axis])
      return 0;
  }
  return 1;
}

static int32_t check_types(const linker *self, const int32_t *registers, int32_t count,
                           const byoc_rt_tensor_info *declared,
                           const char *symbol) {
  for (int32_t i = 0; declared && i < count; ++i) {
    if (fits(self->function->vm, registers[i], &declared[i])) continue;
    rt_line text = {.length = 0};
    rt_append(&text, "does not take register ");
    rt_append_register(&text, self->function->vm, registers[i]);
    rt_append(&text, " as `%s`: another dtype, rank or size", declared[i].name);
    return fail(self, text.text, symbol);
  }
  return 0;
}

static int is_workspace(const rt_vm_function *vm, int32_t number) {
  const rt_spec *spec = &vm->registers[number].spec;
  return spec->ndim == 1 && rt_same_dtype(spec->dtype, (DLDataType){kDLUInt, 8, 1});
}

/* Check the call of an external function; set the number of results passed, without unused scratch memory. */
static int32_t link_extern_call(const linker *self, const rt_instruction *call, int32_t *num_results) {
  const rt_vm_function *vm = self->function->vm;
  const byoc_rt_entry *entry = &self->program->externs[call->callee].entry;
  const char *symbol = self->program->vm.externs[call->callee];
  const int is_filling = call->call_kind == RT_CALL_EXTERN;
  if (is_filling && !entry->fill) return fail(self, "returns results instead of filling buffers", symbol);
  const int has_workspace = is_filling && call->num_results == entry->num_outputs + 1 &&
                            is_workspace(vm, call->results[call->num_results - 1]);
  if (call->num_args != entry->num_inputs || call->num_results != entry->num_outputs + has_workspace)
    return fail(self, "takes other numbers of inputs and outputs", symbol);
  int32_t status = check_types(self, call->args, call->num_args, entry->inputs, symbol);
  if (!status) status = check_types(self, call->results, entry->num_outputs, entry->outputs, symbol);
  for (int32_t i = 0; !entry->takes_strides && i < call->num_args; ++i) vm->registers[call->args[i]].needs_compact = 1;
  for (int32_t i = 0; !entry->takes_strides && i < call->num_results; ++i)
    vm->registers[call->results[i]].needs_compact = 1;
  *num_results = entry->num_outputs + (has_workspace && entry->takes_workspace);
  return status;
}

static int are_static(const rt_vm_function *vm, const int32_t *registers, int32_t count) {
  for (int32_t i = 0; i < count; ++i)
    if (vm->registers[registers[i]].kind == RT_DYNAMIC) return 0;
  return 1;
}

/* Return the operation of the executor for an instruction whose operands all have memory. */
static int32_t operation_of(const rt_instruction *instruction) {
  static const int32_t builtins[RT_NUM_BUILTINS] = {
      [RT_COPY] = BYOC_COPY,           [RT_ALLOCATE] = BYOC_PYTHON,       [RT_ZERO] = BYOC_ZERO,
      [RT_INCREMENT] = BYOC_INCREMENT, [RT_LOOP_TEST] = BYOC_LOOP_TEST, [RT_CLONE] = BYOC_PYTHON};
  switch (instruction->opcode) {
    case RT_RET:
      return BYOC_RET;
    case RT_GOTO:
      return BYOC_GOTO;
    case RT_IF:
      return BYOC_IF;
    default:
      break;
  }
  if (instruction->call_kind == RT_CALL_EXTERN) return BYOC_CALL;
  return instruction->call_kind == RT_CALL_BUILTIN ? builtins[instruction->callee] : BYOC_PYTHON;
}

static int32_t link_instruction(linker *self, const rt_instruction *instruction) {
  byoc_rt_function *function = self->function;
  const int is_ret = instruction->opcode == RT_RET;
  int32_t num_args = is_ret ? 0 : instruction->num_args, num_results = instruction->num_results;
  byoc_instruction *out = &function->code[self->index];
  *out = (byoc_instruction){.first = function->num_operands, .target = instruction->target};
  if (instruction->opcode == RT_CALL && instruction->call_kind <= RT_CALL_PACKED) {
    const int32_t status = link_extern_call(self, instruction, &num_results);
    if (status) return status;
    const byoc_rt_entry *entry = &self->program->externs[instruction->callee].entry;
    out->function = entry->fill;
    out->context = entry->context;
  }
  const int is_static = is_ret || (are_static(function->vm, instruction->args, num_args) &&
                                   are_static(function->vm, instruction->results, num_results));
  function->ops[self->index] = operation_of(instruction);
  out->op = is_static ? function->ops[self->index] : BYOC_PYTHON;
  out->count = num_args + num_results;
  for (int32_t i = 0; i < num_args; ++i) function->operands[function->num_operands++] = instruction->args[i];
  for (int32_t i = 0; i < num_results; ++i) function->operands[function->num_operands++] = instruction->results[i];
  if (function->max_operands < out->count) function->max_operands = out->count;
  return 0;
}

static int64_t count_operands(const rt_vm_function *vm) {
  int64_t count = 0;
  for (int32_t i = 0; i < vm->num_instructions; ++i) count += vm->code[i].num_args + vm->code[i].num_results;
  return count;
}

static int32_t find_argument_views(rt_pool *pool, byoc_rt_function *function) {
  const rt_vm_function *vm = function->vm;
  function->argument_views = rt_take(pool, (size_t)vm->num_views, sizeof *function->argument_views);
  if (!function->argument_views) return rt_error_status();
  for (int32_t i = vm->first_view; i < vm->num_registers; ++i) {
    const rt_register_kind base = vm->registers[vm->registers[i].owner].kind;
    if (base == RT_PARAM || base == RT_RESULT) function->argument_views[function->num_argument_views++] = i;
  }
  return 0;
}

/* Describe parameters or results for callers. */
static const byoc_rt_tensor_info *describe(rt_pool *pool, const rt_dims *dims, const rt_spec *specs,
                                           const int32_t *numbers, int32_t count) {
  byoc_rt_tensor_info *infos = rt_take(pool, (size_t)count, sizeof *infos);
  for (int32_t i = 0; infos && i < count; ++i) {
    const rt_spec *spec = &specs[numbers[i]];
    int64_t *shape = rt_take(pool, (size_t)spec->ndim, sizeof *shape);
    const char **texts = rt_take(pool, (size_t)spec->ndim, sizeof *texts);
    if (!shape || !texts) return NULL;
    for (int32_t axis = 0; axis < spec->ndim; ++axis) {
      texts[axis] = rt_dim_text(dims, spec->dims[axis]);
      if (!rt_is_number(dims, spec->dims[axis], &shape[axis])) shape[axis] = -1;
    }
    infos[i] = (byoc_rt_tensor_info){spec->name, spec->dtype, spec->ndim, shape, texts};
  }
  return infos;
}

/* Return the numbers below `total` without those of states, in order. */
static const int32_t *without_states(rt_pool *pool, int32_t total, const int32_t *of_states, int32_t num_states) {
  int32_t *numbers = rt_take(pool, (size_t)total, sizeof *numbers), count = 0;
  uint8_t *is_state = rt_take(pool, (size_t)total, 1);
  if (!numbers || !is_state) return NULL;
  for (int32_t i = 0; i < num_states; ++i) is_state[of_states[i]] = 1;
  for (int32_t i = 0; i < total; ++i)
    if (!is_state[i]) numbers[count++] = i;
  return numbers;
}

/* Describe inputs, outputs and states for callers. */
static int32_t describe_function(rt_pool *pool, byoc_rt_function *function) {
  const rt_vm_function *vm = function->vm;
  int32_t *params = rt_take(pool, (size_t)vm->num_states, sizeof *params);
  int32_t *results = rt_take(pool, (size_t)vm->num_states, sizeof *results);
  if (!params || !results) return rt_error_status();
  for (int32_t i = 0; i < vm->num_states; ++i) {
    params[i] = vm->states[i].param;
    results[i] = vm->states[i].result;
  }
  function->num_inputs = vm->num_params - vm->num_states;
  function->num_outputs = vm->num_results - vm->num_states;
  function->input_params = without_states(pool, vm->num_params, params, vm->num_states);
  function->output_results = without_states(pool, vm->num_results, results, vm->num_states);
  if (!function->input_params || !function->output_results) return rt_error_status();
  function->inputs = describe(pool, vm->dims, vm->params, function->input_params, function->num_inputs);
  function->outputs = describe(pool, vm->dims, vm->results, function->output_results, function->num_outputs);
  function->states = describe(pool, vm->dims, vm->params, params, vm->num_states);
  return function->inputs && function->outputs && function->states ? 0 : rt_error_status();
}

static int32_t link_function(byoc_rt_program *program, byoc_rt_function *function) {
  rt_pool *pool = program->pool;
  const rt_vm_function *vm = function->vm;
  const int64_t num_operands = count_operands(vm);
  if (num_operands > INT32_MAX / 4)
    return byoc_rt_fail(BYOC_RT_LINK, "function `%s`: has too many operands", vm->name);
  rt_line where = {.length = 0};
  rt_append(&where, "function `%s`", vm->name);
  function->where = rt_copy(pool, rt_text_of(where.text));
  function->program = program;
  function->code = rt_take(pool, (size_t)vm->num_instructions, sizeof *function->code);
  function->ops = rt_take(pool, (size_t)vm->num_instructions, sizeof *function->ops);
  function->operands = rt_take(pool, (size_t)num_operands, sizeof *function->operands);
  if (!function->where || !function->code || !function->ops || !function->operands) return rt_error_status();
  const int32_t status = describe_function(pool, function);
  if (status) return status;
  function->max_operands = vm->num_params; /* the frame's tables of operands hold the arguments of a call too */
  linker self = {program, function, 0};
  for (; self.index < vm->num_instructions; ++self.index) {
    const int32_t linked = link_instruction(&self, &vm->code[self.index]);
    if (linked) return linked;
  }
  return find_argument_views(pool, function);
}

/* Make the empty list of frames of a function. */
static int32_t make_frames(byoc_rt_program *program, byoc_rt_function *function) {
  function->frames = rt_take(program->pool, 1, sizeof *function->frames);
  if (!function->frames) return rt_error_status();
  atomic_init(&function->frames->last, NULL);
  if (pthread_mutex_init(&function->frames->mutex, NULL))
    return byoc_rt_fail(BYOC_RT_MEMORY, "function `%s`: a lock cannot be made", function->vm->name);
  ++program->num_functions;
  return 0;
}

int32_t rt_link(byoc_rt_program *program) {
  const int32_t count = program->vm.num_functions;
  int32_t status = link_constants(program);
  if (!status) status = link_externs(program);
  if (status) return status;
  program->functions = rt_take(program->pool, (size_t)count, sizeof *program->functions);
  if (!program->functions) return rt_error_status();
  for (int32_t i = 0; i < count && !status; ++i) {
    program->functions[i].vm = &program->vm.functions[i];
    status = link_function(program, &program->functions[i]);
    if (!status) status = make_frames(program, &program->functions[i]);
  }
  return status;
}
