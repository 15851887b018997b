/* The payload is a container of signatures, text and library, as in byoc_core/runtime/csource/payload.py: a magic line
 * with the version, the SHA-256 of all following bytes, three lengths (little-endian, 8 bytes each), then a JSON
 * header, the C text and the shared library. Nothing in the payload runs before a function is found. */
#define _GNU_SOURCE
#include "csource.h"

#include <stdio.h>
#include <string.h>

#include "digest.h"
#include "status.h"
#include "library.h"
#include "records.h"
#include "target.h"

enum { MIN_FORMAT = 1, MAX_FORMAT = 3, MAGIC_NBYTES = 15, LENGTHS_NBYTES = 24, MAX_WHERE = 256 };
static const char PARALLEL_INCLUDE[] = "#include \"byoc_parallel.h\"";

typedef struct {
  const char *symbol;
  const byoc_rt_tensor_info *inputs, *outputs;
  int32_t num_inputs, num_outputs;
  int takes_strides, takes_workspace, has_traits;
} function;

typedef struct {
  rt_pool *pool;
  char where[MAX_WHERE];
  function *functions;
  int32_t num_functions;
  const DLTensor **constants;
  int32_t num_constants, format;
  rt_target target;
  rt_text source, library_bytes;
  int has_threads;
  rt_library *library; /* NULL before the first function is found */
  const char *(*last_error)(void);
} module;

/* What decides about the format of a payload. */
typedef struct {
  int has_own_files, has_traits;
} format_needs;

static int32_t malformed(const module *self, const char *problem) {
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: the header of a csource module is malformed: %s", self->where, problem);
}

static int is_symbol(const char *text) {
  static const char permitted[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  return *text && strchr(permitted + 10, *text) && text[strspn(text, permitted)] == '\0';
}

/* Check the pairs of outputs and inputs that may share memory: only their numbers, because a program uses the
 * permissions when it is made. */
static int32_t check_pairs(const module *self, const function *owner, const rt_json *pairs) {
  for (uint32_t i = 0; i < pairs->count; ++i) {
    const rt_json *output = rt_json_item(&pairs->items[i], 0), *input = rt_json_item(&pairs->items[i], 1);
    if (!rt_json_is(output, RT_JSON_INTEGER) || !rt_json_is(input, RT_JSON_INTEGER) || pairs->items[i].count != 2 ||
        output->integer < 0 || output->integer >= owner->num_outputs || input->integer < 0 ||
        input->integer >= owner->num_inputs)
      return malformed(self, "a pair of `in_place` names a missing tensor");
  }
  return 0;
}

/* Read the permissions of a function for callers. */
static int32_t read_traits(const module *self, const rt_json *traits, function *out) {
  int32_t status = rt_check_record(traits, "strided in_place workspace_nbytes", self->where);
  if (!status) status = rt_check_kind(traits, "strided", RT_JSON_BOOL, self->where);
  if (!status) status = rt_check_kind(traits, "in_place", RT_JSON_ARRAY, self->where);
  if (!status) status = check_pairs(self, out, rt_json_field(traits, "in_place"));
  if (status) return status;
  const rt_json *workspace = rt_json_field(traits, "workspace_nbytes");
  if (!rt_json_is(workspace, RT_JSON_TEXT) && !rt_json_is(workspace, RT_JSON_INTEGER))
    return malformed(self, "`workspace_nbytes` is not a size");
  out->takes_strides = rt_json_field(traits, "strided")->is_true;
  out->takes_workspace = rt_json_is(workspace, RT_JSON_TEXT) || workspace->integer != 0;
  out->has_traits = out->takes_strides || out->takes_workspace || rt_json_field(traits, "in_place")->count;
  return 0;
}

static int32_t read_function(const module *self, const rt_json *item, function *out) {
  int32_t status = rt_check_record(item, "symbol inputs outputs ?traits", self->where);
  if (!status)
    status = rt_read_tensors(self->pool, rt_json_field(item, "inputs"), self->where, &out->inputs, &out->num_inputs);
  if (!status)
    status = rt_read_tensors(self->pool, rt_json_field(item, "outputs"), self->where, &out->outputs, &out->num_outputs);
  if (status) return status;
  out->symbol = rt_read_string(self->pool, rt_json_field(item, "symbol"), "symbol", self->where);
  if (!out->symbol) return rt_error_status();
  if (!is_symbol(out->symbol)) return malformed(self, "a symbol is no C identifier");
  const rt_json *traits = rt_json_field(item, "traits");
  return traits ? read_traits(self, traits, out) : 0;
}

static int32_t read_functions(module *self, const rt_json *list, format_needs *needs) {
  if (list->count > INT32_MAX / 4) return malformed(self, "too many functions");
  self->num_functions = (int32_t)list->count;
  self->functions = rt_take(self->pool, list->count, sizeof *self->functions);
  if (!self->functions) return rt_error_status();
  for (int32_t i = 0; i < self->num_functions; ++i) {
    const int32_t status = read_function(self, &list->items[i], &self->functions[i]);
    if (status) return status;
    needs->has_traits = needs->has_traits || self->functions[i].has_traits;
  }
  return 0;
}

static int32_t find_constants(module *self, const rt_json *header, const byoc_rt_payload *payload) {
  const char *const *digests;
  int32_t status = rt_read_strings(self->pool, rt_json_field(header, "constants"), "constants", self->where, &digests,
                                 &self->num_constants);
  if (status) return status;
  self->constants = rt_take(self->pool, (size_t)self->num_constants, sizeof *self->constants);
  if (!self->constants) return rt_error_status();
  for (int32_t i = 0; i < self->num_constants; ++i)
    if (!(self->constants[i] = payload->constant(payload->context, digests[i]))) return rt_error_status();
  return 0;
}

/* Read a list of texts of which only the presence is used here. */
static int32_t check_texts(const module *self, const rt_json *header, const char *name, int *is_present) {
  const char *const *texts;
  int32_t count = 0;
  const rt_json *list = rt_json_field(header, name);
  const int32_t status = list ? rt_read_strings(self->pool, list, name, self->where, &texts, &count) : 0;
  *is_present = *is_present || count;
  return status;
}

static int32_t read_target(module *self, const rt_json *header) {
  rt_target *target = &self->target;
  target->system = rt_read_string(self->pool, rt_json_field(header, "system"), "system", self->where);
  target->machine = rt_read_string(self->pool, rt_json_field(header, "machine"), "machine", self->where);
  if (!target->system || !target->machine) return rt_error_status();
  return rt_read_strings(self->pool, rt_json_field(header, "features"), "features", self->where, &target->features,
                       &target->num_features);
}

static int32_t check_options(const module *self, const rt_json *header, format_needs *needs) {
  int has_flags = 0;
  const rt_json *level = rt_json_field(header, "opt_level"), *triple = rt_json_field(header, "target");
  if (!rt_json_is(level, RT_JSON_INTEGER) || level->integer < 0 || level->integer > 3)
    return malformed(self, "`opt_level` is no level");
  if (triple && !rt_json_is(triple, RT_JSON_TEXT)) return malformed(self, "`target` is not a text");
  needs->has_traits = needs->has_traits || (triple && triple->text.length);
  int32_t status = rt_check_kind(header, "march", RT_JSON_TEXT, self->where);
  if (!status) status = check_texts(self, header, "extra_flags", &has_flags);
  if (!status) status = check_texts(self, header, "libraries", &needs->has_own_files);
  return status ? status : check_texts(self, header, "not_held", &needs->has_own_files);
}

static int32_t read_header(module *self, const rt_json *header, const byoc_rt_payload *payload) {
  format_needs needs = {0, 0};
  int32_t status = rt_check_record(header, "functions constants opt_level march extra_flags system machine features "
                                           "?target ?libraries ?not_held", self->where);
  if (!status) status = rt_check_kind(header, "functions", RT_JSON_ARRAY, self->where);
  if (!status) status = read_functions(self, rt_json_field(header, "functions"), &needs);
  if (!status) status = check_options(self, header, &needs);
  if (!status) status = read_target(self, header);
  if (!status) status = find_constants(self, header, payload);
  if (status) return status;
  const int32_t format = needs.has_own_files ? 3 : needs.has_traits ? 2 : 1;
  return format == self->format ? 0 : malformed(self, "the format does not fit the content");
}

/* Read a number of 8 bytes, little-endian. */
static uint64_t read_length(const uint8_t *data) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= (uint64_t)data[i] << (8 * i);
  return value;
}

/* Find the three parts of a body: lengths, then header, text and library. */
static int32_t split_body(module *self, const uint8_t *body, size_t nbytes, rt_text *header) {
  rt_text *const parts[] = {header, &self->source, &self->library_bytes};
  size_t position = LENGTHS_NBYTES;
  for (int i = 0; i < 3; ++i) {
    const uint64_t length = read_length(body + 8 * i);
    if (length > nbytes - position) break;
    *parts[i] = (rt_text){(const char *)body + position, length};
    position += length;
    if (i == 2 && position == nbytes) return 0;
  }
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: a csource module is damaged: the lengths do not fit the bytes",
                      self->where);
}

/* Find the format in the magic line of a payload; modules of several formats may stand in an artifact. */
static int find_format(module *self, const byoc_rt_payload *payload) {
  char magic[2 * MAGIC_NBYTES];
  for (self->format = MIN_FORMAT; self->format <= MAX_FORMAT; ++self->format) {
    (void)snprintf(magic, sizeof magic, "byoc-csource-%d\n", (int)self->format);
    if (!memcmp(payload->data, magic, MAGIC_NBYTES)) return 1;
  }
  return 0;
}

/* Check magic and digest of a payload, and find the three parts. */
static int32_t split(module *self, const byoc_rt_payload *payload, rt_text *header) {
  uint8_t digest[RT_SHA256_NBYTES];
  rt_sha256 hash;
  const size_t head_nbytes = MAGIC_NBYTES + RT_SHA256_NBYTES;
  if (payload->nbytes < head_nbytes + LENGTHS_NBYTES || !find_format(self, payload))
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is not a csource module of format %d to %d", self->where, MIN_FORMAT,
                        MAX_FORMAT);
  rt_sha256_begin(&hash);
  rt_sha256_add(&hash, payload->data + head_nbytes, payload->nbytes - head_nbytes);
  rt_sha256_end(&hash, digest);
  if (memcmp(digest, payload->data + MAGIC_NBYTES, sizeof digest))
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: a csource module is damaged: the digest does not fit the bytes",
                        self->where);
  return split_body(self, payload->data + head_nbytes, payload->nbytes - head_nbytes, header);
}

static int contains(rt_text text, const char *part) {
  return memmem(text.data, text.length, part, strlen(part)) != NULL;
}

static int32_t read_module(module *self, const byoc_rt_payload *payload) {
  rt_text text;
  int32_t status = split(self, payload, &text);
  if (status) return status;
  rt_pool *nodes = rt_pool_new();
  if (!nodes) return rt_error_status();
  const rt_json *header = rt_json_read(nodes, text, BYOC_RT_ARTIFACT, self->where);
  status = header ? read_header(self, header, payload) : rt_error_status();
  rt_pool_free(nodes);
  self->has_threads = contains(self->source, PARALLEL_INCLUDE);
  return status;
}

static void unload(void *loaded) {
  module *self = loaded;
  rt_return_library(self->library);
  rt_pool_free(self->pool);
}

static int32_t load(const byoc_rt_payload *payload, void **loaded) {
  rt_pool *pool = rt_pool_new();
  module *self = pool ? rt_take(pool, 1, sizeof *self) : NULL;
  if (!self) {
    rt_pool_free(pool);
    return rt_error_status();
  }
  self->pool = pool;
  (void)snprintf(self->where, sizeof self->where, "%s", payload->where);
  const int32_t status = read_module(self, payload);
  if (status)
    unload(self);
  else
    *loaded = self;
  return status;
}

/* Fill in the library's table of constants. */
static int32_t fill_table(const module *self) {
  const void **table = rt_find_symbol(self->library, "byoc_constants", self->where);
  if (!table) return rt_error_status();
  if (rt_variable_nbytes(table) / sizeof *table < (size_t)self->num_constants)
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: the library has fewer constants than the module; got %zu, expected %d",
                        self->where, rt_variable_nbytes(table) / sizeof *table, (int)self->num_constants);
  for (int32_t i = 0; i < self->num_constants; ++i) table[i] = self->constants[i]->data;
  return 0;
}

/* Load the library when the first function is found. */
static int32_t load_library(module *self) {
  if (self->library) return 0;
  const int32_t status = rt_check_target(&self->target, self->where);
  if (status) return status;
  self->library = rt_take_library((const uint8_t *)self->library_bytes.data, self->library_bytes.length,
                                  self->num_constants > 0, self->where);
  if (!self->library) return rt_error_status();
  void *address = rt_find_symbol(self->library, "byoc_last_error", self->where);
  if (!address) return rt_error_status();
  memcpy(&self->last_error, &address, sizeof address);
  return self->num_constants ? fill_table(self) : 0;
}

static const char *explain(void *context, int32_t status) {
  (void)status;
  return ((const module *)context)->last_error();
}

static int32_t find(void *loaded, const char *symbol, byoc_rt_entry *entry) {
  module *self = loaded;
  const function *found = NULL;
  for (int32_t i = 0; i < self->num_functions && !found; ++i)
    if (!strcmp(self->functions[i].symbol, symbol)) found = &self->functions[i];
  if (!found) return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: has no function `%s`", self->where, symbol);
  const int32_t status = load_library(self);
  if (status) return status;
  rt_line name = {.length = 0};
  rt_append(&name, "__tvm_ffi_%s", symbol);
  void *address = rt_find_symbol(self->library, name.text, self->where);
  if (!address) return rt_error_status();
  memcpy(&entry->fill, &address, sizeof address);
  entry->context = self;
  entry->explain = explain;
  entry->num_inputs = found->num_inputs;
  entry->num_outputs = found->num_outputs;
  entry->inputs = found->inputs;
  entry->outputs = found->outputs;
  entry->takes_strides = found->takes_strides;
  entry->takes_workspace = found->takes_workspace;
  return 0;
}

int rt_csource_has_threads(const void *loaded) { return ((const module *)loaded)->has_threads; }

const byoc_rt_runtime *rt_csource_runtime(void) {
  static const byoc_rt_runtime runtime = {.struct_size = sizeof runtime,
                                          .abi_version = BYOC_RT_ABI_VERSION,
                                          .type_key = "csource",
                                          .min_format = MIN_FORMAT,
                                          .max_format = MAX_FORMAT,
                                          .load = load,
                                          .unload = unload,
                                          .find = find};
  return &runtime;
}
