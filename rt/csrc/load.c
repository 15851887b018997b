/* The public functions on programs: loading, unloading, and the functions inside. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csource.h"
#include "graph.h"
#include "machine.h"
#include "records.h"
#include "runtimes.h"
#include "status.h"

enum { MAX_WHERE = 512 };

/* ---- Modules ----------------------------------------------------------------------------------------------------- */

static int32_t fail_missing_runtime(const byoc_rt_program *program, const rt_module_entry *entry) {
  const rt_manifest *manifest = &program->artifact.manifest;
  rt_line functions = {.length = 0}, origin = {.length = 0};
  for (int32_t i = 0; i < entry->num_functions; ++i)
    rt_append(&functions, "%s%s", i ? ", " : "", entry->functions[i]);
  for (int32_t i = 0; i < manifest->num_runtimes; ++i)
    if (!strcmp(manifest->runtimes[i].type_key, entry->type_key))
      rt_append(&origin, " of %s %s", manifest->runtimes[i].distribution, manifest->runtimes[i].version);
  return byoc_rt_fail(BYOC_RT_LINK,
                      "%s: needs runtime `%s`%s for the functions %s, but this process has no native half of the "
                      "runtime. Load its library by byoc_rt_load_runtime, or name the library in the environment "
                      "variable BYOC_RT_RUNTIMES; or compile the model with backends whose code is C.",
                      program->artifact.where, entry->type_key, origin.text, functions.text);
}

/* Find the runtime of a module, and the format of the payload. */
static int32_t find_runtime(const byoc_rt_program *program, const rt_module_entry *entry,
                            const byoc_rt_runtime **runtime,
                            int32_t *format) {
  const rt_manifest *manifest = &program->artifact.manifest;
  const rt_needed_runtime *needed = NULL;
  for (int32_t i = 0; i < manifest->num_runtimes && !needed; ++i)
    if (!strcmp(manifest->runtimes[i].type_key, entry->type_key)) needed = &manifest->runtimes[i];
  if (!needed)
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: the manifest names no runtime for modules of `%s`",
                        program->artifact.where,
                        entry->type_key);
  *runtime = rt_find_runtime(entry->type_key);
  if (!*runtime) return fail_missing_runtime(program, entry);
  if (needed->payload_format < (*runtime)->min_format || needed->payload_format > (*runtime)->max_format)
    return byoc_rt_fail(BYOC_RT_ARTIFACT,
                        "%s: the payload format of runtime `%s` is %lld; expected %d to %d. Use the native half of "
                        "%s %s.",
                        program->artifact.where, entry->type_key, (long long)needed->payload_format,
                        (int)(*runtime)->min_format, (int)(*runtime)->max_format, needed->distribution,
                        needed->version);
  *format = (int32_t)needed->payload_format;
  return 0;
}

/* Return a constant to a runtime. */
static const DLTensor *give_constant(void *context, const char *digest) {
  const byoc_rt_program *program = context;
  const DLTensor *constant = rt_find_constant(&program->constants, digest);
  if (!constant)
    (void)byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: cites a missing constant; got %s", program->artifact.where, digest);
  return constant;
}

static int32_t load_module(byoc_rt_program *program, int32_t index) {
  const rt_module_entry *entry = &program->artifact.manifest.modules[index];
  rt_module *module = &program->modules[index];
  char where[MAX_WHERE];
  byoc_rt_payload payload = {.where = where, .context = program, .constant = give_constant};
  *module = (rt_module){.entry = entry};
  int32_t status = find_runtime(program, entry, &module->runtime, &payload.format);
  if (status) return status;
  (void)snprintf(where, sizeof where, "%s, module %d (%s%s)", program->artifact.where, (int)index,
                 entry->num_functions ? entry->functions[0] : "no function", entry->num_functions > 1 ? ", ..." : "");
  const rt_member *member = rt_read_payload(&program->artifact, index);
  if (!member) return rt_error_status();
  payload.data = member->data;
  payload.nbytes = member->nbytes;
  status = module->runtime->load(&payload, &module->module);
  if (status) return rt_error_status();
  ++program->num_modules;
  return 0;
}

/* Return whether calls of a module may have several threads. */
static int has_threads(const rt_module *module) {
  if (module->runtime == rt_graph_runtime()) return 0;
  return module->runtime != rt_csource_runtime() || rt_csource_has_threads(module->module);
}

static int32_t load_modules(byoc_rt_program *program, int32_t num_threads) {
  const int32_t count = program->artifact.manifest.num_modules;
  int32_t status = 0, is_parallel = 0;
  program->modules = rt_take(program->pool, (size_t)count, sizeof *program->modules);
  if (!program->modules) return rt_error_status();
  for (int32_t i = 0; i < count && !status; ++i) {
    status = load_module(program, i);
    is_parallel = is_parallel || (!status && has_threads(&program->modules[i]));
  }
  if (status) return status;
  status = rt_prepare_threads(num_threads, &program->threads);
  if (!is_parallel) program->threads.max_threads = NULL;
  return status;
}

/* ---- Programs ---------------------------------------------------------------------------------------------------- */

/* Compare the program with the functions declared by the manifest. */
static int32_t check_functions(const byoc_rt_program *program) {
  const rt_manifest *manifest = &program->artifact.manifest;
  int are_same = manifest->num_functions == program->num_functions;
  for (int32_t i = 0; i < manifest->num_functions && are_same; ++i) {
    const rt_signature *declared = &manifest->functions[i];
    const byoc_rt_function *found = NULL;
    for (int32_t k = 0; k < program->num_functions && !found; ++k) /* most often in the same order */
      if (!strcmp(program->functions[(i + k) % program->num_functions].vm->name, declared->name))
        found = &program->functions[(i + k) % program->num_functions];
    are_same = found &&
               rt_are_same_tensors(found->inputs, found->num_inputs, declared->inputs, declared->num_inputs) &&
               rt_are_same_tensors(found->outputs, found->num_outputs, declared->outputs, declared->num_outputs);
  }
  if (are_same) return 0;
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s, member program: has functions other than declared by the manifest",
                      program->artifact.where);
}

static int32_t read_program(byoc_rt_program *program) {
  char where[MAX_WHERE];
  (void)snprintf(where, sizeof where, "%s, member program", program->artifact.where);
  const rt_member *member = rt_read_program_member(&program->artifact);
  if (!member) return rt_error_status();
  const int32_t status = rt_decode_program(program->pool, member->data, member->nbytes, where, &program->vm);
  return status ? status : rt_check_program(program->pool, &program->vm, where);
}

/* Load everything from the mapping; a failed program is freed by the caller. */
static int32_t load_mapped(byoc_rt_program *program, const char *where, const char *path,
                           const byoc_rt_options *options) {
  const rt_mapping *mapping = &program->mapping;
  const char *copy = rt_copy(program->pool, rt_text_of(where));
  if (!copy) return rt_error_status();
  const char *weights = options && options->struct_size > offsetof(byoc_rt_options, weights) ? options->weights : NULL;
  int32_t status = weights ? rt_open_weights(program->pool, weights, &program->weights) : 0;
  if (!status)
    status = rt_open_artifact(program->pool, mapping->data, mapping->nbytes, copy, path, &program->weights,
                              &program->artifact);
  if (!status) status = read_program(program);
  if (!status) status = rt_map_constants(program->pool, &program->artifact, &program->constants);
  if (!status) status = load_modules(program, options ? options->num_threads : 0);
  if (!status) status = rt_link(program);
  if (!status) status = check_functions(program);
  if (!status) rt_give_back_pages(mapping, &program->artifact.archive);
  return status;
}

/* Make a program of a mapping, and take over the mapping. */
static int32_t load(rt_mapping *mapping, const char *where, const char *path, const byoc_rt_options *options,
                    byoc_rt_program **loaded) {
  rt_pool *pool = rt_pool_new();
  byoc_rt_program *program = pool ? rt_take(pool, 1, sizeof *program) : NULL;
  if (!program) {
    rt_pool_free(pool);
    rt_unmap(mapping);
    return rt_error_status();
  }
  program->pool = pool;
  program->mapping = *mapping;
  const int32_t status = load_mapped(program, where, path, options);
  if (status)
    byoc_rt_unload(program);
  else
    *loaded = program;
  return status;
}

static int32_t check_options(const byoc_rt_options *options) {
  /* Programs compiled before `weights` was added have a smaller structure. */
  if (!options || options->struct_size == offsetof(byoc_rt_options, weights) || options->struct_size >= sizeof *options)
    return rt_add_environment_runtimes();
  return byoc_rt_fail(BYOC_RT_CALL, "options: `struct_size` is not the size of byoc_rt_options; got %zu, expected %zu",
                      options->struct_size, sizeof *options);
}

int32_t byoc_rt_load(const char *path, const byoc_rt_options *options, byoc_rt_program **program) {
  char where[MAX_WHERE];
  rt_mapping mapping;
  *program = NULL;
  (void)snprintf(where, sizeof where, "artifact `%s`", path);
  int32_t status = check_options(options);
  if (!status) status = rt_map_file(path, where, &mapping);
  return status ? status : load(&mapping, where, path, options, program);
}

int32_t byoc_rt_load_bytes(const void *data, size_t nbytes, const byoc_rt_options *options, byoc_rt_program **program) {
  rt_mapping mapping;
  *program = NULL;
  int32_t status = check_options(options);
  if (!status) status = rt_map_memory(data, nbytes, "artifact in memory", &mapping);
  return status ? status : load(&mapping, "artifact in memory", NULL, options, program);
}

void byoc_rt_unload(byoc_rt_program *program) {
  if (!program) return;
  for (int32_t i = 0; i < program->num_functions; ++i) {
    rt_free_frames(program->functions[i].frames);
    (void)pthread_mutex_destroy(&program->functions[i].frames->mutex);
  }
  for (int32_t i = 0; i < program->num_modules; ++i) program->modules[i].runtime->unload(program->modules[i].module);
  rt_close_weights(&program->weights);
  rt_unmap(&program->mapping);
  rt_pool_free(program->pool);
}

/* ---- Functions --------------------------------------------------------------------------------------------------- */

int32_t byoc_rt_num_functions(const byoc_rt_program *program) { return program->num_functions; }

const byoc_rt_function *byoc_rt_function_at(const byoc_rt_program *program, int32_t index) {
  if (index >= 0 && index < program->num_functions) return &program->functions[index];
  (void)byoc_rt_fail(BYOC_RT_CALL, "%s: has no function %d; expected less than %d", program->artifact.where, (int)index,
                     (int)program->num_functions);
  return NULL;
}

const byoc_rt_function *byoc_rt_find_function(const byoc_rt_program *program, const char *name) {
  for (int32_t i = 0; i < program->num_functions; ++i)
    if (!strcmp(program->functions[i].vm->name, name)) return &program->functions[i];
  rt_line names = {.length = 0};
  for (int32_t i = 0; i < program->num_functions; ++i)
    rt_append(&names, "%s%s", i ? ", " : "", program->functions[i].vm->name);
  (void)byoc_rt_fail(BYOC_RT_CALL, "function `%s`: is not in the program; expected %s", name,
                     names.length ? names.text : "no function at all");
  return NULL;
}

const char *byoc_rt_function_name(const byoc_rt_function *function) { return function->vm->name; }
int32_t byoc_rt_num_inputs(const byoc_rt_function *function) { return function->num_inputs; }
int32_t byoc_rt_num_outputs(const byoc_rt_function *function) { return function->num_outputs; }
int32_t byoc_rt_num_states(const byoc_rt_function *function) { return function->vm->num_states; }

/* Return an item of the tensors of a function, or NULL after setting an error. */
static const byoc_rt_tensor_info *tensor_at(const byoc_rt_function *function, const char *role,
                                            const byoc_rt_tensor_info *infos, int32_t count, int32_t index) {
  if (index >= 0 && index < count) return &infos[index];
  (void)byoc_rt_fail(BYOC_RT_CALL, "function `%s`: has no %s %d; expected less than %d", function->vm->name, role,
                     (int)index, (int)count);
  return NULL;
}

const byoc_rt_tensor_info *byoc_rt_input(const byoc_rt_function *function, int32_t index) {
  return tensor_at(function, "input", function->inputs, function->num_inputs, index);
}

const byoc_rt_tensor_info *byoc_rt_output(const byoc_rt_function *function, int32_t index) {
  return tensor_at(function, "output", function->outputs, function->num_outputs, index);
}

const byoc_rt_tensor_info *byoc_rt_state_info(const byoc_rt_function *function, int32_t index) {
  return tensor_at(function, "state", function->states, function->vm->num_states, index);
}
