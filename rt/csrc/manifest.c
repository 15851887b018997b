#include "manifest.h"

#include <stdio.h>
#include <string.h>

#include "digest.h"
#include "dtypes.h"
#include "status.h"
#include "records.h"

enum { FORMAT_VERSION = 1, MAX_NBYTES = 1 << 28, MAX_RANK = 32, MAX_WHERE = 512 };
static const int64_t MAX_ELEMENTS = INT64_C(1) << 56;

/* The state of reading. */
typedef struct {
  rt_pool *pool;
  char where[MAX_WHERE]; /* the member */
} reader;

/* Take an array for the items of a list. Return NULL after setting an error. */
static void *take_items(const reader *self, const rt_json *root, const char *name, size_t nbytes, int32_t *count) {
  const rt_json *list = rt_json_field(root, name);
  if (list->count > INT32_MAX / 4) {
    (void)byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: `%s` has too many items", self->where, name);
    return NULL;
  }
  *count = (int32_t)list->count;
  return rt_take(self->pool, list->count, nbytes);
}

/* Return a copy of a field of a record, or NULL after setting an error. */
static const char *text_field(const reader *self, const rt_json *record, const char *name) {
  return rt_read_string(self->pool, rt_json_field(record, name), name, self->where);
}

static int is_hexadecimal_digest(const char *text) {
  return strlen(text) == RT_HEX_NBYTES - 1 && strspn(text, "0123456789abcdef") == RT_HEX_NBYTES - 1;
}

/* Return a copy of a digest of a record, or NULL after setting an error. */
static const char *digest_field(const reader *self, const rt_json *record, const char *name) {
  const char *digest = text_field(self, record, name);
  if (!digest || is_hexadecimal_digest(digest)) return digest;
  (void)byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: `%s` is not a digest; got %s", self->where, name, digest);
  return NULL;
}

static int32_t read_functions(const reader *self, const rt_json *root, rt_manifest *out) {
  rt_signature *functions = take_items(self, root, "functions", sizeof *functions, &out->num_functions);
  if (!functions) return rt_error_status();
  for (int32_t i = 0; i < out->num_functions; ++i) {
    const rt_json *item = rt_json_item(rt_json_field(root, "functions"), (uint32_t)i);
    rt_signature *function = &functions[i];
    int32_t status = rt_check_record(item, "name inputs outputs", self->where);
    if (!status && !(function->name = text_field(self, item, "name"))) status = rt_error_status();
    if (!status)
      status = rt_read_tensors(self->pool, rt_json_field(item, "inputs"), self->where, &function->inputs,
                               &function->num_inputs);
    if (!status)
      status = rt_read_tensors(self->pool, rt_json_field(item, "outputs"), self->where, &function->outputs,
                               &function->num_outputs);
    if (status) return status;
  }
  out->functions = functions;
  return 0;
}

static int32_t read_runtimes(const reader *self, const rt_json *root, rt_manifest *out) {
  rt_needed_runtime *runtimes = take_items(self, root, "runtimes", sizeof *runtimes, &out->num_runtimes);
  if (!runtimes) return rt_error_status();
  for (int32_t i = 0; i < out->num_runtimes; ++i) {
    const rt_json *item = rt_json_item(rt_json_field(root, "runtimes"), (uint32_t)i);
    int32_t status = rt_check_record(item, "type_key distribution version payload_format", self->where);
    if (!status) status = rt_check_kind(item, "payload_format", RT_JSON_INTEGER, self->where);
    if (status) return status;
    runtimes[i] = (rt_needed_runtime){text_field(self, item, "type_key"), text_field(self, item, "distribution"),
                                      text_field(self, item, "version"),
                                      rt_json_field(item, "payload_format")->integer};
    if (!runtimes[i].type_key || !runtimes[i].distribution || !runtimes[i].version) return rt_error_status();
  }
  out->runtimes = runtimes;
  return 0;
}

static int32_t read_modules(const reader *self, const rt_json *root, rt_manifest *out) {
  rt_module_entry *modules = take_items(self, root, "modules", sizeof *modules, &out->num_modules);
  if (!modules) return rt_error_status();
  for (int32_t i = 0; i < out->num_modules; ++i) {
    const rt_json *item = rt_json_item(rt_json_field(root, "modules"), (uint32_t)i);
    int32_t status = rt_check_record(item, "type_key functions native digest", self->where);
    if (!status) status = rt_check_kind(item, "native", RT_JSON_BOOL, self->where);
    if (!status)
      status = rt_read_strings(self->pool, rt_json_field(item, "functions"), "functions", self->where,
                             &modules[i].functions, &modules[i].num_functions);
    if (status) return status;
    modules[i].type_key = text_field(self, item, "type_key");
    modules[i].digest = digest_field(self, item, "digest");
    if (!modules[i].type_key || !modules[i].digest) return rt_error_status();
  }
  out->modules = modules;
  return 0;
}

/* Read the shape of a constant, and compute the bytes. */
static int32_t read_constant_shape(rt_pool *pool, const rt_json *shape, const char *where, rt_constant_entry *out) {
  if (!rt_json_is(shape, RT_JSON_ARRAY) || shape->count > MAX_RANK)
    return byoc_rt_fail(BYOC_RT_ARTIFACT,
                        "%s: is malformed: the shape of constant %.12s is no list of at most %d sizes",
                        where, out->digest, MAX_RANK);
  int64_t num_nonzero = 1, count = 1;
  out->ndim = (int32_t)shape->count;
  out->shape = rt_take(pool, shape->count, sizeof *out->shape);
  if (!out->shape) return rt_error_status();
  for (uint32_t axis = 0; axis < shape->count; ++axis) {
    const int32_t status = rt_read_axis(&shape->items[axis], where, &out->shape[axis]);
    if (status) return status;
    count = out->shape[axis] ? count : 0;
    if (out->shape[axis] && (__builtin_mul_overflow(num_nonzero, out->shape[axis], &num_nonzero) ||
                             num_nonzero >= MAX_ELEMENTS))
      return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: constant %.12s has too many elements", where,
                          out->digest);
  }
  out->nbytes = count * num_nonzero * rt_itemsize(out->dtype);
  return 0;
}

int32_t rt_read_constant_entries(rt_pool *pool, const rt_json *map, const char *where,
                                 const rt_constant_entry **entries, int32_t *count) {
  if (map->count > INT32_MAX / 4)
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: `constants` has too many items", where);
  rt_constant_entry *constants = rt_take(pool, map->count, sizeof *constants);
  if (!constants) return rt_error_status();
  for (uint32_t i = 0; i < map->count; ++i) {
    const rt_json_member *field = &map->fields[i];
    constants[i].digest = rt_copy(pool, field->name);
    if (!constants[i].digest) return rt_error_status();
    if (!is_hexadecimal_digest(constants[i].digest) || field->name.length != RT_HEX_NBYTES - 1)
      return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: a constant has no digest; got %s", where,
                          constants[i].digest);
    int32_t status = rt_check_record(&field->value, "dtype shape", where);
    if (!status) status = rt_read_dtype(rt_json_field(&field->value, "dtype"), where, &constants[i].dtype);
    if (!status)
      status = read_constant_shape(pool, rt_json_field(&field->value, "shape"), where, &constants[i]);
    if (status) return status;
  }
  *entries = constants;
  *count = (int32_t)map->count;
  return 0;
}

/* Fail for a newer format: the fields may differ in everything but the version. */
static int32_t check_version(const rt_json *root, const char *where) {
  const rt_json *version = rt_json_field(root, "format_version"), *maker = rt_json_field(root, "core_version");
  if (!rt_json_is(version, RT_JSON_INTEGER) || version->integer <= FORMAT_VERSION) return 0;
  return byoc_rt_fail(BYOC_RT_ARTIFACT,
                      "%s: made by byoc-core %s in artifact format %lld, not readable by this byoc-rt; expected format "
                      "%d or older. Use a newer byoc-rt.",
                      where, rt_json_is(maker, RT_JSON_TEXT) ? maker->text.data : "of an unknown version",
                      (long long)version->integer, FORMAT_VERSION);
}

static int32_t read_root(const reader *self, const rt_json *root, rt_manifest *out) {
  int32_t status = rt_check_record(
      root, "format format_version core_version functions runtimes modules constants program report", self->where);
  if (!status) status = rt_check_kind(root, "format_version", RT_JSON_INTEGER, self->where);
  if (!status) status = rt_check_kind(root, "core_version", RT_JSON_TEXT, self->where);
  if (!status) status = rt_check_kind(root, "functions", RT_JSON_ARRAY, self->where);
  if (!status) status = rt_check_kind(root, "runtimes", RT_JSON_ARRAY, self->where);
  if (!status) status = rt_check_kind(root, "modules", RT_JSON_ARRAY, self->where);
  if (!status) status = rt_check_kind(root, "constants", RT_JSON_OBJECT, self->where);
  if (!status) status = rt_check_kind(root, "report", RT_JSON_OBJECT, self->where);
  if (status) return status;
  const rt_json *format = rt_json_field(root, "format"), *version = rt_json_field(root, "format_version");
  if (!rt_json_is(format, RT_JSON_TEXT) || !rt_equals(format->text, "byoc") || version->integer < 1)
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: `format` or `format_version`", self->where);
  status = read_functions(self, root, out);
  if (!status) status = read_runtimes(self, root, out);
  if (!status) status = read_modules(self, root, out);
  if (!status)
    status = rt_read_constant_entries(self->pool, rt_json_field(root, "constants"), self->where, &out->constants,
                                      &out->num_constants);
  if (!status && !(out->program = digest_field(self, root, "program"))) status = rt_error_status();
  return status;
}

int32_t rt_read_manifest(rt_pool *pool, rt_text text, const char *where, rt_manifest *manifest) {
  reader self = {.pool = pool};
  (void)snprintf(self.where, sizeof self.where, "%s, member manifest.json", where);
  if (text.length > MAX_NBYTES)
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is too large; got %zu bytes, expected at most %d", self.where,
                        text.length,
                        MAX_NBYTES);
  rt_pool *nodes = rt_pool_new();
  if (!nodes) return rt_error_status();
  const rt_json *root = rt_json_read(nodes, text, BYOC_RT_ARTIFACT, self.where);
  int32_t status = root ? check_version(root, where) : rt_error_status();
  if (!status) status = read_root(&self, root, manifest);
  rt_pool_free(nodes);
  return status;
}
