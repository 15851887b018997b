/* The bytes of an artifact in memory. */
#ifndef BYOC_RT_MAPPING_H_
#define BYOC_RT_MAPPING_H_

#include <stddef.h>
#include <stdint.h>

#include "archive.h"

typedef struct {
  const uint8_t *data;
  size_t nbytes;
  int is_mapped; /* from a file */
  void *copy;    /* or NULL */
} rt_mapping;

/* Map a file read-only. Return nonzero after setting an error that names `where`. */
int32_t rt_map_file(const char *path, const char *where, rt_mapping *mapping);

/* Use the memory of a caller, copied if not aligned for constants. Return nonzero after setting an error. */
int32_t rt_map_memory(const void *data, size_t nbytes, const char *where, rt_mapping *mapping);

void rt_unmap(rt_mapping *mapping);

/* Advise the system to drop the pages of everything but constants: these pages have been read. Reading the pages again
 * finds the same bytes. */
void rt_give_back_pages(const rt_mapping *mapping, const rt_archive *archive);

#endif /* BYOC_RT_MAPPING_H_ */
