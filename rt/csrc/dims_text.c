/* Sizes as text: a recursive descent over Python's syntax, as far as byoc_core.dims writes it. */
#include <string.h>

#include "dims_table.h"

enum { MAX_CHARACTERS = 1 << 16, MAX_OPERATORS = 1 << 11, MAX_DEPTH = 64 };

typedef struct {
  rt_dims *dims;
  rt_text text;
  size_t position;
} reader;

static int32_t fail(const reader *self, const char *problem) {
  (void)byoc_rt_fail(self->dims->status, "size `%.*s`: %s", (int)(self->text.length < 80 ? self->text.length : 80),
                     self->text.data ? self->text.data : "", problem);
  return -1;
}

static int peek(const reader *self) {
  return self->position < self->text.length ? (unsigned char)self->text.data[self->position] : -1;
}

static void skip_space(reader *self) {
  while (peek(self) == ' ') ++self->position;
}

static int take(reader *self, const char *expected) {
  const size_t length = strlen(expected);
  skip_space(self);
  if (self->text.length - self->position < length) return 0;
  if (memcmp(self->text.data + self->position, expected, length)) return 0;
  self->position += length;
  return 1;
}

static int is_digit(int character) { return character >= '0' && character <= '9'; }

static int starts_name(int character) {
  return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') || character == '_' ||
         character >= 0x80;
}

size_t rt_name_length(rt_text text) {
  size_t length = 0;
  while (length < text.length) {
    const int character = (unsigned char)text.data[length];
    if (!starts_name(character) && !(length && is_digit(character))) break;
    ++length;
  }
  return length;
}

int rt_is_call_name(rt_text name, int32_t *operation) {
  static const struct {
    const char *name;
    int32_t operation;
  } calls[] = {{"max", BYOC_SIZE_MAX}, {"min", BYOC_SIZE_MIN}, {"broadcast", BYOC_SIZE_BROADCAST}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    if (!rt_equals(name, calls[i].name)) continue;
    *operation = calls[i].operation;
    return 1;
  }
  return 0;
}

static int32_t add(reader *self, int32_t operation, int32_t left, int32_t right) {
  if (left < 0 || right < 0) return -1;
  return rt_add_operation(self->dims, (byoc_size_operation){operation, left, right, 0});
}

/* Return minus one times a size. */
static int32_t negate(reader *self, int32_t size) {
  const int32_t factor = rt_add_operation(self->dims, (byoc_size_operation){BYOC_SIZE_CONSTANT, 0, 0, -1});
  return add(self, BYOC_SIZE_MULTIPLY, factor, size);
}

/* Read digits; a number of more than 64 bits is a size without a value. */
static int32_t read_number(reader *self, int is_negative) {
  byoc_size_operation operation = {.op = BYOC_SIZE_CONSTANT};
  if (peek(self) == '0' && self->position + 1 < self->text.length && is_digit(self->text.data[self->position + 1]))
    return fail(self, "a number begins with 0");
  for (; is_digit(peek(self)); ++self->position) {
    if (__builtin_mul_overflow(operation.value, 10, &operation.value) ||
        __builtin_add_overflow(operation.value, peek(self) - '0', &operation.value))
      operation = (byoc_size_operation){.op = BYOC_SIZE_UNKNOWN};
  }
  if (is_negative) operation.value = -operation.value;
  return rt_add_operation(self->dims, operation);
}

static int32_t read_sum(reader *self, int depth);

/* Read the arguments of a call behind the name. */
static int32_t read_call(reader *self, int32_t operation, int depth) {
  if (!take(self, "(")) return fail(self, "a function is not called");
  const int32_t left = read_sum(self, depth + 1);
  if (left < 0) return -1;
  if (!take(self, ",")) return fail(self, "a call needs two arguments");
  const int32_t right = read_sum(self, depth + 1);
  if (right < 0) return -1;
  return take(self, ")") ? add(self, operation, left, right) : fail(self, "a parenthesis is missing");
}

static int32_t read_name(reader *self, int depth) {
  rt_text rest = {self->text.data + self->position, self->text.length - self->position};
  const rt_text name = {rest.data, rt_name_length(rest)};
  int32_t operation;
  self->position += name.length;
  return rt_is_call_name(name, &operation) ? read_call(self, operation, depth) : rt_symbol(self->dims, name);
}

/* Read a number, a name or a sum in parentheses, with signs before. */
static int32_t read_atom(reader *self, int depth) {
  int is_negative = 0;
  while (take(self, "-")) is_negative = !is_negative;
  skip_space(self);
  if (is_digit(peek(self))) return read_number(self, is_negative);
  int32_t size;
  if (starts_name(peek(self))) {
    size = read_name(self, depth);
  } else if (take(self, "(")) {
    size = read_sum(self, depth + 1);
    if (size >= 0 && !take(self, ")")) return fail(self, "a parenthesis is missing");
  } else {
    return fail(self, "cannot be read as an integer expression");
  }
  return is_negative && size >= 0 ? negate(self, size) : size;
}

static int32_t read_product(reader *self, int depth) {
  int32_t size = read_atom(self, depth);
  while (size >= 0) {
    int32_t operation;
    if (take(self, "//"))
      operation = BYOC_SIZE_FLOORDIV;
    else if (take(self, "%"))
      operation = BYOC_SIZE_MOD;
    else if (take(self, "*"))
      operation = BYOC_SIZE_MULTIPLY;
    else
      break;
    size = add(self, operation, size, read_atom(self, depth));
  }
  return size;
}

static int32_t read_sum(reader *self, int depth) {
  if (depth > MAX_DEPTH) return fail(self, "is nested too deep");
  int32_t size = read_product(self, depth);
  while (size >= 0) {
    int is_difference = 0;
    if (take(self, "-"))
      is_difference = 1;
    else if (!take(self, "+"))
      break;
    int32_t right = read_product(self, depth);
    if (is_difference && right >= 0) right = negate(self, right);
    size = add(self, BYOC_SIZE_ADD, size, right);
  }
  return size;
}

int32_t rt_parse_dim(rt_dims *dims, rt_text text) {
  reader self = {dims, text, 0};
  size_t num_operators = 0;
  for (size_t i = 0; i < text.length; ++i) num_operators += text.data[i] && strchr("+-*/%", text.data[i]) != NULL;
  if (text.length > MAX_CHARACTERS || num_operators > MAX_OPERATORS) return fail(&self, "is too long");
  const int32_t size = read_sum(&self, 0);
  if (size < 0) return -1;
  skip_space(&self);
  return self.position == text.length ? size : fail(&self, "cannot be read as an integer expression");
}
