/* APPNOTE.TXT 6.3, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16, 4.5.3 (ZIP64). */
#include "archive.h"

#include <stdlib.h>
#include <string.h>

#include "byoc_rt.h"
#include "status.h"

enum {
  LOCAL_NBYTES = 30,
  CENTRAL_NBYTES = 46,
  END_NBYTES = 22,
  END_64_NBYTES = 56,
  LOCATOR_64_NBYTES = 20,
  EXTRA_NBYTES = 4,
  ZIP64_ID = 0x0001,
  PADDING_ID = 0xD935,
  VERSION = 45,
  DATE = 0x0021
};

static const uint64_t LIMIT_16 = 0xFFFF, LIMIT_32 = 0xFFFFFFFF, MODE = (uint64_t)0100644 << 16;

/* Expected bytes of a header, compared with the file. */
typedef struct {
  uint8_t bytes[CENTRAL_NBYTES + END_64_NBYTES];
  size_t length;
} header;

static void put(header *self, uint64_t value, int nbytes) {
  for (int i = 0; i < nbytes; ++i) self->bytes[self->length++] = (uint8_t)(value >> (8 * i));
}

static void put_signature(header *self, uint8_t third, uint8_t fourth) {
  put(self, 'P' | 'K' << 8 | third << 16 | fourth << 24, 4);
}

static uint64_t least(uint64_t left, uint64_t right) { return left < right ? left : right; }

static uint64_t get(const uint8_t *data, int nbytes) {
  uint64_t value = 0;
  for (int i = 0; i < nbytes; ++i) value |= (uint64_t)data[i] << (8 * i);
  return value;
}

/* A position in the file. */
typedef struct {
  const uint8_t *data;
  size_t nbytes, position;
} cursor;

static int has(const cursor *self, uint64_t count) { return count <= self->nbytes - self->position; }

/* Return whether the next bytes are the expected bytes, and pass these bytes. */
static int match(cursor *self, const uint8_t *expected, size_t length) {
  if (!has(self, length) || (length && memcmp(self->data + self->position, expected, length))) return 0;
  self->position += length;
  return 1;
}

static int match_header(cursor *self, const header *expected) { return match(self, expected->bytes, expected->length); }

/* The central directory, as claimed by the end of the file. */
typedef struct {
  uint64_t count, position;
} directory;

static int find_directory(const uint8_t *data, size_t nbytes, directory *found) {
  if (nbytes < END_NBYTES) return 0;
  size_t end = nbytes - END_NBYTES;
  const uint8_t *record = data + end;
  if (memcmp(record, "PK\5\6", 4)) return 0;
  uint64_t size = get(record + 12, 4);
  *found = (directory){get(record + 10, 2), get(record + 16, 4)};
  if (found->count == LIMIT_16 || size == LIMIT_32 || found->position == LIMIT_32) {
    if (end < END_64_NBYTES + LOCATOR_64_NBYTES) return 0;
    end -= END_64_NBYTES + LOCATOR_64_NBYTES;
    record = data + end;
    size = get(record + 40, 8);
    *found = (directory){get(record + 32, 8), get(record + 48, 8)};
  }
  /* Each record has at least CENTRAL_NBYTES: the count is bounded by the file. */
  return found->position <= end && size == end - found->position && found->count <= size / CENTRAL_NBYTES;
}

/* Match the local header of a member, and the data, from the cursor on. */
static int match_local(cursor *self, rt_member *member) {
  static const uint8_t zeros[RT_ALIGNMENT] = {0};
  const uint64_t nbytes = member->nbytes;
  const int is_large = nbytes >= LIMIT_32;
  const size_t zip64_nbytes = is_large ? 20 : 0;
  const size_t fixed = self->position + LOCAL_NBYTES + member->name.length + zip64_nbytes + EXTRA_NBYTES;
  const size_t padding = (RT_ALIGNMENT - fixed % RT_ALIGNMENT) % RT_ALIGNMENT;
  header start = {.length = 0}, extra = {.length = 0};
  put_signature(&start, 3, 4);
  put(&start, VERSION, 2);
  put(&start, 0, 4); /* flags, method */
  put(&start, 0, 2); /* time */
  put(&start, DATE, 2);
  put(&start, member->crc, 4);
  put(&start, is_large ? LIMIT_32 : nbytes, 4);
  put(&start, is_large ? LIMIT_32 : nbytes, 4);
  put(&start, member->name.length, 2);
  put(&start, zip64_nbytes + EXTRA_NBYTES + padding, 2);
  if (is_large) {
    put(&extra, ZIP64_ID, 2);
    put(&extra, 16, 2);
    put(&extra, nbytes, 8);
    put(&extra, nbytes, 8);
  }
  put(&extra, PADDING_ID, 2);
  put(&extra, padding, 2);
  if (!match_header(self, &start) || !match(self, (const uint8_t *)member->name.data, member->name.length) ||
      !match_header(self, &extra) || !match(self, zeros, padding) || !has(self, nbytes))
    return 0;
  member->data = self->data + self->position;
  self->position += nbytes;
  return 1;
}

/* Read the claims of a record of the directory, without passing the record. */
static int read_central(const cursor *self, rt_member *member) {
  if (!has(self, CENTRAL_NBYTES)) return 0;
  const uint8_t *record = self->data + self->position;
  const size_t name_length = get(record + 28, 2);
  uint64_t nbytes = get(record + 24, 4);
  if (!has(self, CENTRAL_NBYTES + name_length)) return 0;
  if (nbytes == LIMIT_32) {
    if (!has(self, CENTRAL_NBYTES + name_length + EXTRA_NBYTES + 8)) return 0;
    nbytes = get(record + CENTRAL_NBYTES + name_length + EXTRA_NBYTES, 8);
  }
  const rt_text name = {(const char *)record + CENTRAL_NBYTES, name_length};
  *member = (rt_member){name, NULL, nbytes, (uint32_t)get(record + 16, 4)};
  for (size_t i = 0; i < name_length; ++i)
    if ((unsigned char)member->name.data[i] >= 0x80) return 0;
  return 1;
}

/* Match the record of a member whose local header is at `start`. */
static int match_central(cursor *self, const rt_member *member, uint64_t start) {
  const uint64_t nbytes = member->nbytes;
  const int num_large = (nbytes >= LIMIT_32 ? 2 : 0) + (start >= LIMIT_32);
  header record = {.length = 0}, extra = {.length = 0};
  put_signature(&record, 1, 2);
  put(&record, 3 << 8 | VERSION, 2);
  put(&record, VERSION, 2);
  put(&record, 0, 4); /* flags, method */
  put(&record, 0, 2); /* time */
  put(&record, DATE, 2);
  put(&record, member->crc, 4);
  put(&record, least(nbytes, LIMIT_32), 4);
  put(&record, least(nbytes, LIMIT_32), 4);
  put(&record, member->name.length, 2);
  put(&record, num_large ? EXTRA_NBYTES + 8 * (uint64_t)num_large : 0, 2);
  put(&record, 0, 6); /* comment, disk, internal attributes */
  put(&record, MODE, 4);
  put(&record, least(start, LIMIT_32), 4);
  if (num_large) {
    put(&extra, ZIP64_ID, 2);
    put(&extra, 8 * (uint64_t)num_large, 2);
    for (int i = 0; i < 2 && nbytes >= LIMIT_32; ++i) put(&extra, nbytes, 8);
    if (start >= LIMIT_32) put(&extra, start, 8);
  }
  return match_header(self, &record) && match(self, (const uint8_t *)member->name.data, member->name.length) &&
         match_header(self, &extra);
}

/* Match the records behind the directory, which ends at the cursor. */
static int match_end(cursor *self, const directory *found) {
  const uint64_t size = self->position - found->position, end = self->position;
  header record = {.length = 0};
  if (found->count >= LIMIT_16 || size >= LIMIT_32 || found->position >= LIMIT_32) {
    put_signature(&record, 6, 6);
    put(&record, END_64_NBYTES - 12, 8);
    put(&record, 3 << 8 | VERSION, 2);
    put(&record, VERSION, 2);
    put(&record, 0, 8); /* disks */
    put(&record, found->count, 8);
    put(&record, found->count, 8);
    put(&record, size, 8);
    put(&record, found->position, 8);
    put_signature(&record, 6, 7);
    put(&record, 0, 4);
    put(&record, end, 8);
    put(&record, 1, 4);
    if (!match_header(self, &record)) return 0;
  }
  record.length = 0;
  put_signature(&record, 5, 6);
  put(&record, 0, 4); /* disks */
  put(&record, least(found->count, LIMIT_16), 2);
  put(&record, least(found->count, LIMIT_16), 2);
  put(&record, least(size, LIMIT_32), 4);
  put(&record, least(found->position, LIMIT_32), 4);
  put(&record, 0, 2); /* comment */
  return match_header(self, &record) && self->position == self->nbytes;
}

/* Match the whole file with the members claimed by the directory. */
static int match_members(const uint8_t *data, size_t nbytes, const directory *found, rt_member *members) {
  cursor local = {data, found->position, 0}, central = {data, nbytes, found->position};
  for (uint64_t i = 0; i < found->count; ++i) {
    const size_t start = local.position;
    if (!read_central(&central, &members[i]) || !match_central(&central, &members[i], start) ||
        !match_local(&local, &members[i]) || (i && rt_compare(members[i - 1].name, members[i].name) >= 0))
      return 0;
  }
  return local.position == found->position && match_end(&central, found);
}

int32_t rt_read_archive(rt_pool *pool, const uint8_t *data, size_t nbytes, const char *where, rt_archive *archive) {
  if (nbytes < 4 || memcmp(data, "PK\3\4", 4))
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: %s", where, nbytes ? "is not a byoc artifact" : "is empty");
  directory found;
  rt_member *members = NULL;
  if (find_directory(data, nbytes, &found)) {
    members = rt_take(pool, found.count, sizeof *members);
    if (!members) return rt_error_status();
  }
  if (!members || !match_members(data, nbytes, &found, members))
    return byoc_rt_fail(BYOC_RT_ARTIFACT,
                        "%s: is truncated or damaged. Copy the file again, or compile the model again.", where);
  *archive = (rt_archive){where, members, found.count};
  return 0;
}

static int compare_name(const void *name, const void *member) {
  return rt_compare(*(const rt_text *)name, ((const rt_member *)member)->name);
}

int rt_is_constant(const rt_member *member) {
  static const char prefix[] = "constants/";
  return member->name.length >= sizeof prefix - 1 && !memcmp(member->name.data, prefix, sizeof prefix - 1);
}

const rt_member *rt_find_member(const rt_archive *archive, const char *name) {
  const rt_text text = rt_text_of(name);
  return bsearch(&text, archive->members, archive->num_members, sizeof *archive->members, compare_name);
}
