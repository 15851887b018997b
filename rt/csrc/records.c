#include "records.h"

#include <stdio.h>
#include <string.h>

#include "dtypes.h"
#include "status.h"

static int32_t malformed(const char *where, const char *problem, const char *name) {
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: %s `%s`", where, problem, name);
}

/* Return the next name of a list of names, and set whether the field may be missing; an empty text at the end. */
static rt_text next_field(const char **names, int *is_optional) {
  *names += strspn(*names, " ");
  *is_optional = **names == '?';
  *names += *is_optional;
  const rt_text name = {*names, strcspn(*names, " ")};
  *names += name.length;
  return name;
}

static int has_field(const rt_json *object, rt_text name) {
  for (uint32_t i = 0; i < object->count; ++i)
    if (rt_same(object->fields[i].name, name)) return 1;
  return 0;
}

static int is_declared(const char *names, rt_text name) {
  int is_optional;
  for (rt_text declared = next_field(&names, &is_optional); declared.length;
       declared = next_field(&names, &is_optional))
    if (rt_same(declared, name)) return 1;
  return 0;
}

int32_t rt_check_record(const rt_json *value, const char *fields, const char *where) {
  if (!rt_json_is(value, RT_JSON_OBJECT)) return malformed(where, "an object is required with the fields", fields);
  int is_optional;
  const char *names = fields;
  for (rt_text name = next_field(&names, &is_optional); name.length; name = next_field(&names, &is_optional)) {
    if (is_optional || has_field(value, name)) continue;
    return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: a field is missing: `%.*s`", where, (int)name.length,
                        name.data);
  }
  for (uint32_t i = 0; i < value->count; ++i)
    if (!is_declared(fields, value->fields[i].name))
      return malformed(where, "an unknown field", value->fields[i].name.data);
  return 0;
}

int32_t rt_check_kind(const rt_json *record, const char *name, rt_json_kind kind, const char *where) {
  static const char *const names[] = {"null", "a boolean", "an integer", "a number", "a text", "a list", "an object"};
  if (rt_json_is(rt_json_field(record, name), kind)) return 0;
  return byoc_rt_fail(BYOC_RT_ARTIFACT, "%s: is malformed: `%s` is not %s", where, name, names[kind]);
}

const char *rt_read_string(rt_pool *pool, const rt_json *value, const char *name, const char *where) {
  if (!rt_json_is(value, RT_JSON_TEXT) || (value->text.length && memchr(value->text.data, 0, value->text.length))) {
    (void)malformed(where, "a text is required:", name);
    return NULL;
  }
  return rt_copy(pool, value->text);
}

int32_t rt_read_strings(rt_pool *pool, const rt_json *list, const char *name, const char *where,
                      const char *const **texts, int32_t *count) {
  if (!rt_json_is(list, RT_JSON_ARRAY) || list->count > INT32_MAX) return malformed(where, "a list is required:", name);
  const char **copies = rt_take(pool, list->count, sizeof *copies);
  if (!copies) return rt_error_status();
  for (uint32_t i = 0; i < list->count; ++i)
    if (!(copies[i] = rt_read_string(pool, &list->items[i], name, where))) return rt_error_status();
  *texts = copies;
  *count = (int32_t)list->count;
  return 0;
}

int32_t rt_read_axis(const rt_json *value, const char *where, int64_t *size) {
  if (!rt_json_is(value, RT_JSON_INTEGER) || value->integer < 0)
    return malformed(where, "a size of 0 or more is required:", "shape");
  *size = value->integer;
  return 0;
}

int32_t rt_read_dtype(const rt_json *value, const char *where, DLDataType *dtype) {
  if (!rt_json_is(value, RT_JSON_TEXT)) return malformed(where, "a text is required:", "dtype");
  return rt_find_dtype(value->text, dtype) ? 0 : malformed(where, "unknown dtype", value->text.data);
}

/* Read the size of an axis with its text; the size of an expression is -1. */
static int32_t read_dim(rt_pool *pool, const rt_json *value, const char *where, int64_t *size, const char **text) {
  char digits[24];
  if (rt_json_is(value, RT_JSON_TEXT)) {
    *size = -1;
    *text = rt_read_string(pool, value, "shape", where);
  } else {
    const int32_t status = rt_read_axis(value, where, size);
    if (status) return status;
    (void)snprintf(digits, sizeof digits, "%lld", (long long)*size);
    *text = rt_copy(pool, rt_text_of(digits));
  }
  return *text ? 0 : rt_error_status();
}

static int32_t read_tensor(rt_pool *pool, const rt_json *value, const char *where, byoc_rt_tensor_info *out) {
  int32_t status = rt_check_record(value, "name dtype shape", where);
  if (!status) status = rt_read_dtype(rt_json_field(value, "dtype"), where, &out->dtype);
  if (!status) status = rt_check_kind(value, "shape", RT_JSON_ARRAY, where);
  if (status) return status;
  const rt_json *shape = rt_json_field(value, "shape");
  if (shape->count > INT32_MAX / 2) return malformed(where, "too many axes:", "shape");
  int64_t *sizes = rt_take(pool, shape->count, sizeof *sizes);
  const char **dims = rt_take(pool, shape->count, sizeof *dims);
  out->name = rt_read_string(pool, rt_json_field(value, "name"), "name", where);
  if (!sizes || !dims || !out->name) return rt_error_status();
  for (uint32_t axis = 0; axis < shape->count; ++axis)
    if ((status = read_dim(pool, &shape->items[axis], where, &sizes[axis], &dims[axis]))) return status;
  out->ndim = (int32_t)shape->count;
  out->shape = sizes;
  out->dims = dims;
  return 0;
}

int32_t rt_read_tensors(rt_pool *pool, const rt_json *list, const char *where, const byoc_rt_tensor_info **tensors,
                        int32_t *count) {
  if (!rt_json_is(list, RT_JSON_ARRAY) || list->count > INT32_MAX / 4)
    return malformed(where, "a list is required:", "tensors");
  byoc_rt_tensor_info *infos = rt_take(pool, list->count, sizeof *infos);
  if (!infos) return rt_error_status();
  for (uint32_t i = 0; i < list->count; ++i) {
    const int32_t status = read_tensor(pool, &list->items[i], where, &infos[i]);
    if (status) return status;
  }
  *tensors = infos;
  *count = (int32_t)list->count;
  return 0;
}

static int is_same_tensor(const byoc_rt_tensor_info *left, const byoc_rt_tensor_info *right) {
  if (strcmp(left->name, right->name) || !rt_same_dtype(left->dtype, right->dtype) || left->ndim != right->ndim)
    return 0;
  for (int32_t axis = 0; axis < left->ndim; ++axis)
    if (strcmp(left->dims[axis], right->dims[axis])) return 0;
  return 1;
}

int rt_are_same_tensors(const byoc_rt_tensor_info *left, int32_t num_left, const byoc_rt_tensor_info *right,
                        int32_t num_right) {
  if (num_left != num_right) return 0;
  for (int32_t i = 0; i < num_left; ++i)
    if (!is_same_tensor(&left[i], &right[i])) return 0;
  return 1;
}
