#define _GNU_SOURCE
#include "target.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "byoc_rt.h"
#include "text.h"

static pthread_once_t features_once = PTHREAD_ONCE_INIT;
static char *machine_features; /* names with spaces around, or NULL: the system does not list them */

/* Keep the first line with the processor's features, between spaces. */
static void read_features(void) {
  FILE *file = fopen("/proc/cpuinfo", "re");
  char *line = NULL;
  size_t capacity = 0;
  while (file && !machine_features && getline(&line, &capacity, file) > 0) {
    char *value = strchr(line, ':');
    if (!value || (strncmp(line, "flags", 5) && strncmp(line, "Features", 8))) continue;
    value[strcspn(value, "\n")] = '\0';
    *value = ' ';
    if (asprintf(&machine_features, "%s ", value) < 0) machine_features = NULL;
  }
  free(line);
  if (file) (void)fclose(file);
}

static int has_feature(const char *name) {
  const size_t length = strlen(name);
  for (const char *found = machine_features; (found = strstr(found, name)); found += length)
    if (found[-1] == ' ' && found[length] == ' ') return 1;
  return 0;
}

int32_t rt_check_target(const rt_target *target, const char *where) {
  static const char hint[] = "Compile the model again on this machine, or for `march` = 'generic'.";
  struct utsname local;
  if (uname(&local)) return byoc_rt_fail(BYOC_RT_LINK, "%s: the system does not name itself", where);
  if (strcmp(local.sysname, target->system) || strcmp(local.machine, target->machine))
    return byoc_rt_fail(BYOC_RT_LINK,
                        "%s: the native code is for another kind of machine; got %s on %s, expected %s on %s. %s",
                            where,
                        target->system, target->machine, local.sysname, local.machine, hint);
  (void)pthread_once(&features_once, read_features);
  if (!machine_features) return 0;
  rt_line missing = {.length = 0};
  for (int32_t i = 0; i < target->num_features; ++i)
    if (!*target->features[i] || !has_feature(target->features[i]))
      rt_append(&missing, "%s%s", missing.length ? ", " : "", target->features[i]);
  if (!missing.length) return 0;
  return byoc_rt_fail(BYOC_RT_LINK, "%s: the native code needs CPU features missing on this machine: %s. %s", where,
                      missing.text, hint);
}
