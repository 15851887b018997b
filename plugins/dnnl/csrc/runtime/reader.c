#include "reader.h"

#include <string.h>

#include "host.h"

int32_t byoc_damaged(const Reader *reader, const char *problem) {
  (void)byoc_host_fail(BYOC_RT_ARTIFACT, "%s, stored plans, line %lld: %s", reader->where, (long long)reader->line,
                       problem);
  return -1;
}

int byoc_is_at_end(const Reader *reader) { return reader->next == reader->end; }

int32_t byoc_read_word(Reader *reader, char word[MAX_WORD_NBYTES]) {
  size_t length = 0;
  while (reader->next < reader->end && *reader->next == ' ') ++reader->next;
  for (; reader->next < reader->end && *reader->next > ' '; ++reader->next) {
    if (length == MAX_WORD_NBYTES - 1) return byoc_damaged(reader, "a word is too long");
    word[length++] = *reader->next;
  }
  word[length] = '\0';
  return length ? 0 : byoc_damaged(reader, "a word is missing");
}

int32_t byoc_read_number(Reader *reader, int64_t least, int64_t most, int64_t *number) {
  char word[MAX_WORD_NBYTES];
  if (byoc_read_word(reader, word)) return -1;
  const int is_negative = word[0] == '-';
  const char *digits = word + is_negative;
  const size_t length = strlen(digits);
  if (length < 1 || length > 19 || strspn(digits, "0123456789") != length)
    return byoc_damaged(reader, "a number is expected");
  uint64_t magnitude = 0; /* less than 2^64: 19 digits */
  for (const char *digit = digits; *digit; ++digit) magnitude = 10 * magnitude + (uint64_t)(*digit - '0');
  if (magnitude > INT64_MAX) return byoc_damaged(reader, "a number is out of range");
  *number = is_negative ? -(int64_t)magnitude : (int64_t)magnitude;
  return *number < least || *number > most ? byoc_damaged(reader, "a number is out of range") : 0;
}

int32_t byoc_read_float(Reader *reader, float *number) {
  int64_t bits;
  if (byoc_read_number(reader, 0, UINT32_MAX, &bits)) return -1;
  const uint32_t word = (uint32_t)bits;
  memcpy(number, &word, sizeof word);
  return 0;
}

int32_t byoc_read_numbers(Reader *reader, int64_t least, int64_t most, int64_t smallest, int64_t largest,
                          int64_t *count, int64_t *numbers) {
  if (byoc_read_number(reader, least, most, count)) return -1;
  for (int64_t i = 0; i < *count; ++i)
    if (byoc_read_number(reader, smallest, largest, &numbers[i])) return -1;
  return 0;
}

int32_t byoc_end_line(Reader *reader) {
  if (byoc_is_at_end(reader) || *reader->next != '\n') return byoc_damaged(reader, "the line does not end");
  ++reader->next;
  ++reader->line;
  return 0;
}

int32_t byoc_expect(Reader *reader, const char *expected) {
  char word[MAX_WORD_NBYTES];
  if (byoc_read_word(reader, word)) return -1;
  return strcmp(word, expected) ? byoc_damaged(reader, "an unknown word") : 0;
}
