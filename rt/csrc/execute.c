/* The execution of a frame: the executor of byoc-core for instructions on memory known before the run, and steps for
 * the others. */
#include "machine.h"
#include "pause.h"

RT_COLD int32_t rt_fail_instruction(const rt_frame *frame, int32_t index, int32_t status, const char *problem) {
  const byoc_rt_function *function = frame->function;
  const rt_instruction *call = &function->vm->code[index];
  rt_line callee = {.length = 0};
  if (call->opcode == RT_CALL) {
    rt_append(&callee, " (%s `%s`", rt_call_mnemonic(call), rt_callee_name(&function->program->vm, call));
    if (call->call_kind == RT_CALL_EXTERN || call->call_kind == RT_CALL_PACKED)
      rt_append(&callee, " of runtime `%s`", function->program->externs[call->callee].type_key);
    rt_append(&callee, ")");
  }
  return byoc_rt_fail(status, "function `%s`, instruction %d%s: failed: %s", function->vm->name, (int)index,
                      callee.text,
                      problem);
}

RT_COLD int32_t rt_fail_extern(const rt_frame *frame, int32_t index, int32_t status) {
  const byoc_rt_function *function = frame->function;
  const byoc_rt_entry *entry = &function->program->externs[function->vm->code[index].callee].entry;
  const char *problem = entry->explain ? entry->explain(entry->context, status) : NULL;
  if (!problem) problem = byoc_rt_last_error();
  return rt_fail_instruction(frame, index, BYOC_RT_EXECUTION, *problem ? problem : "the function gives no reason");
}

RT_COLD int32_t rt_fail_copy(const rt_frame *frame, int32_t index) {
  const rt_instruction *call = &frame->function->vm->code[index];
  const DLTensor *source = &frame->frame.tensors[call->args[0]], *target = &frame->frame.tensors[call->results[0]];
  rt_line text = {.length = 0};
  rt_append(&text, "copy: the shapes differ; got ");
  rt_append_shape(&text, source->shape, source->ndim);
  rt_append(&text, ", expected ");
  rt_append_shape(&text, target->shape, target->ndim);
  return rt_fail_instruction(frame, index, BYOC_RT_EXECUTION, text.text);
}

int rt_run_single(const rt_frame *frame, int32_t index) {
  byoc_instruction code[] = {frame->function->code[index], {.op = BYOC_PYTHON}};
  byoc_frame single = frame->frame;
  code[0].op = frame->function->ops[index];
  single.code = code;
  return byoc_run(&single, 0).index == 1;
}

int32_t rt_execute(rt_frame *frame, int depth, const rt_instruction **ret) {
  const byoc_rt_function *function = frame->function;
  int32_t status;
  for (int32_t index = 0;;) {
    const byoc_stop stop = byoc_run(&frame->frame, index);
    if (stop.status) return rt_fail_extern(frame, stop.index, stop.status);
    switch (function->code[stop.index].op) {
      case BYOC_RET:
        *ret = &function->vm->code[stop.index];
        return 0;
      case BYOC_IF:
      case BYOC_GOTO: /* a pause of a loop */
        index = stop.index;
        if ((status = rt_pause())) return status;
        break;
      case BYOC_COPY:
        return rt_fail_copy(frame, stop.index);
      default:
        status = rt_step(frame, stop.index, depth, &index);
        if (!status) status = rt_pause_after_step();
        if (status) return status;
    }
  }
}
