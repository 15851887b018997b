/* An artifact with checked container and manifest, and the checks of the members' digests: the checks are made where
 * byoc_core/artifact/loading.py makes them. */
#ifndef BYOC_RT_ARTIFACT_H_
#define BYOC_RT_ARTIFACT_H_

#include "archive.h"
#include "byoc_rt.h"
#include "manifest.h"
#include "weights.h"

typedef struct {
  const char *where; /* the name of the artifact in errors */
  const rt_weights *weights; /* the file with the constants missing in the artifact; NULL: none */
  rt_archive archive;
  rt_manifest manifest;
} rt_artifact;

/* Read container and manifest. The artifact points into `data`. If constants are missing, `weights` has these: unless
 * opened already, the file beside the artifact `path` is opened; NULL: the artifact is in memory alone. Return nonzero
 * after setting an error: no artifact, damaged, members missing or not expected, or a newer format version. */
int32_t rt_open_artifact(rt_pool *pool, const uint8_t *data, size_t nbytes, const char *where, const char *path,
                         rt_weights *weights, rt_artifact *artifact);

/* Return the program, or the payload of a module, after checking the digest. NULL after setting an error: damaged. */
const rt_member *rt_read_program_member(const rt_artifact *artifact);
const rt_member *rt_read_payload(const rt_artifact *artifact, int32_t module);

/* The constants of an artifact, mapped. */
typedef struct {
  const char *digest;
  DLTensor tensor;
} rt_constant;

typedef struct {
  const rt_constant *items; /* in order of digest */
  int32_t count;
} rt_constants;

/* Find the constants in place. The bytes of constants under a mebibyte are checked. Return nonzero after setting an
 * error: a constant is damaged, or has another number of bytes than stated. */
int32_t rt_map_constants(rt_pool *pool, const rt_artifact *artifact, rt_constants *constants);

/* Return a constant, or NULL. */
const DLTensor *rt_find_constant(const rt_constants *constants, const char *digest);

#endif /* BYOC_RT_ARTIFACT_H_ */
