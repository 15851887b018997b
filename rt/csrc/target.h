/* The machine requirements of compiled code, as in byoc_core/native/cpu.py. */
#ifndef BYOC_RT_TARGET_H_
#define BYOC_RT_TARGET_H_

#include <stdint.h>

typedef struct {
  const char *system, *machine;     /* as named by uname */
  const char *const *features;      /* instruction sets, under the names of /proc/cpuinfo */
  int32_t num_features;
} rt_target;

/* Return nonzero after setting an error that names `where`, unless this machine can run code for the target. Outside of
 * Linux, only system and processor family are compared. */
int32_t rt_check_target(const rt_target *target, const char *where);

#endif /* BYOC_RT_TARGET_H_ */
