/* The names of the libraries needed by a library in ELF form, as in byoc_core/native/elf.py. */
#ifndef BYOC_RT_NEEDED_H_
#define BYOC_RT_NEEDED_H_

#include <stddef.h>
#include <stdint.h>

/* Call `visit` with each needed name (DT_NEEDED), in order, until `visit` returns nonzero. Return this value; 0 for
 * anything else than a 64-bit little-endian ELF file, damaged files included. */
int32_t rt_visit_needed_libraries(const uint8_t *data, size_t nbytes, int32_t (*visit)(void *context, const char *name),
                                  void *context);

#endif /* BYOC_RT_NEEDED_H_ */
