#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

rt_text rt_text_of(const char *string) { return (rt_text){string, strlen(string)}; }

int rt_same(rt_text left, rt_text right) {
  return left.length == right.length && (left.length == 0 || !memcmp(left.data, right.data, left.length));
}

int rt_equals(rt_text text, const char *string) { return rt_same(text, rt_text_of(string)); }

int rt_compare(rt_text left, rt_text right) {
  const size_t common = left.length < right.length ? left.length : right.length;
  const int order = common ? memcmp(left.data, right.data, common) : 0;
  if (order) return order < 0 ? -1 : 1;
  return left.length == right.length ? 0 : left.length < right.length ? -1 : 1;
}

const char *rt_copy(rt_pool *pool, rt_text text) {
  char *copy = rt_take(pool, text.length + 1, 1);
  if (copy && text.length) memcpy(copy, text.data, text.length);
  return copy;
}

/* Return the bytes of the character at the start of a text of at least one byte, or 0 if malformed (RFC 3629). */
static size_t character_nbytes(const unsigned char *data, size_t length) {
  const unsigned char first = data[0];
  if (first < 0x80) return 1;
  const size_t count = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || length < count) return 0;
  for (size_t i = 1; i < count; ++i)
    if ((data[i] & 0xC0) != 0x80) return 0;
  if (first == 0xE0 && data[1] < 0xA0) return 0; /* longer than needed */
  if (first == 0xED && data[1] > 0x9F) return 0; /* half of a surrogate pair */
  if (first == 0xF0 && data[1] < 0x90) return 0; /* longer than needed */
  if (first == 0xF4 && data[1] > 0x8F) return 0; /* beyond Unicode */
  return count;
}

int rt_is_utf8(rt_text text) {
  for (size_t position = 0; position < text.length;) {
    const size_t count = character_nbytes((const unsigned char *)text.data + position, text.length - position);
    if (!count) return 0;
    position += count;
  }
  return 1;
}

void rt_append(rt_line *line, const char *format, ...) {
  const size_t room = sizeof line->text - line->length;
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line->text + line->length, room, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  if ((size_t)length < room) {
    line->length += (size_t)length;
  } else {
    line->length = sizeof line->text - 1;
    memcpy(line->text + line->length - 3, "...", 4);
  }
}

void rt_append_shape(rt_line *line, const int64_t *shape, int32_t ndim) {
  rt_append(line, "[");
  for (int32_t axis = 0; axis < ndim; ++axis) rt_append(line, "%s%lld", axis ? ", " : "", (long long)shape[axis]);
  rt_append(line, "]");
}
