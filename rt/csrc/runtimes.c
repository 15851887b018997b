#define _GNU_SOURCE
#include "runtimes.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "csource.h"
#include "graph.h"
#include "text.h"

static const char VARIABLE[] = "BYOC_RT_RUNTIMES";

typedef struct added_runtime {
  const struct added_runtime *next;
  const byoc_rt_runtime *runtime;
} added_runtime;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the two variables below */
static const added_runtime *runtimes;
static int has_environment;

static int is_of(const byoc_rt_runtime *runtime, const char *type_key) { return !strcmp(runtime->type_key, type_key); }

/* Find a runtime; the mutex is locked. */
static const byoc_rt_runtime *find_locked(const char *type_key) {
  if (is_of(rt_csource_runtime(), type_key)) return rt_csource_runtime();
  if (is_of(rt_graph_runtime(), type_key)) return rt_graph_runtime();
  for (const added_runtime *item = runtimes; item; item = item->next)
    if (is_of(item->runtime, type_key)) return item->runtime;
  return NULL;
}

const byoc_rt_runtime *rt_find_runtime(const char *type_key) {
  (void)pthread_mutex_lock(&mutex);
  const byoc_rt_runtime *found = find_locked(type_key);
  (void)pthread_mutex_unlock(&mutex);
  return found;
}

int32_t byoc_rt_add_runtime(const byoc_rt_runtime *runtime) {
  if (!runtime || runtime->abi_version != BYOC_RT_ABI_VERSION || runtime->struct_size < sizeof *runtime)
    return byoc_rt_fail(BYOC_RT_LINK, "runtime: is for another version of this interface; got %d, expected %d",
                        runtime ? (int)runtime->abi_version : 0, BYOC_RT_ABI_VERSION);
  if (!runtime->type_key || !runtime->load || !runtime->unload || !runtime->find)
    return byoc_rt_fail(BYOC_RT_LINK, "runtime: has no type key, or lacks a function");
  added_runtime *item = malloc(sizeof *item); /* as long as the process runs */
  if (!item) return byoc_rt_fail(BYOC_RT_MEMORY, "runtime `%s`: no memory is left", runtime->type_key);
  (void)pthread_mutex_lock(&mutex);
  const int is_new = !find_locked(runtime->type_key);
  if (is_new) {
    *item = (added_runtime){runtimes, runtime};
    runtimes = item;
  }
  (void)pthread_mutex_unlock(&mutex);
  if (!is_new) free(item);
  return 0;
}

int32_t byoc_rt_load_runtime(const char *path) {
  byoc_rt_runtime_function function;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never unloaded: programs hold its functions */
  if (!library) return byoc_rt_fail(BYOC_RT_LINK, "runtime library `%s`: cannot be loaded: %s", path, dlerror());
  void *address = dlsym(library, BYOC_RT_RUNTIME_SYMBOL);
  if (!address)
    return byoc_rt_fail(BYOC_RT_LINK, "runtime library `%s`: does not export %s", path, BYOC_RT_RUNTIME_SYMBOL);
  memcpy(&function, &address, sizeof function);
  return byoc_rt_add_runtime(function());
}

/* Load the libraries of a list of paths separated by colons. */
static int32_t load_paths(char *paths) {
  int32_t status = 0;
  for (char *path = paths, *next; path && !status; path = next) {
    next = strchr(path, ':');
    if (next) *next++ = '\0';
    if (*path) status = byoc_rt_load_runtime(path);
  }
  if (!status) return 0;
  rt_line problem = {.length = 0};
  rt_append(&problem, "%s", byoc_rt_last_error());
  return byoc_rt_fail(status, "%s (named by the environment variable %s)", problem.text, VARIABLE);
}

int32_t rt_add_environment_runtimes(void) {
  (void)pthread_mutex_lock(&mutex);
  const int is_done = has_environment;
  (void)pthread_mutex_unlock(&mutex);
  const char *value = is_done ? NULL : getenv(VARIABLE);
  char *paths = value ? strdup(value) : NULL;
  if (value && !paths) return byoc_rt_fail(BYOC_RT_MEMORY, "%s: no memory is left", VARIABLE);
  /* Two threads may load the same libraries: a type key added twice keeps its first runtime. */
  const int32_t status = load_paths(paths);
  free(paths);
  if (status) return status;
  (void)pthread_mutex_lock(&mutex);
  has_environment = 1;
  (void)pthread_mutex_unlock(&mutex);
  return 0;
}
