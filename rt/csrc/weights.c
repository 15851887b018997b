#define _GNU_SOURCE
#include "weights.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "byoc_rt.h"
#include "digest.h"
#include "manifest.h"
#include "records.h"
#include "status.h"

enum { FORMAT_VERSION = 1, MAX_NBYTES = 1 << 28, MAX_WHERE = 512, MAX_NAME = 96 };

static const char WEIGHTS_NAME[] = "weights.byocw";

/* Fail unless the archive has exactly the members named by the index. */
static int32_t check_members(const rt_weights *weights, const rt_constant_entry *entries, int32_t count) {
  char name[MAX_NAME];
  for (int32_t i = 0; i < count; ++i) {
    (void)snprintf(name, sizeof name, "constants/%s", entries[i].digest);
    if (!rt_find_member(&weights->archive, name))
      return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: has other members than named by the index; got no %s", weights->where,
                          name);
  }
  if (weights->archive.num_members == (size_t)count + 1) return 0;
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: has other members than named by the index; got %zu members, expected %zu",
                      weights->where, weights->archive.num_members, (size_t)count + 1);
}

static int32_t read_root(rt_pool *pool, const rt_weights *weights, const rt_json *root, const char *where) {
  const rt_json *version = rt_json_field(root, "format_version");
  if (rt_json_is(version, RT_JSON_INTEGER) && version->integer > FORMAT_VERSION)
    return byoc_rt_fail(BYOC_RT_ARTIFACT,
                        "%s: is of format %lld, not readable by this byoc-rt; expected format %d. Use a newer byoc-rt.",
                        where, (long long)version->integer, FORMAT_VERSION);
  int32_t status = rt_check_record(root, "format format_version constants", where);
  if (!status) status = rt_check_kind(root, "format_version", RT_JSON_INTEGER, where);
  if (!status) status = rt_check_kind(root, "constants", RT_JSON_OBJECT, where);
  if (status) return status;
  const rt_json *format = rt_json_field(root, "format");
  if (!rt_json_is(format, RT_JSON_TEXT) || !rt_equals(format->text, "byoc-weights") || version->integer < 1)
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: `format` or `format_version`", where);
  const rt_constant_entry *entries = NULL;
  int32_t count = 0;
  status = rt_read_constant_entries(pool, rt_json_field(root, "constants"), where, &entries, &count);
  return status ? status : check_members(weights, entries, count);
}

static int32_t read_index(rt_pool *pool, const rt_weights *weights) {
  const rt_member *member = rt_find_member(&weights->archive, "weights.json");
  char where[MAX_WHERE];
  if (!member)
    return byoc_rt_fail(BYOC_RT_ARTIFACT,
                        "%s: is no file of weights. Files of weights are made by `byoc weights share`.",
                        weights->where);
  (void)snprintf(where, sizeof where, "%s, member weights.json", weights->where);
  if (rt_crc32(member->data, member->nbytes) != member->crc)
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is damaged. Copy the file again, or compile the model again.", where);
  if (member->nbytes > MAX_NBYTES)
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is too large; got %zu bytes, expected at most %d", where,
                        member->nbytes, MAX_NBYTES);
  rt_pool *nodes = rt_pool_new();
  if (!nodes) return rt_error_status();
  const rt_text text = {(const char *)member->data, member->nbytes};
  const rt_json *root = rt_json_read(nodes, text, BYOC_RT_ARTIFACT, where);
  const int32_t status = root ? read_root(pool, weights, root, where) : rt_error_status();
  rt_pool_free(nodes);
  return status;
}

int32_t rt_open_weights(rt_pool *pool, const char *path, rt_weights *weights) {
  char where[MAX_WHERE];
  (void)snprintf(where, sizeof where, "weights `%s`", path);
  const char *copy = rt_copy(pool, rt_text_of(where));
  if (!copy) return rt_error_status();
  int32_t status = rt_map_file(path, copy, &weights->mapping);
  if (status) return status;
  weights->where = copy;
  status = rt_read_archive(pool, weights->mapping.data, weights->mapping.nbytes, copy, &weights->archive);
  return status ? status : read_index(pool, weights);
}

int32_t rt_open_weights_beside(rt_pool *pool, const char *artifact, rt_weights *weights) {
  const char *slash = strrchr(artifact, '/');
  const size_t length = slash ? (size_t)(slash - artifact) + 1 : 0;
  char *path = rt_take(pool, length + sizeof WEIGHTS_NAME, 1);
  struct stat status;
  if (!path) return rt_error_status();
  memcpy(path, artifact, length);
  memcpy(path + length, WEIGHTS_NAME, sizeof WEIGHTS_NAME);
  return stat(path, &status) || !S_ISREG(status.st_mode) ? 0 : rt_open_weights(pool, path, weights);
}

void rt_close_weights(rt_weights *weights) {
  if (weights->where) rt_unmap(&weights->mapping);
  *weights = (rt_weights){.where = NULL};
}
