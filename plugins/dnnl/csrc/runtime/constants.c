/* Constants of stored plans: as in the artifact, and packed in the layouts of primitives. */
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "layout.h"
#include "stored.h"

static void *no_memory(const Module *module) {
  (void)byoc_host_fail(BYOC_RT_MEMORY, "%s: no memory is left for constants", module->where);
  return NULL;
}

const DLTensor *byoc_cite_constant(Module *module, const char *digest) {
  for (const CitedConstant *cited = module->constants; cited; cited = cited->next)
    if (!strcmp(cited->digest, digest)) return cited->tensor;
  const byoc_rt_payload *payload = module->payload;
  const DLTensor *tensor = payload ? payload->constant(payload->context, digest) : NULL;
  if (!tensor) return NULL;
  CitedConstant *cited = malloc(sizeof *cited);
  if (!cited) return no_memory(module);
  cited->next = module->constants;
  cited->tensor = tensor;
  (void)strcpy(cited->digest, digest); /* of the same size */
  module->constants = cited;
  return tensor;
}

static const PackedConstant *find_packed(const Module *module, const void *source, Desc source_desc,
                                         Desc target_desc) {
  for (const PackedConstant *packed = module->packed; packed; packed = packed->next)
    if (packed->source == source && module->onednn->memory_desc_equal(packed->source_desc, source_desc) &&
        module->onednn->memory_desc_equal(packed->target_desc, target_desc))
      return packed;
  return NULL;
}

static void free_packed(const Onednn *onednn, PackedConstant *packed) {
  if (packed->source_desc) (void)onednn->memory_desc_destroy(packed->source_desc);
  if (packed->target_desc) (void)onednn->memory_desc_destroy(packed->target_desc);
  if (packed->block)
    byoc_release_block(packed->block);
  else
    free(packed->memory);
  free(packed);
}

/* Runs a primitive from one memory to another. */
static int execute(const Onednn *onednn, const StoredPrimitive *primitive, void *scratch, const PackedConstant *packed) {
  enum { SRC = 1, NUM_ARGUMENTS = 3 };
  void *scratch_desc = (void *)(uintptr_t)onednn->primitive_desc_query_md(primitive->desc, QUERY_SCRATCHPAD_MD, 0);
  void *const descs[NUM_ARGUMENTS] = {packed->source_desc, packed->target_desc, scratch_desc};
  void *const addresses[NUM_ARGUMENTS] = {(void *)(uintptr_t)packed->source, packed->memory, scratch};
  Argument arguments[NUM_ARGUMENTS] = {{SRC, NULL}, {ARG_DST, NULL}, {ARG_SCRATCHPAD, NULL}};
  void *stream = NULL;
  int status = onednn->stream_create(&stream, onednn->engine, IN_ORDER_STREAM);
  for (int i = 0; i < NUM_ARGUMENTS && !status; ++i)
    if (descs[i]) status = onednn->memory_create(&arguments[i].memory, descs[i], onednn->engine, addresses[i]);
  if (!status) status = onednn->primitive_execute(primitive->primitive, stream, NUM_ARGUMENTS, arguments);
  if (!status) status = onednn->stream_wait(stream);
  for (int i = 0; i < NUM_ARGUMENTS; ++i)
    if (arguments[i].memory) (void)onednn->memory_destroy(arguments[i].memory);
  if (stream) (void)onednn->stream_destroy(stream);
  return status;
}

static int32_t pack(Module *module, const Reader *reader, StoredPrimitive *primitive, PackedConstant *packed,
                    Desc source_desc, Desc target_desc) {
  const Onednn *onednn = module->onednn;
  int status = onednn->memory_desc_clone(&packed->source_desc, source_desc);
  if (!status) status = onednn->memory_desc_clone(&packed->target_desc, target_desc);
  if (status) return byoc_refused(reader, "a copy", status);
  Layout scratch;
  Desc scratch_desc = onednn->primitive_desc_query_md(primitive->desc, QUERY_SCRATCHPAD_MD, 0);
  if (!byoc_query_layout(onednn, scratch_desc, &scratch)) return byoc_damaged(reader, "a layout is out of range");
  packed->memory = byoc_allocate(packed->nbytes);
  void *scratch_memory = byoc_allocate(scratch.nbytes);
  int32_t outcome = packed->memory && scratch_memory ? 0 : -1;
  if (outcome)
    (void)no_memory(module);
  else
    outcome = byoc_create_primitive(reader, onednn, primitive);
  if (!outcome && (status = execute(onednn, primitive, scratch_memory, packed)))
    outcome = byoc_refused(reader, "packing", status);
  free(scratch_memory);
  return outcome;
}

const PackedConstant *byoc_pack_constant(Module *module, const Reader *reader, StoredPrimitive *primitive,
                                         const void *source, Desc source_desc, Desc target_desc) {
  Layout layout;
  const PackedConstant *found = find_packed(module, source, source_desc, target_desc);
  if (found) return found;
  if (!byoc_query_layout(module->onednn, target_desc, &layout) || byoc_extent(&layout) < 0) {
    (void)byoc_damaged(reader, "a layout is out of range");
    return NULL;
  }
  PackedConstant *packed = calloc(1, sizeof *packed);
  if (!packed) return no_memory(module);
  packed->source = source;
  packed->nbytes = byoc_extent(&layout);
  if (pack(module, reader, primitive, packed, source_desc, target_desc)) {
    free_packed(module->onednn, packed);
    return NULL;
  }
  packed->block = byoc_share_block(packed->memory, packed->nbytes);
  packed->memory = packed->block ? packed->block->memory : NULL;
  if (!packed->block) {
    free_packed(module->onednn, packed);
    return no_memory(module);
  }
  packed->next = module->packed;
  module->packed = packed;
  return packed;
}

void byoc_free_constants(Module *module) {
  for (PackedConstant *packed = module->packed, *next; packed; packed = next) {
    next = packed->next;
    free_packed(module->onednn, packed);
  }
  for (CitedConstant *cited = module->constants, *next; cited; cited = next) {
    next = cited->next;
    free(cited);
  }
}
