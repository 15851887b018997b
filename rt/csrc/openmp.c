#define _GNU_SOURCE
#include "openmp.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "byoc_rt.h"

enum { MAX_THREADS = 1024 };

/* Copy the address of a symbol to a pointer to a function. */
static int find(void *library, const char *name, void *pointer) {
  void *address = dlsym(library, name);
  memcpy(pointer, &address, sizeof address);
  return address != NULL;
}

int32_t rt_prepare_threads(int32_t num_threads, rt_threads *threads) {
  *threads = (rt_threads){.num_threads = num_threads};
  if (num_threads < 0 || num_threads > MAX_THREADS)
    return byoc_rt_fail(BYOC_RT_CALL, "option `num_threads`: value not permitted; got %d, expected 0 to %d",
                        (int)num_threads, MAX_THREADS);
  if (!num_threads) return 0;
  /* Generated code looks the same library up, by the same name; it is never unloaded. */
  void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library || !find(library, "omp_set_num_threads", &threads->set_num_threads) ||
      !find(library, "omp_get_max_threads", &threads->max_threads))
    threads->max_threads = NULL;
  return 0;
}
