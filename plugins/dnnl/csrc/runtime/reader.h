/* A text of stored plans, read line by line and word by word. The text comes from strangers. */
#ifndef BYOC_DNNL_READER_H_
#define BYOC_DNNL_READER_H_

#include <stddef.h>
#include <stdint.h>

enum { MAX_WORD_NBYTES = 256 };

typedef struct {
  const char *where; /* the origin, for errors */
  const char *next, *end;
  int64_t line; /* the number of the line being read, from 1 */
} Reader;

/* Each function below returns -1 after setting an error. */

/* Reads the next word of the line, ended by a NUL. */
int32_t byoc_read_word(Reader *reader, char word[MAX_WORD_NBYTES]);

/* Reads a decimal number from `least` to `most`. */
int32_t byoc_read_number(Reader *reader, int64_t least, int64_t most, int64_t *number);

/* Reads a float32, written as the number of its bits. */
int32_t byoc_read_float(Reader *reader, float *number);

/* Reads a count from `least` to `most`, and as many numbers from `smallest` to `largest`. */
int32_t byoc_read_numbers(Reader *reader, int64_t least, int64_t most, int64_t smallest, int64_t largest,
                          int64_t *count, int64_t *numbers);

/* Ends the line: nothing follows. */
int32_t byoc_end_line(Reader *reader);

/* Reads a word, which must be `expected`. */
int32_t byoc_expect(Reader *reader, const char *expected);

/* Returns whether the whole text is read. */
int byoc_is_at_end(const Reader *reader);

/* Sets the error of a damaged text; returns -1. */
int32_t byoc_damaged(const Reader *reader, const char *problem);

#endif /* BYOC_DNNL_READER_H_ */
