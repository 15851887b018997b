/* The search for oneDNN, in this order:
 *
 * 1. the file named by BYOC_DNNL_LIBRARY; if the variable is set, nothing else is tried;
 * 2. files beside this library, and in `lib` of the Python environment holding this library;
 * 3. the system's library, found by the loader.
 */
#define _GNU_SOURCE
#include "onednn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { MAX_PATH_NBYTES = 4096 };
enum { RUNTIME_SEQUENTIAL = 1, RUNTIME_OPENMP = 2 };

static const char VARIABLE[] = "BYOC_DNNL_LIBRARY";
static const char *const NAMES[] = {"libdnnl.so.3", "libdnnl.so", "libdnnl.3.dylib", "libdnnl.dylib"};
enum { NUM_NAMES = sizeof NAMES / sizeof *NAMES };

/* From the folder of this library: the folder itself, and `lib` above `lib/pythonX/site-packages/byoc_dnnl/lib`. */
static const char *const FOLDERS[] = {"", "/../../../.."};
enum { NUM_FOLDERS = sizeof FOLDERS / sizeof *FOLDERS };

static int32_t fail(const char *path, const char *problem) {
  return byoc_host_fail(BYOC_RT_LINK, "oneDNN `%s`: %s. Name a libdnnl of version 3.2 or a later 3 by the environment "
                        "variable %s", path, problem, VARIABLE);
}

static void find(void *library, const char *name, void *pointer) {
  void *address = dlsym(library, name);
  memcpy(pointer, &address, sizeof address);
}

/* Returns the name of the first missing function, or NULL. */
static const char *find_functions(Onednn *onednn, void *library) {
#define FUNCTION(result, name, parameters)             \
  find(library, "dnnl_" #name, &onednn->name);         \
  if (!onednn->name) return "has no function dnnl_" #name;
  ONEDNN_FUNCTIONS(FUNCTION)
#undef FUNCTION
  return NULL;
}

/* Finds OpenMP through the library linked with it, so both have the same threads. */
static void find_threads(Onednn *onednn, void *library) {
  find(library, "omp_get_max_threads", &onednn->api.max_threads);
  find(library, "GOMP_parallel", &onednn->api.parallel);
  find(library, "omp_get_thread_num", &onednn->api.thread_num);
  find(library, "omp_set_num_threads", &onednn->set_num_threads);
  if (!onednn->api.max_threads || !onednn->set_num_threads) {
    onednn->api.max_threads = NULL;
    onednn->set_num_threads = NULL;
  }
}

static int32_t use(Onednn *onednn, void *library, const char *path) {
  const char *problem = find_functions(onednn, library);
  if (problem) return fail(path, problem);
  const OnednnVersion *version = onednn->version();
  const int is_old = version->major < FIRST_MAJOR || (version->major == FIRST_MAJOR && version->minor < FIRST_MINOR);
  if (is_old || version->major >= LAST_MAJOR) return fail(path, "has another version");
  if (version->cpu_runtime != RUNTIME_OPENMP && version->cpu_runtime != RUNTIME_SEQUENTIAL)
    return fail(path, "has threads other than OpenMP's");
  onednn->api.execute = onednn->primitive_execute;
  onednn->api.create_memory = onednn->memory_create;
  onednn->api.destroy_memory = onednn->memory_destroy;
  onednn->api.set_address = onednn->memory_set_data_handle;
  onednn->api.create_stream = onednn->stream_create;
  onednn->api.destroy_stream = onednn->stream_destroy;
  onednn->api.wait = onednn->stream_wait;
  if (version->cpu_runtime == RUNTIME_OPENMP) find_threads(onednn, library);
  (void)onednn->set_primitive_cache_capacity(0); /* a cached descriptor may point to freed attributes */
  if (onednn->engine_create(&onednn->engine, CPU_ENGINE, 0)) return fail(path, "cannot create an engine for the CPU");
  onednn->version_numbers[0] = version->major;
  onednn->version_numbers[1] = version->minor;
  onednn->version_numbers[2] = version->patch;
  onednn->isa = onednn->get_effective_cpu_isa();
  onednn->path = strdup(path);
  return onednn->path ? 0 : byoc_host_fail(BYOC_RT_MEMORY, "oneDNN: no memory is left");
}

/* Returns the first library to open, with its path; NULL if there is none. */
static void *open_installed(char *path) {
  Dl_info info;
  static const char here;
  if (!dladdr(&here, &info) || !info.dli_fname) info.dli_fname = "";
  const char *slash = strrchr(info.dli_fname, '/');
  for (int i = 0; slash && i < NUM_FOLDERS * NUM_NAMES; ++i) {
    const int length = (int)(slash - info.dli_fname);
    (void)snprintf(path, MAX_PATH_NBYTES, "%.*s%s/%s", length, info.dli_fname, FOLDERS[i / NUM_NAMES],
                   NAMES[i % NUM_NAMES]);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
  }
  for (int i = 0; i < NUM_NAMES; ++i) {
    (void)snprintf(path, MAX_PATH_NBYTES, "%s", NAMES[i]);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
  }
  return NULL;
}

/* Opens the library; it is never closed, because programs hold its functions. */
static int32_t open_library(Onednn *onednn) {
  char path[MAX_PATH_NBYTES];
  const char *named = getenv(VARIABLE);
  if (named && *named) {
    void *library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    return library ? use(onednn, library, named) : fail(named, dlerror());
  }
  void *library = open_installed(path);
  return library ? use(onednn, library, path) : fail(NAMES[0], "was not found");
}

const Onednn *byoc_open_onednn(void) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static Onednn onednn; /* with the mutex, until opened */
  static int is_open;
  (void)pthread_mutex_lock(&mutex);
  if (!is_open) {
    onednn = (Onednn){0};
    is_open = !open_library(&onednn);
  }
  const int has_opened = is_open;
  (void)pthread_mutex_unlock(&mutex);
  return has_opened ? &onednn : NULL;
}

int byoc_num_threads(const Onednn *onednn) { return onednn->api.max_threads ? onednn->api.max_threads() : 1; }
