/* The attributes and the types of nodes, by the table of kernels. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph_read.h"

/* An attribute in the table: `name:kind?=value`. */
typedef struct {
  rt_text name, kind, value;
  int permits_none, has_value;
} declaration;

static rt_text take_until(const char **at, const char *ends) {
  const size_t length = strcspn(*at, ends);
  const rt_text found = {*at, length};
  *at += length;
  return found;
}

/* Read the declaration at `*at` and move on to the next. */
static declaration read_declaration(const char **at) {
  declaration found = {.name = take_until(at, ":")};
  ++*at;
  found.kind = take_until(at, "?= ");
  if (**at == '?') {
    found.permits_none = 1;
    ++*at;
  }
  if (**at == '=') {
    found.has_value = 1;
    ++*at;
    found.value = take_until(at, " ");
  }
  if (**at == ' ') ++*at;
  return found;
}

static int32_t count_declarations(const char *text) {
  int32_t count = *text != 0;
  for (; *text; ++text) count += *text == ' ';
  return count;
}

static int32_t fail_attribute(const char *where, const char *name, const char *problem) {
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s, attribute `%s`: %s", where, name, problem);
}

/* Return the number of a choice among `a|b|c`; -1 if it is none of them. */
static int64_t find_choice(rt_text choices, rt_text value) {
  int64_t number = 0;
  const char *at = choices.data, *end = choices.data + choices.length;
  for (;; ++number) {
    const char *stop = memchr(at, '|', (size_t)(end - at));
    const rt_text choice = {at, (size_t)((stop ? stop : end) - at)};
    if (rt_same(choice, value)) return number;
    if (!stop) return -1;
    at = stop + 1;
  }
}

static int is_choice(rt_text kind) { return memchr(kind.data, '|', kind.length) != NULL; }

static rt_attr_kind kind_of(rt_text kind) {
  if (is_choice(kind)) return RT_ATTR_CHOICE;
  if (rt_equals(kind, "bool")) return RT_ATTR_BOOL;
  if (rt_equals(kind, "int") || rt_equals(kind, "dim")) return RT_ATTR_INT;
  if (rt_equals(kind, "float")) return RT_ATTR_FLOAT;
  if (rt_equals(kind, "text")) return RT_ATTR_TEXT;
  if (rt_equals(kind, "dtype")) return RT_ATTR_DTYPE;
  return rt_equals(kind, "floats") ? RT_ATTR_FLOATS : RT_ATTR_INTS;
}

static int32_t set_dtype(rt_attr *attr, rt_text name, const char *where) {
  DLDataType dtype;
  rt_type type;
  if (!rt_find_dtype(name, &dtype) || !rt_type_of(dtype, &type))
    return fail_attribute(where, attr->name, "is no dtype");
  attr->integer = type;
  return 0;
}

/* Set the default of the table. */
static int32_t set_default(rt_pool *pool, const declaration *declared, const char *where, rt_attr *attr) {
  if (!declared->has_value) {
    if (!declared->permits_none) return fail_attribute(where, attr->name, "is missing");
    attr->is_none = 1;
    return 0;
  }
  const rt_text value = declared->value;
  switch (attr->kind) {
    case RT_ATTR_BOOL:
      attr->integer = rt_equals(value, "true");
      return 0;
    case RT_ATTR_INT:
      attr->integer = strtoll(value.data, NULL, 10);
      return 0;
    case RT_ATTR_FLOAT:
      attr->real = strtod(value.data, NULL);
      return 0;
    case RT_ATTR_CHOICE:
      attr->integer = find_choice(declared->kind, value);
      return 0;
    case RT_ATTR_DTYPE:
      return set_dtype(attr, value, where);
    default:
      break;
  }
  int32_t count = value.length != 0;
  for (size_t i = 0; i < value.length; ++i) count += value.data[i] == ',';
  int64_t *integers = rt_take(pool, (size_t)count, sizeof *integers);
  if (!integers) return BYOC_RT_MEMORY;
  const char *at = value.data;
  for (int32_t i = 0; i < count; ++i, ++at) {
    char *end = NULL;
    integers[i] = strtoll(at, &end, 10);
    at = end;
  }
  attr->count = count;
  attr->integers = integers;
  return 0;
}

static int32_t read_real(const rt_json *node, const char *where, const char *name, double *value) {
  const rt_json *special = rt_json_field(node, "float");
  if (rt_json_is(node, RT_JSON_INTEGER)) {
    *value = (double)node->integer;
  } else if (rt_json_is(node, RT_JSON_REAL)) {
    *value = node->real;
  } else if (rt_json_is(special, RT_JSON_TEXT) && node->count == 1 && rt_equals(special->text, "nan")) {
    *value = NAN;
  } else if (rt_json_is(special, RT_JSON_TEXT) && node->count == 1 && rt_equals(special->text, "inf")) {
    *value = INFINITY;
  } else if (rt_json_is(special, RT_JSON_TEXT) && node->count == 1 && rt_equals(special->text, "-inf")) {
    *value = -INFINITY;
  } else {
    return fail_attribute(where, name, "is no number");
  }
  return 0;
}

/* Read an integer or a size; `dim` is -1 for a number. */
static int32_t read_integer(rt_dims *dims, const rt_json *node, int permits_dim, const char *where, const char *name,
                            int64_t *value, int32_t *dim) {
  *dim = -1;
  if (rt_json_is(node, RT_JSON_INTEGER)) {
    *value = node->integer;
    return 0;
  }
  const rt_json *text = rt_json_field(node, "dim");
  if (!permits_dim || node->count != 1 || !rt_json_is(text, RT_JSON_TEXT))
    return fail_attribute(where, name, "is no integer");
  *dim = rt_dim(dims, text->text);
  if (*dim < 0) return BYOC_RT_ARTIFACT;
  if (rt_is_number(dims, *dim, value)) *dim = -1;
  return 0;
}

static int32_t read_integers(rt_pool *pool, rt_dims *dims, const rt_json *list, int permits_dim, const char *where,
                             rt_attr *attr) {
  if (!rt_json_is(list, RT_JSON_ARRAY)) return fail_attribute(where, attr->name, "is no list");
  if (list->count > INT32_MAX) return fail_attribute(where, attr->name, "is too long");
  int64_t *integers = rt_take(pool, list->count, sizeof *integers);
  int32_t *indices = rt_take(pool, list->count, sizeof *indices);
  if (!integers || !indices) return BYOC_RT_MEMORY;
  int has_dims = 0;
  for (uint32_t i = 0; i < list->count; ++i) {
    const int32_t status =
        read_integer(dims, &list->items[i], permits_dim, where, attr->name, &integers[i], &indices[i]);
    if (status) return status;
    has_dims |= indices[i] >= 0;
  }
  attr->count = (int32_t)list->count;
  attr->integers = integers;
  attr->dims = has_dims ? indices : NULL;
  return 0;
}

static int32_t read_reals(rt_pool *pool, const rt_json *list, const char *where, rt_attr *attr) {
  if (!rt_json_is(list, RT_JSON_ARRAY)) return fail_attribute(where, attr->name, "is no list");
  if (list->count > INT32_MAX) return fail_attribute(where, attr->name, "is too long");
  double *reals = rt_take(pool, list->count, sizeof *reals);
  if (!reals) return BYOC_RT_MEMORY;
  for (uint32_t i = 0; i < list->count; ++i) {
    const int32_t status = read_real(&list->items[i], where, attr->name, &reals[i]);
    if (status) return status;
  }
  attr->count = (int32_t)list->count;
  attr->reals = reals;
  return 0;
}

static int32_t read_single_integer(rt_pool *pool, rt_dims *dims, const rt_json *node, int permits_dim,
                                   const char *where, rt_attr *attr) {
  int32_t dim;
  const int32_t status = read_integer(dims, node, permits_dim, where, attr->name, &attr->integer, &dim);
  if (status || dim < 0) return status;
  int32_t *indices = rt_take(pool, 1, sizeof *indices);
  if (!indices) return BYOC_RT_MEMORY;
  indices[0] = dim;
  attr->dims = indices;
  return 0;
}

static int32_t read_value(rt_pool *pool, rt_dims *dims, const rt_json *node, const declaration *declared,
                          const char *where, rt_attr *attr) {
  if (rt_json_is(node, RT_JSON_NULL) && declared->permits_none) {
    attr->is_none = 1;
    return 0;
  }
  const int permits_dim = rt_equals(declared->kind, "dim") || rt_equals(declared->kind, "dims");
  switch (attr->kind) {
    case RT_ATTR_BOOL:
      if (!rt_json_is(node, RT_JSON_BOOL)) return fail_attribute(where, attr->name, "is no bool");
      attr->integer = node->is_true != 0;
      return 0;
    case RT_ATTR_INT:
      return read_single_integer(pool, dims, node, permits_dim, where, attr);
    case RT_ATTR_FLOAT:
      return read_real(node, where, attr->name, &attr->real);
    case RT_ATTR_INTS:
      return read_integers(pool, dims, node, permits_dim, where, attr);
    case RT_ATTR_FLOATS:
      return read_reals(pool, node, where, attr);
    default:
      break;
  }
  if (!rt_json_is(node, RT_JSON_TEXT)) return fail_attribute(where, attr->name, "is no text");
  if (attr->kind == RT_ATTR_DTYPE) return set_dtype(attr, node->text, where);
  if (attr->kind == RT_ATTR_TEXT) {
    attr->text = rt_copy(pool, node->text);
    return attr->text ? 0 : BYOC_RT_MEMORY;
  }
  attr->integer = find_choice(declared->kind, node->text);
  return attr->integer >= 0 ? 0 : fail_attribute(where, attr->name, "has a value not permitted");
}

int32_t rt_read_attributes(rt_pool *pool, rt_dims *dims, const rt_json *object, const char *where, rt_node *node) {
  if (!rt_json_is(object, RT_JSON_OBJECT))
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s, attrs: is not an object", where);
  node->num_attrs = count_declarations(node->op->attributes);
  rt_attr *attrs = rt_take(pool, (size_t)node->num_attrs, sizeof *attrs);
  if (!attrs) return BYOC_RT_MEMORY;
  node->attrs = attrs;
  uint32_t num_given = 0;
  const char *at = node->op->attributes;
  for (int32_t i = 0; i < node->num_attrs; ++i) {
    const declaration declared = read_declaration(&at);
    attrs[i].kind = kind_of(declared.kind);
    attrs[i].name = rt_copy(pool, declared.name);
    if (!attrs[i].name) return BYOC_RT_MEMORY;
    const rt_json *value = rt_json_field(object, attrs[i].name);
    num_given += value != NULL;
    const int32_t status = value ? read_value(pool, dims, value, &declared, where, &attrs[i])
                                 : set_default(pool, &declared, where, &attrs[i]);
    if (status) return status;
    if (attrs[i].dims) node->num_integers += attrs[i].kind == RT_ATTR_INTS ? attrs[i].count : 1;
  }
  if (num_given == object->count) return 0;
  return byoc_rt_fail(BYOC_RT_UNSUPPORTED, "%s: has an attribute unknown to this runtime", where);
}

/* ---- Types ------------------------------------------------------------------------------------------------------- */

/* Return the letter of an operand or result; 0 if there is none. `letters` ends at a colon or NUL. */
static char letter_at(const char *letters, int32_t index) {
  const int32_t length = (int32_t)strcspn(letters, ":");
  if (length && letters[length - 1] == '*') return letters[index < length - 2 ? index : length - 2];
  return index < length ? letters[index] : 0;
}

static int fits_count(const char *letters, int32_t count) {
  const int32_t length = (int32_t)strcspn(letters, ":");
  return length && letters[length - 1] == '*' ? count >= length - 2 : count == length;
}

static rt_types types_of_letter(char letter, rt_types own) {
  switch (letter) {
    case 'b':
      return RT_BOOLS;
    case 'l':
      return RT_SET(RT_T_I64);
    case 's':
      return RT_SIGNED;
    case 'i':
    case 'q':
      return RT_INTEGERS;
    case 'f':
      return RT_FLOATS;
    case 'T':
    case '@':
      return own;
    default:
      return RT_ANY;
  }
}

static void append_types(rt_line *line, const rt_type *types, int32_t count) {
  for (int32_t i = 0; i < count; ++i) rt_append(line, "%s%s", i ? ", " : "", rt_type_name(types[i]));
  if (!count) rt_append(line, "no operands");
}

static int32_t fail_types(const rt_node *node, const rt_type *operand_types, const char *where, int is_unsupported) {
  rt_line line = {0};
  append_types(&line, operand_types, node->num_operands);
  rt_append(&line, " to ");
  append_types(&line, node->result_types, node->num_results);
  if (is_unsupported)
    return byoc_rt_fail(BYOC_RT_UNSUPPORTED, "%s: has no kernel for %s in this runtime", where, line.text);
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: breaks the type rule of the op; got %s", where, line.text);
}

static int32_t attribute_type(const rt_node *node) {
  for (int32_t i = 0; i < node->num_attrs; ++i)
    if (!strcmp(node->attrs[i].name, "dtype")) return (int32_t)node->attrs[i].integer;
  return -1;
}

int32_t rt_check_types(const rt_node *node, const rt_type *operand_types, const char *where) {
  const char *letters = node->op->signature, *results = strchr(letters, ':') + 1;
  if (!fits_count(letters, node->num_operands) || !fits_count(results, node->num_results))
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: has the wrong number of operands or results", where);
  int32_t common = -1, quantised = -1;
  for (int32_t i = 0; i < node->num_operands + node->num_results; ++i) {
    const int is_result = i >= node->num_operands;
    const int32_t index = is_result ? i - node->num_operands : i;
    const rt_type type = is_result ? node->result_types[index] : operand_types[index];
    const char letter = letter_at(is_result ? results : letters, index);
    int32_t *same = letter == 'T' ? &common : letter == 'q' ? &quantised : NULL;
    int32_t expected = -1;
    if (same && *same >= 0) expected = *same;
    if (letter == '@') expected = attribute_type(node);
    if (letter == '=' && index < node->num_operands) expected = (int32_t)operand_types[index];
    if (expected >= 0 && expected != (int32_t)type) return fail_types(node, operand_types, where, 0);
    if (!rt_type_in(type, types_of_letter(letter, node->op->types))) {
      /* A type outside the rule of the op, or a type without a kernel. */
      return fail_types(node, operand_types, where, letter == 'T' || letter == '@' || letter == 'f');
    }
    if (same) *same = (int32_t)type;
  }
  return 0;
}
