/* A file of constants shared by several artifacts, as in byoc_core/artifact/weights_file.py: the container of artifacts
 * with members `constants/<digest>`, and `weights.json` with dtype and shape of each constant. */
#ifndef BYOC_RT_WEIGHTS_H_
#define BYOC_RT_WEIGHTS_H_

#include "archive.h"
#include "mapping.h"

/* An opened file; all zeros: no file. */
typedef struct {
  const char *where; /* the name of the file in errors; NULL: no file */
  rt_mapping mapping;
  rt_archive archive;
} rt_weights;

/* Map a file of constants, and check the index. Return nonzero after setting an error: the file cannot be read, is no
 * file of constants, is damaged, or is of a newer format; `weights` is to be closed then too. */
int32_t rt_open_weights(rt_pool *pool, const char *path, rt_weights *weights);

/* Open `weights.byocw` in the folder of an artifact, if the folder has such a file; otherwise `weights` stays as it is.
 * Return nonzero after setting an error. */
int32_t rt_open_weights_beside(rt_pool *pool, const char *artifact, rt_weights *weights);

void rt_close_weights(rt_weights *weights);

#endif /* BYOC_RT_WEIGHTS_H_ */
