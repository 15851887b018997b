/* The native half of byoc-dnnl: runs regions by stored plans, in programs without Python.
 *
 * A payload holds lines with settings, among them `plans=NBYTES`, directly followed by the text of the plans, and the
 * graph document (byoc_dnnl.payload). Only the plans are read here.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "stored.h"

enum { MIN_FORMAT = 1, MAX_FORMAT = 3, MAX_TEXT_NBYTES = 512 };

/* ---- Payloads ---------------------------------------------------------------------------------------------------- */

/* Moves behind a line with a prefix, if present; `line` receives the rest of the line. */
static int skip_line(Reader *reader, const char *prefix, Reader *line) {
  const size_t length = strlen(prefix);
  if ((size_t)(reader->end - reader->next) < length || memcmp(reader->next, prefix, length)) return 0;
  const char *begin = reader->next + length;
  const char *newline = memchr(begin, '\n', (size_t)(reader->end - begin));
  if (!newline) return 0;
  *line = (Reader){reader->where, begin, newline + 1, 1};
  reader->next = newline + 1;
  return 1;
}

/* Finds the text of the plans in a payload. */
static int32_t find_plans(const Module *module, Reader *plans) {
  const byoc_rt_payload *payload = module->payload;
  const char *data = (const char *)payload->data;
  Reader reader = {module->where, data, data + payload->nbytes, 1}, line;
  int64_t nbytes;
  (void)skip_line(&reader, "precision=", &line);
  (void)skip_line(&reader, "schedules=", &line);
  if (!skip_line(&reader, "plans=", &line))
    return byoc_host_fail(BYOC_RT_UNSUPPORTED,
                          "%s: has no stored plans, and only Python plans regions. Compile the model with the option "
                          "`stored_plans` of dnnl: the sizes to run without Python, or [{}] if all sizes are fixed",
                          module->where);
  if (byoc_read_number(&line, 0, reader.end - reader.next, &nbytes) || byoc_end_line(&line)) return -1;
  *plans = (Reader){module->where, reader.next, reader.next + nbytes, 1};
  return 0;
}

/* ---- Modules ----------------------------------------------------------------------------------------------------- */

static void unload(void *opaque) {
  Module *module = opaque;
  byoc_enter_onednn();
  byoc_free_regions(module);
  byoc_free_constants(module);
  byoc_leave_onednn();
  byoc_lock();
  Arena *arenas = byoc_take_all_arenas(); /* perhaps unused from now on */
  byoc_unlock();
  byoc_free_arenas(arenas);
  if (module->mutex) (void)pthread_mutex_destroy(module->mutex);
  free(module->mutex);
  free(module->where);
  free(module);
}

/* Makes the programs of all plans, for the numbers of threads planned for. */
static int32_t make_programs(Module *module) {
  for (Region *region = module->regions; region; region = region->next)
    for (Plan *plan = region->plans; plan; plan = plan->next)
      if (!byoc_program_for(module, region, plan, plan->num_threads)) return -1;
  return 0;
}

static int32_t read_module(Module *module) {
  Reader plans;
  if (find_plans(module, &plans)) return -1;
  module->onednn = byoc_open_onednn();
  if (!module->onednn) return -1;
  return byoc_read_regions(module, &plans) || make_programs(module) ? -1 : 0;
}

static int32_t load(const byoc_rt_payload *payload, void **loaded) {
  Module *module = calloc(1, sizeof *module);
  if (!module) return byoc_host_fail(BYOC_RT_MEMORY, "%s: no memory is left", payload->where);
  module->payload = payload;
  module->where = strdup(payload->where);
  module->mutex = malloc(sizeof *module->mutex);
  if (!module->where || !module->mutex || pthread_mutex_init(module->mutex, NULL)) {
    free(module->mutex);
    module->mutex = NULL;
    unload(module);
    return byoc_host_fail(BYOC_RT_MEMORY, "%s: no memory is left", payload->where);
  }
  const int32_t status = read_module(module);
  module->payload = NULL;
  if (status)
    unload(module);
  else
    *loaded = module;
  return status;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static int is_tensor(const Tensor *tensor, const DLTensor *argument) {
  if (argument->dtype.code != tensor->dtype.code || argument->dtype.bits != tensor->dtype.bits ||
      argument->dtype.lanes != tensor->dtype.lanes || argument->ndim != tensor->ndim)
    return 0;
  return !tensor->ndim || !memcmp(argument->shape, tensor->shape, (size_t)tensor->ndim * sizeof *tensor->shape);
}

static Plan *find_plan(const Region *region, const TVMFFIAny *args) {
  const int32_t num_tensors = region->num_inputs + region->num_outputs;
  for (Plan *plan = region->plans; plan; plan = plan->next) {
    int32_t i = 0;
    while (i < num_tensors && is_tensor(&plan->tensors[i], args[i].v_ptr)) ++i;
    if (i == num_tensors) return plan;
  }
  return NULL;
}

/* Appends a shape to a text, as far as there is room. */
static size_t append_shape(char *text, size_t length, int32_t ndim, const int64_t *shape) {
  const char *separator = "[";
  for (int32_t axis = 0; axis < ndim && length < MAX_TEXT_NBYTES; ++axis, separator = ", ")
    length += (size_t)snprintf(text + length, MAX_TEXT_NBYTES - length, "%s%lld", separator, (long long)shape[axis]);
  if (length < MAX_TEXT_NBYTES) length += (size_t)snprintf(text + length, MAX_TEXT_NBYTES - length, ndim ? "]" : "[]");
  return length;
}

static size_t append(char *text, size_t length, const char *word) {
  return length < MAX_TEXT_NBYTES ? length + (size_t)snprintf(text + length, MAX_TEXT_NBYTES - length, "%s", word)
                                  : length;
}

static int32_t fail_sizes(const Region *region, const TVMFFIAny *args) {
  char got[MAX_TEXT_NBYTES] = "", held[MAX_TEXT_NBYTES] = "";
  size_t got_length = 0, held_length = 0;
  for (int32_t i = 0; i < region->num_inputs; ++i) {
    const DLTensor *argument = args[i].v_ptr;
    if (i) got_length = append(got, got_length, ", ");
    got_length = append_shape(got, got_length, argument->ndim, argument->shape);
  }
  for (const Plan *plan = region->plans; plan; plan = plan->next) {
    if (plan != region->plans) held_length = append(held, held_length, "; or ");
    for (int32_t i = 0; i < region->num_inputs; ++i) {
      if (i) held_length = append(held, held_length, ", ");
      held_length = append_shape(held, held_length, plan->tensors[i].ndim, plan->tensors[i].shape);
    }
  }
  return byoc_host_fail(BYOC_RT_EXECUTION,
                        "%s, region `%s`: has no stored plan for inputs of these sizes; got %s, expected %s. Compile "
                        "the model with these sizes in the option `stored_plans` of dnnl",
                        region->module->where, region->name, got, held);
}

static int32_t fail_run(const Region *region, int outcome, const Failure *failure) {
  static const char *const functions[] = {
      [IN_EXECUTE] = "a primitive cannot be executed", [IN_CREATE_MEMORY] = "a memory cannot be created",
      [IN_CREATE_STREAM] = "a stream cannot be created", [IN_SET_ADDRESS] = "an address cannot be set",
      [IN_WAIT] = "the stream fails"};
  if (outcome == STOPPED)
    return byoc_host_fail(BYOC_RT_EXECUTION,
                          "%s, region `%s`: a number is NaN or too large for oneDNN's functions, and only Python has "
                          "the reference kernels for such numbers", region->module->where, region->name);
  if (failure->operation == IN_ALLOCATION)
    return byoc_host_fail(BYOC_RT_MEMORY, "%s, region `%s`: no memory is left for intermediates",
                          region->module->where, region->name);
  return byoc_host_fail(BYOC_RT_EXECUTION, "%s, region `%s`, step %d: %s; oneDNN returns status %d",
                        region->module->where, region->name, (int)failure->step, functions[failure->operation],
                        (int)failure->status);
}

static int32_t run(const Region *region, StoredProgram *stored, void *const *tensors) {
  Failure failure = {0};
  byoc_lock();
  Call call = byoc_begin(&stored->program);
  byoc_unlock();
  const int outcome = byoc_run(&stored->program, &call, tensors, &failure);
  byoc_end(&stored->program, &call);
  return outcome == DONE ? 0 : fail_run(region, outcome, &failure);
}

static int32_t fill(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  enum { MAX_STACK_TENSORS = 32 };
  const Region *region = context;
  const int32_t num_tensors = region->num_inputs + region->num_outputs;
  void *stack_tensors[MAX_STACK_TENSORS], **tensors = stack_tensors;
  (void)result;
  if (num_args != num_tensors)
    return byoc_host_fail(BYOC_RT_EXECUTION, "%s, region `%s`: wrong number of arguments; got %d, expected %d",
                          region->module->where, region->name, (int)num_args, (int)num_tensors);
  Plan *plan = find_plan(region, args);
  if (!plan) return fail_sizes(region, args);
  Module *module = (Module *)(uintptr_t)region->module;
  StoredProgram *stored = byoc_program_for(module, region, plan, byoc_num_threads(module->onednn));
  if (!stored) return -1;
  if (num_tensors > MAX_STACK_TENSORS && !(tensors = malloc((size_t)num_tensors * sizeof *tensors)))
    return byoc_host_fail(BYOC_RT_MEMORY, "%s: no memory is left", region->module->where);
  for (int32_t i = 0; i < num_tensors; ++i) {
    const DLTensor *argument = args[i].v_ptr;
    tensors[i] = (char *)argument->data + argument->byte_offset;
  }
  const int32_t status = run(region, stored, tensors);
  if (tensors != stack_tensors) free(tensors);
  return status;
}

static int32_t find(void *opaque, const char *symbol, byoc_rt_entry *entry) {
  const Module *module = opaque;
  for (Region *region = module->regions; region; region = region->next) {
    if (strcmp(region->name, symbol)) continue;
    if (!region->plans)
      return byoc_host_fail(BYOC_RT_UNSUPPORTED,
                            "%s: region `%s` has symbolic sizes, and no stored plan. Compile the model with these "
                            "sizes in the option `stored_plans` of dnnl", module->where, symbol);
    entry->context = region;
    entry->fill = fill;
    entry->num_inputs = region->num_inputs;
    entry->num_outputs = region->num_outputs;
    return 0;
  }
  return byoc_host_fail(BYOC_RT_LINK, "%s: there is no region `%s`", module->where, symbol);
}

static void register_fork_handlers(void) { (void)byoc_register_fork_handlers(); }

__attribute__((visibility("default"))) const byoc_rt_runtime *byoc_rt_runtime_v1(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static const byoc_rt_runtime runtime = {.struct_size = sizeof runtime,
                                          .abi_version = BYOC_RT_ABI_VERSION,
                                          .type_key = "dnnl",
                                          .min_format = MIN_FORMAT,
                                          .max_format = MAX_FORMAT,
                                          .load = load,
                                          .unload = unload,
                                          .find = find};
  if (!byoc_find_host()) return NULL;
  (void)pthread_once(&once, register_fork_handlers);
  return &runtime;
}
