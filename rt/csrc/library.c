#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#if defined(__GLIBC__)
#include <elf.h>
#include <link.h>
#endif

#include "byoc_rt.h"
#include "digest.h"
#include "needed.h"
#include "text.h"

struct rt_library {
  rt_library *next;
  uint8_t digest[RT_SHA256_NBYTES];
  void *handle;
  int has_table, is_taken;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the libraries */
static rt_library *libraries;

/* ---- Needed libraries -------------------------------------------------------------------------------------------- */

/* Return whether a needed name is a plain file name. */
static int is_file_name(const char *name) {
  static const char permitted[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+.-";
  return *name && name[strspn(name, permitted)] == '\0' && strcmp(name, ".") && strcmp(name, "..");
}

/* Find the file of a needed library in the folders of BYOC_LIBRARY_PATH; NULL if absent. The caller frees the path. */
static char *find_needed(const char *name) {
  const char *folder = getenv("BYOC_LIBRARY_PATH");
  while (folder && *folder && is_file_name(name)) {
    const size_t length = strcspn(folder, ":");
    char *path = NULL, *found = NULL;
    if (length && asprintf(&path, "%.*s/%s", (int)length, folder, name) > 0) found = realpath(path, NULL);
    free(path);
    if (found) return found;
    folder += length + (folder[length] == ':');
  }
  return NULL;
}

/* Load a needed library before the library that needs it: the dynamic linker then takes the loaded library. */
static int32_t load_needed(void *context, const char *name) {
  (void)context;
  char *path = find_needed(name);
  if (path) (void)dlopen(path, RTLD_NOW | RTLD_LOCAL); /* the library may need another; then the folder helps */
  free(path);
  return 0;
}

static int32_t link_needed(void *folder, const char *name) {
  char *path = find_needed(name), *link = NULL;
  if (path && asprintf(&link, "%s/%s", (const char *)folder, name) > 0) (void)!symlink(path, link);
  free(link);
  free(path);
  return 0;
}

static int32_t unlink_needed(void *folder, const char *name) {
  char *link = NULL;
  if (is_file_name(name) && asprintf(&link, "%s/%s", (const char *)folder, name) > 0) (void)unlink(link);
  free(link);
  return 0;
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static int write_all(int file, const uint8_t *data, size_t nbytes) {
  while (nbytes) {
    const ssize_t count = write(file, data, nbytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return 0;
    data += count;
    nbytes -= (size_t)count;
  }
  return 1;
}

/* Append the reason for a failed attempt, unless another attempt has failed for the same reason. */
static void append_failure(rt_line *failures, const char *problem) {
  if (problem && strstr(failures->text, problem)) return;
  rt_append(failures, "%s%s", failures->length ? "; " : "", problem ? problem : "unknown");
}

#if defined(__linux__) && defined(SYS_memfd_create)

/* Write the path of an open file in a spelling used only once: the dynamic linker takes a path seen before for the
 * library seen before, though the number of the file may stand for another file now. Slashes and dots do not change a
 * path. */
static void spell_path(int file, char *path, size_t nbytes) {
  static unsigned count;
  static const char place; /* differs between copies of this code in a process */
  const uint64_t ids[2] = {(uint64_t)(uintptr_t)&place, ++count};
  size_t length = (size_t)snprintf(path, nbytes, "/proc/self/fd/");
  for (int i = 0; i < 2; ++i)
    for (uint64_t id = ids[i] | UINT64_C(1) << 63; id; id >>= 1)
      length += (size_t)snprintf(path + length, nbytes - length, id & 1 ? "./" : ".//");
  (void)snprintf(path + length, nbytes - length, "%d", file);
}

/* Load a library from memory. */
static void *load_from_memory(const uint8_t *data, size_t nbytes, rt_line *failures) {
  char path[512];
  const int file = (int)syscall(SYS_memfd_create, "byoc", 1u); /* closed in other programs */
  if (file < 0) {
    append_failure(failures, strerror(errno));
    return NULL;
  }
  void *handle = NULL;
  spell_path(file, path, sizeof path);
  if (!write_all(file, data, nbytes))
    append_failure(failures, strerror(errno));
  else if (!(handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
    append_failure(failures, dlerror());
  (void)close(file);
  return handle;
}

#else

static void *load_from_memory(const uint8_t *data, size_t nbytes, rt_line *failures) {
  (void)data, (void)nbytes, (void)failures;
  return NULL;
}

#endif

/* Load a library from a file in a private folder, beside links to the needed libraries. */
static void *load_in_folder(const char *folder, const uint8_t *data, size_t nbytes, rt_line *failures) {
  char *path = NULL;
  void *handle = NULL;
  if (asprintf(&path, "%s/module.so", folder) < 0) return NULL;
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
  if (file < 0 || !write_all(file, data, nbytes)) append_failure(failures, strerror(errno));
  if (file >= 0 && !close(file)) {
    (void)rt_visit_needed_libraries(data, nbytes, link_needed, (void *)(uintptr_t)folder);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) append_failure(failures, dlerror());
    (void)rt_visit_needed_libraries(data, nbytes, unlink_needed, (void *)(uintptr_t)folder);
  }
  (void)unlink(path);
  free(path);
  return handle;
}

/* Load a library from a new private folder in another folder. */
static void *load_under(const char *parent, const uint8_t *data, size_t nbytes, rt_line *failures) {
  char *folder = NULL;
  void *handle = NULL;
  if (asprintf(&folder, "%s/byoc-load-XXXXXX", parent) < 0) return NULL;
  if (!mkdtemp(folder)) {
    append_failure(failures, strerror(errno));
  } else {
    handle = load_in_folder(folder, data, nbytes, failures);
    (void)rmdir(folder);
  }
  free(folder);
  return handle;
}

/* Load a library from the folder of temporary files; if that does not permit execution, from the user's cache. */
static void *load_from_file(const uint8_t *data, size_t nbytes, rt_line *failures) {
  const char *temporary = getenv("TMPDIR"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char *own = NULL;
  void *handle = load_under(temporary && *temporary ? temporary : "/tmp", data, nbytes, failures);
  if (handle) return handle;
  if (cache && *cache ? asprintf(&own, "%s", cache) < 0 : !home || asprintf(&own, "%s/.cache", home) < 0) return NULL;
  (void)mkdir(own, 0700);
  handle = load_under(own, data, nbytes, failures);
  free(own);
  return handle;
}

/* Load a copy of a library; return NULL after setting an error. */
static void *load_copy(const uint8_t *data, size_t nbytes, const char *where) {
  static const char *const missing[] = {"cannot open shared object", "Error loading shared library", "not loaded"};
  rt_line failures = {.length = 0};
  (void)rt_visit_needed_libraries(data, nbytes, load_needed, NULL);
  void *handle = load_from_memory(data, nbytes, &failures);
  if (!handle) handle = load_from_file(data, nbytes, &failures);
  if (handle) return handle;
  const char *hint = "";
  for (size_t i = 0; i < sizeof missing / sizeof *missing; ++i)
    if (strstr(failures.text, missing[i]))
      hint = " Install the library, or add the folder to $BYOC_LIBRARY_PATH: "
             "artifacts do not contain shared libraries.";
  (void)byoc_rt_fail(BYOC_RT_LINK, "%s: cannot be loaded: %s.%s", where, failures.text, hint);
  return NULL;
}

/* Find a free loaded library; the mutex is locked. */
static rt_library *find_loaded(const uint8_t *digest, int has_table) {
  for (rt_library *library = libraries; library; library = library->next)
    if (!memcmp(library->digest, digest, RT_SHA256_NBYTES) && library->has_table == has_table &&
        !(has_table && library->is_taken))
      return library;
  return NULL;
}

/* Load a library and add it to the list; the mutex is locked. */
static rt_library *add_library(const uint8_t *data, size_t nbytes, const uint8_t *digest, int has_table,
                               const char *where) {
  rt_library *library = calloc(1, sizeof *library);
  if (!library) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "%s: no memory is left", where);
    return NULL;
  }
  library->handle = load_copy(data, nbytes, where);
  if (!library->handle) {
    free(library);
    return NULL;
  }
  memcpy(library->digest, digest, RT_SHA256_NBYTES);
  library->has_table = has_table;
  library->next = libraries;
  libraries = library;
  return library;
}

rt_library *rt_take_library(const uint8_t *data, size_t nbytes, int has_table, const char *where) {
  uint8_t digest[RT_SHA256_NBYTES];
  rt_sha256 hash;
  rt_sha256_begin(&hash);
  rt_sha256_add(&hash, data, nbytes);
  rt_sha256_end(&hash, digest);
  (void)pthread_mutex_lock(&mutex);
  rt_library *library = find_loaded(digest, has_table);
  if (!library) library = add_library(data, nbytes, digest, has_table, where);
  if (library) library->is_taken = 1;
  (void)pthread_mutex_unlock(&mutex);
  return library;
}

void rt_return_library(rt_library *library) {
  if (!library) return;
  (void)pthread_mutex_lock(&mutex);
  library->is_taken = 0;
  (void)pthread_mutex_unlock(&mutex);
}

void *rt_find_symbol(const rt_library *library, const char *symbol, const char *where) {
  void *address = dlsym(library->handle, symbol);
  if (!address) (void)byoc_rt_fail(BYOC_RT_LINK, "%s: does not export the symbol `%s`", where, symbol);
  return address;
}

size_t rt_variable_nbytes(const void *address) {
#if defined(__GLIBC__)
  Dl_info info;
  void *entry = NULL;
  if (dladdr1(address, &info, &entry, RTLD_DL_SYMENT) && entry && info.dli_saddr == address)
    return (size_t)((const ElfW(Sym) *)entry)->st_size;
#else
  (void)address;
#endif
  return SIZE_MAX;
}
