/* The container of an artifact: a zip of stored members in canonical form, as in byoc_core/artifact/archive.py.
 *
 * No header byte of a file is trusted: members come from the central directory, and all headers are compared with the
 * only permitted headers of such members.
 */
#ifndef BYOC_RT_ARCHIVE_H_
#define BYOC_RT_ARCHIVE_H_

#include <stddef.h>
#include <stdint.h>

#include "memory.h"
#include "text.h"

enum { RT_ALIGNMENT = 64 }; /* of every member's data, from the start of the file */

typedef struct {
  rt_text name;
  const uint8_t *data;
  size_t nbytes;
  uint32_t crc; /* of the data, as stored */
} rt_member;

typedef struct {
  const char *where; /* the name of the archive in errors */
  const rt_member *members; /* in order of name */
  size_t num_members;
} rt_archive;

/* Find the members of an archive; headers are read, never data. The archive points into `data`. Return nonzero after
 * setting an error: no archive, cut short, or not in the canonical form. */
int32_t rt_read_archive(rt_pool *pool, const uint8_t *data, size_t nbytes, const char *where, rt_archive *archive);

/* Return whether a member holds the bytes of a constant. */
int rt_is_constant(const rt_member *member);

/* Return a member, or NULL. */
const rt_member *rt_find_member(const rt_archive *archive, const char *name);

#endif /* BYOC_RT_ARCHIVE_H_ */
