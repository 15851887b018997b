/* The manifest of an artifact, as in byoc_core/artifact/manifest.py. */
#ifndef BYOC_RT_MANIFEST_H_
#define BYOC_RT_MANIFEST_H_

#include "byoc_rt.h"
#include "json.h"
#include "memory.h"
#include "text.h"

/* A callable function, with the signature. */
typedef struct {
  const char *name;
  const byoc_rt_tensor_info *inputs, *outputs;
  int32_t num_inputs, num_outputs;
} rt_signature;

/* A required runtime, with the distribution and version at the time the artifact was made. */
typedef struct {
  const char *type_key, *distribution, *version;
  int64_t payload_format;
} rt_needed_runtime;

/* A runtime module: the payload is the member `modules/<index>/payload`. */
typedef struct {
  const char *type_key, *digest;
  const char *const *functions;
  int32_t num_functions;
} rt_module_entry;

/* A constant: the bytes are the member `constants/<digest>`. */
typedef struct {
  const char *digest;
  DLDataType dtype;
  int32_t ndim;
  int64_t *shape;
  int64_t nbytes;
} rt_constant_entry;

typedef struct {
  const rt_signature *functions;
  const rt_needed_runtime *runtimes;
  const rt_module_entry *modules;
  const rt_constant_entry *constants;
  int32_t num_functions, num_runtimes, num_modules, num_constants;
  const char *program; /* SHA-256 of the member `program` */
} rt_manifest;

/* Read a manifest; the offload report inside is passed over. `where` is the artifact. Return nonzero after setting an
 * error: no manifest, or a newer format version. */
int32_t rt_read_manifest(rt_pool *pool, rt_text text, const char *where, rt_manifest *manifest);

/* Read the dtypes and shapes of constants, by digest. Return nonzero after setting an error. */
int32_t rt_read_constant_entries(rt_pool *pool, const rt_json *map, const char *where,
                                 const rt_constant_entry **entries, int32_t *count);

#endif /* BYOC_RT_MANIFEST_H_ */
