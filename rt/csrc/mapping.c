#define _GNU_SOURCE
#include "mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "byoc_rt.h"

static int32_t fail_reading(const char *where, const char *problem) {
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: cannot be read: %s", where, problem);
}

static int32_t map_opened(int file, const char *where, rt_mapping *mapping) {
  struct stat status;
  if (fstat(file, &status)) return fail_reading(where, strerror(errno));
  if (!S_ISREG(status.st_mode)) return fail_reading(where, "is not a file");
  if (!status.st_size) {
    *mapping = (rt_mapping){(const uint8_t *)"", 0, 0, NULL};
    return 0;
  }
  const size_t nbytes = (size_t)status.st_size;
  void *data = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) return fail_reading(where, strerror(errno));
  *mapping = (rt_mapping){data, nbytes, 1, NULL};
  return 0;
}

int32_t rt_map_file(const char *path, const char *where, rt_mapping *mapping) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return fail_reading(where, strerror(errno));
  const int32_t status = map_opened(file, where, mapping);
  (void)close(file);
  return status;
}

int32_t rt_map_memory(const void *data, size_t nbytes, const char *where, rt_mapping *mapping) {
  *mapping = (rt_mapping){data, nbytes, 0, NULL};
  if ((uintptr_t)data % RT_ALIGNMENT == 0 || !nbytes) return 0;
  if (nbytes > SIZE_MAX - RT_ALIGNMENT ||
      !(mapping->copy = aligned_alloc(RT_ALIGNMENT, (nbytes + RT_ALIGNMENT - 1) / RT_ALIGNMENT * RT_ALIGNMENT)))
    return byoc_rt_fail(BYOC_RT_MEMORY, "%s: %zu bytes for an aligned copy cannot be allocated", where, nbytes);
  mapping->data = memcpy(mapping->copy, data, nbytes);
  return 0;
}

void rt_unmap(rt_mapping *mapping) {
  if (mapping->is_mapped) (void)munmap((void *)(uintptr_t)mapping->data, mapping->nbytes);
  free(mapping->copy);
  *mapping = (rt_mapping){NULL, 0, 0, NULL};
}

/* Drop the pages with the bytes from `start` to `end`. */
static void drop(const rt_mapping *mapping, const uint8_t *start, const uint8_t *end) {
  const long page = sysconf(_SC_PAGESIZE);
  if (page <= 0) return;
  const size_t first = (size_t)(start - mapping->data) / (size_t)page * (size_t)page;
  (void)madvise((void *)(uintptr_t)(mapping->data + first), (size_t)(end - mapping->data) - first, MADV_DONTNEED);
}

void rt_give_back_pages(const rt_mapping *mapping, const rt_archive *archive) {
  const uint8_t *end = mapping->data;
  if (!mapping->is_mapped) return;
  for (size_t i = 0; i < archive->num_members; ++i) {
    const rt_member *member = &archive->members[i];
    end = member->data + member->nbytes;
    if (rt_is_constant(member)) continue;
    drop(mapping, member->data, end);
  }
  drop(mapping, end, mapping->data + mapping->nbytes);
}
