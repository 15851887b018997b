#include "strings.h"

#include <stdlib.h>
#include <string.h>

#define HIGH_BITS 0x8080808080808080u

int byoc_strings_fit(const byoc_strings *strings) {
  int64_t rest = strings->nbytes;
  for (int64_t i = 0; i < strings->count; ++i) {
    const int64_t length = strings->lengths[i];
    if (length < 0 || length > rest) return 0;
    rest -= length;
  }
  return rest == 0;
}

static uint64_t load_word(const uint8_t *data) {
  uint64_t word;
  memcpy(&word, data, sizeof word);
  return word;
}

int byoc_is_ascii(const uint8_t *data, int64_t nbytes) {
  int64_t i = 0;
  uint64_t bits = 0;
  for (; i + 8 <= nbytes; i += 8) bits |= load_word(data + i);
  for (; i < nbytes; ++i) bits |= (uint64_t)data[i] << 56;
  return !(bits & HIGH_BITS);
}

/* Return the number of bytes of the character beyond ASCII at the start of the bytes; 0 if malformed. */
static int character_nbytes(const uint8_t *data, int64_t nbytes) {
  const uint8_t first = data[0];
  const int size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || nbytes < size) return 0;
  for (int i = 1; i < size; ++i)
    if ((data[i] & 0xC0) != 0x80) return 0;
  const uint8_t second = data[1];
  if (first == 0xE0 && second < 0xA0) return 0; /* a shorter form exists */
  if (first == 0xED && second > 0x9F) return 0; /* a surrogate */
  if (first == 0xF0 && second < 0x90) return 0; /* a shorter form exists */
  if (first == 0xF4 && second > 0x8F) return 0; /* beyond the last character */
  return size;
}

int byoc_is_utf8(const uint8_t *data, int64_t nbytes) {
  int64_t i = 0;
  while (i < nbytes) {
    if (i + 8 <= nbytes && !(load_word(data + i) & HIGH_BITS)) {
      i += 8;
    } else if (data[i] < 0x80) {
      ++i;
    } else {
      const int size = character_nbytes(data + i, nbytes - i);
      if (!size) return 0;
      i += size;
    }
  }
  return 1;
}

/* A slot of a table of keys: the number of a key plus 1, 0 if free, and bits of the hash. */
typedef struct byoc_key_slot {
  int64_t key;
  uint64_t hash;
} byoc_key_slot;

static uint64_t hash_bytes(const uint8_t *data, int64_t nbytes) {
  uint64_t hash = (uint64_t)nbytes * 0x9E3779B97F4A7C15u;
  for (; nbytes >= 8; data += 8, nbytes -= 8) {
    hash = (hash ^ load_word(data)) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  uint64_t rest = 0;
  for (int64_t i = 0; i < nbytes; ++i) rest = rest << 8 | data[i];
  hash = (hash ^ rest) * 0xD6E8FEB86659FD93u;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93u;
  return hash ^ hash >> 32;
}

/* Return the slot of a string: the slot of the equal key, or a free slot. */
static byoc_key_slot *find_slot(const byoc_key_table *table, const uint8_t *text, int64_t length, uint64_t hash) {
  for (uint64_t i = hash & table->mask;; i = (i + 1) & table->mask) {
    byoc_key_slot *slot = &table->slots[i];
    if (!slot->key) return slot;
    if (slot->hash != hash) continue;
    const int64_t key = slot->key - 1;
    if (table->keys.lengths[key] == length && !memcmp(table->keys.data + table->starts[key], text, (size_t)length))
      return slot;
  }
}

int byoc_key_table_build(byoc_key_table *table, const byoc_strings *keys) {
  uint64_t num_slots = 8;
  while (num_slots < 2 * (uint64_t)keys->count) num_slots *= 2;
  *table = (byoc_key_table){.keys = *keys, .mask = num_slots - 1};
  table->slots = calloc(num_slots, sizeof *table->slots);
  table->starts = malloc((size_t)(keys->count ? keys->count : 1) * sizeof *table->starts);
  if (!table->slots || !table->starts) {
    byoc_key_table_free(table);
    return -1;
  }
  int64_t start = 0;
  for (int64_t i = 0; i < keys->count; ++i) {
    const int64_t length = keys->lengths[i];
    table->starts[i] = start;
    const uint64_t hash = hash_bytes(keys->data + start, length);
    byoc_key_slot *slot = find_slot(table, keys->data + start, length, hash);
    if (!slot->key) *slot = (byoc_key_slot){i + 1, hash};
    start += length;
  }
  return 0;
}

void byoc_key_table_free(byoc_key_table *table) {
  free(table->slots);
  free(table->starts);
  table->slots = NULL;
  table->starts = NULL;
}

int64_t byoc_key_table_index(const byoc_key_table *table, const uint8_t *text, int64_t length) {
  const byoc_key_slot *slot = find_slot(table, text, length, hash_bytes(text, length));
  return slot->key ? slot->key - 1 : table->keys.count;
}

void byoc_key_table_find(const byoc_key_table *table, const byoc_strings *strings, int64_t *indices) {
  const uint8_t *text = strings->data;
  for (int64_t i = 0; i < strings->count; ++i) {
    const int64_t length = strings->lengths[i];
    indices[i] = byoc_key_table_index(table, text, length);
    text += length;
  }
}

static int add_span(byoc_spans *spans, int64_t start, int64_t length) {
  if (spans->count == spans->capacity) {
    const int64_t capacity = 2 * spans->capacity + 256;
    int64_t *starts = realloc(spans->starts, (size_t)capacity * sizeof *starts);
    if (!starts) return -1;
    spans->starts = starts;
    int64_t *lengths = realloc(spans->lengths, (size_t)capacity * sizeof *lengths);
    if (!lengths) return -1;
    spans->lengths = lengths;
    spans->capacity = capacity;
  }
  spans->starts[spans->count] = start;
  spans->lengths[spans->count++] = length;
  return 0;
}

/* Return whether the bytes have at least so many characters. */
static int has_characters(const uint8_t *data, int64_t nbytes, int64_t least) {
  if (nbytes < least) return 0;
  int64_t count = 0;
  for (int64_t i = 0; i < nbytes && count < least; ++i) count += (data[i] & 0xC0) != 0x80;
  return count >= least;
}

int byoc_find_runs(const byoc_strings *strings, const uint8_t is_member[256], int64_t min_length, int splits_runs,
                   byoc_spans *spans, int64_t *counts) {
  const int64_t least = min_length > 1 ? min_length : 1;
  uint8_t member[256];
  memcpy(member, is_member, 128);
  memset(member + 128, is_member[128], 128);
  int64_t first = 0;
  for (int64_t i = 0; i < strings->count; ++i) {
    const uint8_t *text = strings->data + first;
    const int64_t length = strings->lengths[i], previous = spans->count;
    if (!byoc_is_utf8(text, length)) return BYOC_SPANS_NOT_UTF8;
    for (int64_t j = 0; j < length;) {
      if (!member[text[j]]) {
        ++j;
        continue;
      }
      const int64_t start = j++;
      if (splits_runs) {
        while (j < length && (text[j] & 0xC0) == 0x80) ++j;
      } else {
        while (j < length && member[text[j]]) ++j;
        if (!has_characters(text + start, j - start, least)) continue;
      }
      if (add_span(spans, first + start, j - start)) return BYOC_SPANS_NO_MEMORY;
    }
    counts[i] = spans->count - previous;
    first += length;
  }
  return BYOC_SPANS_FOUND;
}
