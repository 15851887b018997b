#include "program.h"

void rt_append_register(rt_line *line, const rt_vm_function *function, int32_t number) {
  const int32_t firsts[] = {0,
                            function->first_result,
                            function->first_constant,
                            function->first_tensor,
                            function->first_dynamic,
                            function->first_view};
  const rt_register_kind kind = function->registers[number].kind;
  rt_append(line, "%c%d", "poctvw"[kind], (int)(number - firsts[kind]));
}

const char *rt_callee_name(const rt_program *program, const rt_instruction *call) {
  static const char *const builtins[] = {"copy", "allocate", "zero", "increment", "loop_test", "clone"};
  switch (call->call_kind) {
    case RT_CALL_FUNCTION:
      return program->functions[call->callee].name;
    case RT_CALL_BUILTIN:
      return builtins[call->callee];
    default:
      return program->externs[call->callee];
  }
}

const rt_register *rt_owner(const rt_vm_function *function, int32_t number) {
  const rt_register *reg = &function->registers[number];
  return reg->kind == RT_VIEW ? &function->registers[reg->owner] : reg;
}

const char *rt_call_mnemonic(const rt_instruction *call) {
  static const char *const mnemonics[] = {"call_dps_packed", "call_packed", "call", "call_builtin"};
  return mnemonics[call->call_kind];
}
