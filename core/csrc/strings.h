/* Strings of a tensor: the bytes of all strings in UTF-8, one after the other, and the number of bytes of each.
 *
 * Independent of Python.
 */
#ifndef BYOC_STRINGS_H_
#define BYOC_STRINGS_H_

#include <stddef.h>
#include <stdint.h>

typedef struct {
  const uint8_t *data;
  const int64_t *lengths;
  int64_t nbytes, count;
} byoc_strings;

/* Return whether all lengths are 0 or more and have the number of bytes as sum. */
int byoc_strings_fit(const byoc_strings *strings);

/* Return whether all bytes are ASCII. */
int byoc_is_ascii(const uint8_t *data, int64_t nbytes);

/* Return whether the bytes are UTF-8: without surrogates, and each character in its shortest form. */
int byoc_is_utf8(const uint8_t *data, int64_t nbytes);

/* A table of keys: strings, found by their bytes. The strings belong to the caller. */
typedef struct {
  byoc_strings keys;
  int64_t *starts;            /* the first byte of each key */
  struct byoc_key_slot *slots;
  uint64_t mask;              /* the number of slots, a power of two, less 1 */
} byoc_key_table;

/* Build the table of fitting keys; of equal keys the first counts. Return 0, or -1 without memory. */
int byoc_key_table_build(byoc_key_table *table, const byoc_strings *keys);

void byoc_key_table_free(byoc_key_table *table);

/* Return the index of the key equal to a string; the number of keys if there is none. */
int64_t byoc_key_table_index(const byoc_key_table *table, const uint8_t *text, int64_t length);

/* Write the index of the key equal to each of the fitting strings; the number of keys if there is none. */
void byoc_key_table_find(const byoc_key_table *table, const byoc_strings *strings, int64_t *indices);

/* Places of tokens in bytes. */
typedef struct {
  int64_t *starts, *lengths;
  int64_t count, capacity;
} byoc_spans;

enum { BYOC_SPANS_FOUND = 0, BYOC_SPANS_NO_MEMORY = -1, BYOC_SPANS_NOT_UTF8 = -2 };

/* Find the tokens of fitting strings: longest runs of member characters, of at least so many characters.
 *
 * `is_member` is indexed by byte; characters beyond ASCII are members if 0x80 is. With `splits_runs`, each member
 * character is a token by itself. `counts` gets the number of tokens of each string. The spans start empty, and belong
 * to the caller, who frees both arrays, whatever the status.
 */
int byoc_find_runs(const byoc_strings *strings, const uint8_t is_member[256], int64_t min_length, int splits_runs,
                   byoc_spans *spans, int64_t *counts);

#endif
