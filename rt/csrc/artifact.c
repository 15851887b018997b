#include "artifact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digest.h"
#include "dtypes.h"
#include "status.h"

enum { VERIFIED_NBYTES = 1 << 20, MAX_NAME = 96 };

static int32_t fail_damaged(const rt_artifact *artifact, const char *kind, const char *name) {
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s, %s %s: is damaged. Copy the file again, or compile the model again.",
                      artifact->where, kind, name);
}

/* Return a member named by the manifest, or NULL after setting an error. */
static const rt_member *need_member(const rt_artifact *artifact, const char *name) {
  const rt_member *member = rt_find_member(&artifact->archive, name);
  if (!member)
    (void)byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: has no member %s. Copy the file again, or compile the model again.",
                       artifact->where, name);
  return member;
}

static void name_constant(char *name, const char *digest) { (void)snprintf(name, MAX_NAME, "constants/%s", digest); }

static int has_constants(const rt_archive *archive) {
  for (size_t i = 0; i < archive->num_members; ++i)
    if (rt_is_constant(&archive->members[i])) return 1;
  return 0;
}

static int32_t fail_missing_constant(const rt_artifact *artifact, const char *digest) {
  if (has_constants(&artifact->archive))
    return byoc_rt_fail(BYOC_RT_ARTIFACT,
                        "%s: has no member constants/%s. Copy the file again, or compile the model again.",
                        artifact->where, digest);
  if (artifact->weights && artifact->weights->where)
    return byoc_rt_fail(BYOC_RT_ARTIFACT,
                        "%s: constant %.12s is not in the artifact, nor in %s. Another file holds the constants.",
                        artifact->where, digest, artifact->weights->where);
  return byoc_rt_fail(BYOC_RT_ARTIFACT,
                      "%s: constant %.12s is not in the artifact. The constants are in another file: put "
                      "`weights.byocw` beside the artifact, name the file in `weights` of byoc_rt_options, or make the "
                      "artifact whole by `byoc weights join`.",
                      artifact->where, digest);
}

/* Return the member of a constant, in the artifact or in the file of weights; NULL after setting an error. */
static const rt_member *need_constant(const rt_artifact *artifact, const char *digest) {
  char name[MAX_NAME];
  name_constant(name, digest);
  const rt_member *member = rt_find_member(&artifact->archive, name);
  if (!member && artifact->weights && artifact->weights->where)
    member = rt_find_member(&artifact->weights->archive, name);
  if (!member) (void)fail_missing_constant(artifact, digest);
  return member;
}

static void name_payload(char *name, int32_t module) {
  (void)snprintf(name, MAX_NAME, "modules/%d/payload", (int)module);
}

/* Count the constants in the archive itself. */
static int32_t count_own_constants(const rt_artifact *artifact) {
  int32_t count = 0;
  char name[MAX_NAME];
  for (int32_t i = 0; i < artifact->manifest.num_constants; ++i) {
    name_constant(name, artifact->manifest.constants[i].digest);
    count += rt_find_member(&artifact->archive, name) != NULL;
  }
  return count;
}

/* Fail unless the archive has exactly the members named by the manifest; constants may be in the file of weights. */
static int32_t check_members(const rt_artifact *artifact, int32_t num_own_constants) {
  const rt_manifest *manifest = &artifact->manifest;
  char name[MAX_NAME];
  if (!need_member(artifact, "program")) return rt_error_status();
  for (int32_t i = 0; i < manifest->num_constants; ++i)
    if (!need_constant(artifact, manifest->constants[i].digest)) return rt_error_status();
  for (int32_t i = 0; i < manifest->num_modules; ++i) {
    name_payload(name, i);
    if (!need_member(artifact, name)) return rt_error_status();
  }
  const size_t num_named = 2 + (size_t)num_own_constants + (size_t)manifest->num_modules;
  if (artifact->archive.num_members == num_named) return 0;
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: has members not named by the manifest; got %zu members, expected %zu",
                      artifact->where, artifact->archive.num_members, num_named);
}

int32_t rt_open_artifact(rt_pool *pool, const uint8_t *data, size_t nbytes, const char *where, const char *path,
                         rt_weights *weights, rt_artifact *artifact) {
  artifact->where = where;
  artifact->weights = weights;
  int32_t status = rt_read_archive(pool, data, nbytes, where, &artifact->archive);
  if (status) return status;
  const rt_member *member = rt_find_member(&artifact->archive, "manifest.json");
  if (!member)
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is not a byoc artifact: it has no member manifest.json", where);
  if (rt_crc32(member->data, member->nbytes) != member->crc) return fail_damaged(artifact, "member", "manifest.json");
  const rt_text text = {(const char *)member->data, member->nbytes};
  status = rt_read_manifest(pool, text, where, &artifact->manifest);
  if (status) return status;
  const int32_t num_own_constants = count_own_constants(artifact);
  if (num_own_constants < artifact->manifest.num_constants && path && !weights->where) {
    status = rt_open_weights_beside(pool, path, weights);
    if (status) return status;
  }
  return check_members(artifact, num_own_constants);
}

/* Return a member after checking the SHA-256, or NULL after setting an error. */
static const rt_member *checked_member(const rt_artifact *artifact, const char *name, const char *digest) {
  const rt_member *member = need_member(artifact, name);
  uint8_t found[RT_SHA256_NBYTES];
  rt_sha256 hash;
  if (!member) return NULL;
  rt_sha256_begin(&hash);
  rt_sha256_add(&hash, member->data, member->nbytes);
  rt_sha256_end(&hash, found);
  if (rt_is_digest(found, digest)) return member;
  (void)fail_damaged(artifact, "member", name);
  return NULL;
}

const rt_member *rt_read_program_member(const rt_artifact *artifact) {
  return checked_member(artifact, "program", artifact->manifest.program);
}

const rt_member *rt_read_payload(const rt_artifact *artifact, int32_t module) {
  char name[MAX_NAME];
  name_payload(name, module);
  return checked_member(artifact, name, artifact->manifest.modules[module].digest);
}

/* Return whether the bytes of a constant are the saved bytes: the digest is of dtype, shape and bytes, as by
 * byoc_core.digest. */
static int is_intact(const rt_constant_entry *entry, const rt_member *member) {
  rt_line header = {.length = 0};
  rt_append(&header, "%s", rt_dtype_name(entry->dtype));
  rt_append_shape(&header, entry->shape, entry->ndim);
  uint8_t digest[RT_SHA256_NBYTES];
  rt_sha256 hash;
  rt_sha256_begin(&hash);
  rt_sha256_add(&hash, header.text, header.length);
  rt_sha256_add(&hash, member->data, member->nbytes);
  rt_sha256_end(&hash, digest);
  return rt_is_digest(digest, entry->digest);
}

static int32_t map_constant(const rt_artifact *artifact, const rt_constant_entry *entry, rt_constant *out) {
  const rt_member *member = need_constant(artifact, entry->digest);
  if (!member) return rt_error_status();
  if (member->nbytes != (uint64_t)entry->nbytes) {
    rt_line shape = {.length = 0};
    rt_append_shape(&shape, entry->shape, entry->ndim);
    return byoc_rt_fail(BYOC_RT_ARTIFACT,
                        "%s, constant %.12s: has the wrong number of bytes; got %zu, expected %lld for %s%s",
                        artifact->where, entry->digest, member->nbytes, (long long)entry->nbytes,
                        rt_dtype_name(entry->dtype), shape.text);
  }
  if (entry->nbytes < VERIFIED_NBYTES && !is_intact(entry, member))
    return fail_damaged(artifact, "constant", entry->digest);
  *out = (rt_constant){entry->digest,
                       {.data = (void *)(uintptr_t)member->data,
                        .device = {kDLCPU, 0},
                        .ndim = entry->ndim,
                        .dtype = entry->dtype,
                        .shape = entry->shape}};
  return 0;
}

static int compare_constants(const void *left, const void *right) {
  return strcmp(((const rt_constant *)left)->digest, ((const rt_constant *)right)->digest);
}

int32_t rt_map_constants(rt_pool *pool, const rt_artifact *artifact, rt_constants *constants) {
  const rt_manifest *manifest = &artifact->manifest;
  rt_constant *items = rt_take(pool, (size_t)manifest->num_constants, sizeof *items);
  if (!items) return rt_error_status();
  for (int32_t i = 0; i < manifest->num_constants; ++i) {
    const int32_t status = map_constant(artifact, &manifest->constants[i], &items[i]);
    if (status) return status;
  }
  if (manifest->num_constants) qsort(items, (size_t)manifest->num_constants, sizeof *items, compare_constants);
  *constants = (rt_constants){items, manifest->num_constants};
  return 0;
}

static int compare_digest(const void *digest, const void *constant) {
  return strcmp(digest, ((const rt_constant *)constant)->digest);
}

const DLTensor *rt_find_constant(const rt_constants *constants, const char *digest) {
  const rt_constant *found =
      bsearch(digest, constants->items, (size_t)constants->count, sizeof *constants->items, compare_digest);
  return found ? &found->tensor : NULL;
}
