#define _GNU_SOURCE
#include "json.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

#include "byoc_rt.h"

enum { SMALL_COUNT = 8, MAX_NUMBER_NBYTES = 512 };

/* The state of reading. Items and fields of open containers lie on two stacks, and are moved to the pool when their
 * container ends. */
typedef struct {
  rt_pool *pool;
  const char *data;
  size_t length, position;
  int32_t status;
  const char *where;
  rt_json *items;
  rt_json_member *fields;
  size_t num_items, max_items, num_fields, max_fields;
} reader;

static int fail(const reader *self, const char *problem) {
  (void)byoc_rt_fail(self->status, "%s: is not JSON text: %s at byte %zu", self->where, problem, self->position);
  return 0;
}

static int peek(const reader *self) {
  return self->position < self->length ? (unsigned char)self->data[self->position] : -1;
}

static void skip_space(reader *self) {
  while (self->position < self->length && strchr(" \t\n\r", self->data[self->position]) && self->data[self->position])
    ++self->position;
}

static int take(reader *self, char expected) {
  if (peek(self) != (unsigned char)expected) return 0;
  ++self->position;
  return 1;
}

/* Make room for one more element of a stack. */
static int grow(reader *self, void **stack, size_t count, size_t *max_count, size_t nbytes) {
  if (count < *max_count) return 1;
  const size_t larger = 2 * *max_count + 64;
  void *grown = realloc(*stack, larger * nbytes);
  if (!grown) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "%s: no memory is left", self->where);
    return 0;
  }
  *stack = grown;
  *max_count = larger;
  return 1;
}

static int hex_digit(int character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'f') return character - 'a' + 10;
  if (character >= 'A' && character <= 'F') return character - 'A' + 10;
  return -1;
}

/* Read the four digits of an escape; return -1 if malformed. */
static int32_t read_code_unit(reader *self) {
  int32_t unit = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = hex_digit(peek(self));
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
    ++self->position;
  }
  return unit;
}

/* Read the character of an escape `\u...`, perhaps of two units; return -1 if malformed. */
static int32_t read_code_point(reader *self) {
  const int32_t unit = read_code_unit(self);
  if (unit < 0xD800 || unit > 0xDFFF) return unit;
  if (unit > 0xDBFF || !take(self, '\\') || !take(self, 'u')) return -1;
  const int32_t low = read_code_unit(self);
  return low < 0xDC00 || low > 0xDFFF ? -1 : 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
}

static size_t write_utf8(char *target, int32_t character) {
  if (character < 0x80) {
    target[0] = (char)character;
    return 1;
  }
  const int count = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
  static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = count - 1; i > 0; --i) {
    target[i] = (char)(0x80 | (character & 0x3F));
    character >>= 6;
  }
  target[0] = (char)(marks[count] | character);
  return (size_t)count;
}

/* Read an escape behind the backslash; return the bytes written, or 0 after setting an error. */
static size_t read_escape(reader *self, char *target) {
  static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  const int name = peek(self);
  const char *found = name > 0 ? strchr(names, name) : NULL;
  if (found) {
    ++self->position;
    *target = meanings[found - names];
    return 1;
  }
  if (take(self, 'u')) {
    const int32_t character = read_code_point(self);
    if (character >= 0) return write_utf8(target, character);
  }
  return (size_t)fail(self, "a malformed escape");
}

/* Return the length of a text's source, from behind the opening quote to the closing quote. */
static size_t source_length(const reader *self) {
  size_t end = self->position;
  while (end < self->length && self->data[end] != '"') end += self->data[end] == '\\' ? 2 : 1;
  return (end < self->length ? end : self->length) - self->position;
}

static int read_text(reader *self, rt_text *out) {
  if (!take(self, '"')) return fail(self, "a text is missing");
  /* No escape is shorter than its meaning. */
  char *target = rt_take(self->pool, source_length(self) + 1, 1);
  if (!target) return 0;
  size_t length = 0;
  for (;;) {
    const int character = peek(self);
    if (character < ' ') return fail(self, character < 0 ? "a text without an end" : "a control character");
    ++self->position;
    if (character == '"') break;
    if (character != '\\') {
      target[length++] = (char)character;
      continue;
    }
    const size_t count = read_escape(self, target + length);
    if (!count) return 0;
    length += count;
  }
  *out = (rt_text){target, length};
  return 1;
}

static size_t skip_digits(reader *self) {
  const size_t start = self->position;
  while (peek(self) >= '0' && peek(self) <= '9') ++self->position;
  return self->position - start;
}

/* Set a node to the integer of a text of an optional sign and digits. */
static int set_integer(reader *self, const char *text, size_t length, rt_json *out) {
  const int is_negative = text[0] == '-';
  int64_t value = 0;
  for (size_t i = (size_t)is_negative; i < length; ++i) {
    const int64_t digit = text[i] - '0';
    if (__builtin_mul_overflow(value, 10, &value) ||
        (is_negative ? __builtin_sub_overflow(value, digit, &value) : __builtin_add_overflow(value, digit, &value)))
      return fail(self, "an integer of more than 64 bits");
  }
  out->kind = RT_JSON_INTEGER;
  out->integer = value;
  return 1;
}

static int set_real(reader *self, const char *text, size_t length, rt_json *out) {
  char copy[MAX_NUMBER_NBYTES];
  if (length >= sizeof copy) return fail(self, "a number of too many digits");
  memcpy(copy, text, length);
  copy[length] = '\0';
  out->kind = RT_JSON_REAL;
  out->real = strtod(copy, NULL);
  return isfinite(out->real) ? 1 : fail(self, "a number beyond double precision");
}

static int read_number(reader *self, rt_json *out) {
  const size_t start = self->position;
  int is_real = 0;
  (void)take(self, '-');
  if (!take(self, '0') && !skip_digits(self)) return fail(self, "an unknown value");
  if (take(self, '.')) {
    is_real = 1;
    if (!skip_digits(self)) return fail(self, "a fraction without digits");
  }
  if (take(self, 'e') || take(self, 'E')) {
    is_real = 1;
    if (!take(self, '+')) (void)take(self, '-');
    if (!skip_digits(self)) return fail(self, "an exponent without digits");
  }
  const char *text = self->data + start;
  const size_t length = self->position - start;
  return is_real ? set_real(self, text, length, out) : set_integer(self, text, length, out);
}

static int read_word(reader *self, const char *word) {
  const size_t length = strlen(word);
  if (self->length - self->position < length || memcmp(self->data + self->position, word, length))
    return fail(self, "an unknown value");
  self->position += length;
  return 1;
}

static int compare_names(const void *left, const void *right) {
  return rt_compare(**(const rt_text *const *)left, **(const rt_text *const *)right);
}

/* Fail if two fields have the same name. */
static int check_names(reader *self, const rt_json_member *fields, size_t count) {
  const rt_text *small[SMALL_COUNT], **names = small;
  if (count > SMALL_COUNT && !(names = malloc(count * sizeof *names))) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "%s: no memory is left", self->where);
    return 0;
  }
  for (size_t i = 0; i < count; ++i) names[i] = &fields[i].name;
  qsort(names, count, sizeof *names, compare_names);
  int are_different = 1;
  for (size_t i = 1; i < count && are_different; ++i) are_different = !rt_same(*names[i - 1], *names[i]);
  if (names != small) free(names);
  return are_different ? 1 : fail(self, "a name twice in an object");
}

static int read_value(reader *self, rt_json *out, int depth);

/* Read the separator behind an element of a container; set `ends` at the end of the container. */
static int read_separator(reader *self, char end, int *ends) {
  skip_space(self);
  *ends = take(self, end);
  return *ends || take(self, ',') ? 1 : fail(self, "a comma is missing");
}

/* Read the items of an array behind the bracket. */
static int read_items(reader *self, rt_json *out, int depth) {
  const size_t first = self->num_items;
  skip_space(self);
  for (int ends = take(self, ']'); !ends;) {
    rt_json item = {0};
    if (!read_value(self, &item, depth + 1)) return 0;
    if (!grow(self, (void **)&self->items, self->num_items, &self->max_items, sizeof item)) return 0;
    self->items[self->num_items++] = item;
    if (!read_separator(self, ']', &ends)) return 0;
  }
  const size_t count = self->num_items - first;
  if (count > UINT32_MAX) return fail(self, "an array of too many items");
  out->kind = RT_JSON_ARRAY;
  out->count = (uint32_t)count;
  out->items = rt_take(self->pool, count, sizeof *out->items);
  if (!out->items) return 0;
  if (count) memcpy(out->items, self->items + first, count * sizeof *out->items);
  self->num_items = first;
  return 1;
}

/* Read the fields of an object behind the brace. */
static int read_fields(reader *self, rt_json *out, int depth) {
  const size_t first = self->num_fields;
  skip_space(self);
  for (int ends = take(self, '}'); !ends;) {
    rt_json_member field = {0};
    skip_space(self);
    if (!read_text(self, &field.name)) return 0;
    skip_space(self);
    if (!take(self, ':')) return fail(self, "a colon is missing");
    if (!read_value(self, &field.value, depth + 1)) return 0;
    if (!grow(self, (void **)&self->fields, self->num_fields, &self->max_fields, sizeof field)) return 0;
    self->fields[self->num_fields++] = field;
    if (!read_separator(self, '}', &ends)) return 0;
  }
  const size_t count = self->num_fields - first;
  if (count > UINT32_MAX) return fail(self, "an object of too many fields");
  out->kind = RT_JSON_OBJECT;
  out->count = (uint32_t)count;
  out->fields = rt_take(self->pool, count, sizeof *out->fields);
  if (!out->fields) return 0;
  if (count) memcpy(out->fields, self->fields + first, count * sizeof *out->fields);
  self->num_fields = first;
  return check_names(self, out->fields, count);
}

static int read_value(reader *self, rt_json *out, int depth) {
  if (depth > RT_JSON_MAX_DEPTH) return fail(self, "nested too deep");
  skip_space(self);
  switch (peek(self)) {
    case '{':
      ++self->position;
      return read_fields(self, out, depth);
    case '[':
      ++self->position;
      return read_items(self, out, depth);
    case '"':
      out->kind = RT_JSON_TEXT;
      return read_text(self, &out->text);
    case 't':
    case 'f':
      out->kind = RT_JSON_BOOL;
      out->is_true = peek(self) == 't';
      return read_word(self, out->is_true ? "true" : "false");
    case 'n':
      out->kind = RT_JSON_NULL;
      return read_word(self, "null");
    default:
      return read_number(self, out);
  }
}

/* Read the whole text. The caller has set the locale for numbers. */
static int read_document(reader *self, rt_json *out) {
  if (!rt_is_utf8((rt_text){self->data, self->length})) return fail(self, "bytes other than UTF-8");
  if (!read_value(self, out, 0)) return 0;
  skip_space(self);
  return self->position == self->length ? 1 : fail(self, "bytes behind the value");
}

const rt_json *rt_json_read(rt_pool *pool, rt_text text, int32_t status, const char *where) {
  reader self = {.pool = pool, .data = text.data, .length = text.length, .status = status, .where = where};
  rt_json *root = rt_take(pool, 1, sizeof *root);
  if (!root) return NULL;
  /* strtod reads the decimal point of the thread's locale. */
  const locale_t locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
  if (!locale) {
    (void)byoc_rt_fail(BYOC_RT_MEMORY, "%s: no memory is left", where);
    return NULL;
  }
  const locale_t previous = uselocale(locale);
  const int is_read = read_document(&self, root);
  (void)uselocale(previous);
  freelocale(locale);
  free(self.items);
  free(self.fields);
  return is_read ? root : NULL;
}

const rt_json *rt_json_field(const rt_json *object, const char *name) {
  if (!rt_json_is(object, RT_JSON_OBJECT)) return NULL;
  for (uint32_t i = 0; i < object->count; ++i)
    if (rt_equals(object->fields[i].name, name)) return &object->fields[i].value;
  return NULL;
}

const rt_json *rt_json_item(const rt_json *array, uint32_t index) {
  return rt_json_is(array, RT_JSON_ARRAY) && index < array->count ? &array->items[index] : NULL;
}

int rt_json_is(const rt_json *node, rt_json_kind kind) { return node && node->kind == kind; }
