/* Texts with a length, not ended by a NUL; and short texts built piece by piece, for errors. */
#ifndef BYOC_RT_TEXT_H_
#define BYOC_RT_TEXT_H_

#include <stddef.h>
#include <stdint.h>

#include "memory.h"

typedef struct {
  const char *data;
  size_t length;
} rt_text;

/* Return the text of a string ended by a NUL. */
rt_text rt_text_of(const char *string);

/* Return whether a text has the same characters as a string ended by a NUL, or as another text. */
int rt_equals(rt_text text, const char *string);
int rt_same(rt_text left, rt_text right);

/* Return -1, 0 or 1 for the order of two texts by bytes. */
int rt_compare(rt_text left, rt_text right);

/* Return a copy ended by a NUL, or NULL after setting an error. A NUL inside the text stays. */
const char *rt_copy(rt_pool *pool, rt_text text);

/* Return whether bytes are valid UTF-8. */
int rt_is_utf8(rt_text text);

/* Marks functions that make errors: their lines stay out of the stack frames of callers. */
#define RT_COLD __attribute__((noinline, cold))

/* A text of bounded length, ended by a NUL; longer texts are cut, and end in "...". Starts as {0}. */
enum { RT_LINE_NBYTES = 2048 };
typedef struct {
  char text[RT_LINE_NBYTES];
  size_t length;
} rt_line;

/* Append a piece formatted as by printf. */
void rt_append(rt_line *line, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Append a shape: "[2, 3]". */
void rt_append_shape(rt_line *line, const int64_t *shape, int32_t ndim);

#endif /* BYOC_RT_TEXT_H_ */
