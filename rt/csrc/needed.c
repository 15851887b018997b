#include "needed.h"

#include <string.h>

enum {
  HEADER_NBYTES = 64,
  SEGMENT_NBYTES = 56,
  ENTRY_NBYTES = 16,
  LOAD = 1,
  DYNAMIC = 2,
  NEEDED = 1,
  STRING_TABLE = 5,
  MAX_ENTRIES = 4096
};

typedef struct {
  const uint8_t *data;
  size_t nbytes;
} file;

/* Return whether a range lies in the file. */
static int has(const file *self, uint64_t offset, uint64_t nbytes) {
  return offset <= self->nbytes && nbytes <= self->nbytes - offset;
}

static uint64_t get(const file *self, uint64_t offset, int nbytes) {
  uint64_t value = 0;
  for (int i = 0; i < nbytes; ++i) value |= (uint64_t)self->data[offset + (uint64_t)i] << (8 * i);
  return value;
}

/* The segments of a file, whose headers lie in the file. */
typedef struct {
  uint64_t offset, count;
} segments;

static int find_segments(const file *self, segments *out) {
  if (self->nbytes < HEADER_NBYTES || memcmp(self->data, "\177ELF\2\1", 6)) return 0;
  if (get(self, 54, 2) != SEGMENT_NBYTES) return 0;
  *out = (segments){get(self, 32, 8), get(self, 56, 2)};
  return has(self, out->offset, out->count * SEGMENT_NBYTES);
}

/* Return the offset in the file of an address, or UINT64_MAX. */
static uint64_t offset_of(const file *self, const segments *all, uint64_t address) {
  for (uint64_t i = 0; i < all->count; ++i) {
    const uint64_t segment = all->offset + i * SEGMENT_NBYTES;
    const uint64_t start = get(self, segment + 8, 8), base = get(self, segment + 16, 8);
    const uint64_t size = get(self, segment + 32, 8);
    if (get(self, segment, 4) == LOAD && address >= base && address - base < size && start <= self->nbytes)
      return start + (address - base);
  }
  return UINT64_MAX;
}

/* Find the entries for the dynamic linker. */
static int find_entries(const file *self, const segments *all, uint64_t *offset, uint64_t *count) {
  for (uint64_t i = 0; i < all->count; ++i) {
    const uint64_t segment = all->offset + i * SEGMENT_NBYTES;
    if (get(self, segment, 4) != DYNAMIC) continue;
    *offset = get(self, segment + 8, 8);
    *count = get(self, segment + 32, 8) / ENTRY_NBYTES;
    if (*count > MAX_ENTRIES) *count = MAX_ENTRIES;
    return has(self, *offset, *count * ENTRY_NBYTES);
  }
  return 0;
}

/* Return the value of the first entry of a tag, or UINT64_MAX; and the number of entries before the end. */
static uint64_t find_value(const file *self, uint64_t entries, uint64_t *count, uint64_t tag) {
  uint64_t value = UINT64_MAX;
  for (uint64_t i = 0; i < *count; ++i) {
    const uint64_t found = get(self, entries + i * ENTRY_NBYTES, 8);
    if (found == 0) *count = i;
    if (found == tag && value == UINT64_MAX) value = get(self, entries + i * ENTRY_NBYTES + 8, 8);
  }
  return value;
}

int32_t rt_visit_needed_libraries(const uint8_t *data, size_t nbytes, int32_t (*visit)(void *context, const char *name),
                                  void *context) {
  const file self = {data, nbytes};
  segments all;
  uint64_t entries, count;
  if (!find_segments(&self, &all) || !find_entries(&self, &all, &entries, &count)) return 0;
  const uint64_t strings = offset_of(&self, &all, find_value(&self, entries, &count, STRING_TABLE));
  if (strings >= nbytes) return 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t entry = entries + i * ENTRY_NBYTES, position = get(&self, entry + 8, 8);
    if (get(&self, entry, 8) != NEEDED || position >= nbytes - strings) continue;
    const char *name = (const char *)data + strings + position;
    if (!memchr(name, 0, nbytes - strings - position)) return 0;
    const int32_t status = visit(context, name);
    if (status) return status;
  }
  return 0;
}
