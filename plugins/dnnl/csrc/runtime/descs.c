/* Descriptions of memory in a stored plan:
 *
 *     strided DTYPE RANK SIZE... STRIDE...
 *     any DTYPE RANK SIZE...
 *     permuted DESC RANK AXIS...
 *     reshaped DESC RANK SIZE...
 *     part DESC RANK SIZE... START...
 *     queried PRIMITIVE QUERY INDEX
 */
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "layout.h"
#include "objects.h"

static const int64_t MAX_STRIDE = INT64_C(1) << 40;

void *byoc_reserve(void *items, int32_t count, size_t nbytes) {
  const int is_full = !(count & (count - 1)); /* 0 or a power of two */
  if (!is_full) return items;
  if (count > INT32_MAX / 4) {
    (void)byoc_host_fail(BYOC_RT_ARTIFACT, "a stored plan: is too long");
    return NULL;
  }
  void *reserved = realloc(items, (size_t)(count ? 2 * count : 1) * nbytes);
  if (!reserved) (void)byoc_host_fail(BYOC_RT_MEMORY, "a stored plan: no memory is left");
  return reserved;
}

int32_t byoc_refused(const Reader *reader, const char *function, int status) {
  (void)byoc_host_fail(BYOC_RT_LINK, "%s, stored plans, line %lld: oneDNN refuses %s with status %d", reader->where,
                       (long long)reader->line, function, status);
  return -1;
}

int32_t byoc_read_desc_number(Reader *reader, const Objects *objects, int is_optional, Desc *desc) {
  int64_t number;
  if (byoc_read_number(reader, is_optional ? -1 : 0, objects->num_descs - 1, &number)) return -1;
  *desc = number < 0 ? NULL : objects->descs[number];
  return 0;
}

/* Adds the description made by a function of oneDNN. */
static int32_t add(const Reader *reader, Objects *objects, const char *word, int status, void *desc) {
  if (status || !desc) return byoc_refused(reader, word, status);
  void **descs = byoc_reserve(objects->descs, objects->num_descs, sizeof *descs);
  if (!descs) {
    (void)objects->onednn->memory_desc_destroy(desc);
    return -1;
  }
  objects->descs = descs;
  descs[objects->num_descs++] = desc;
  return 0;
}

/* Reads the sizes of a tensor, no larger than oneDNN's implementations support. */
static int32_t read_sizes(Reader *reader, int64_t *rank, int64_t *sizes) {
  if (byoc_read_numbers(reader, 1, MAX_NDIMS, 1, INT32_MAX, rank, sizes)) return -1;
  int64_t count = 1;
  for (int64_t axis = 0; axis < *rank; ++axis) {
    if (sizes[axis] > INT32_MAX / count) return byoc_damaged(reader, "a tensor is too large");
    count *= sizes[axis];
  }
  return 0;
}

static int32_t read_each(Reader *reader, int64_t rank, int64_t largest, int64_t *numbers) {
  for (int64_t axis = 0; axis < rank; ++axis)
    if (byoc_read_number(reader, 0, largest, &numbers[axis])) return -1;
  return 0;
}

static int32_t read_strided(Reader *reader, Objects *objects) {
  int64_t dtype, rank, sizes[MAX_NDIMS] = {0}, strides[MAX_NDIMS] = {0};
  void *desc = NULL;
  if (byoc_read_number(reader, 1, NUM_DATA_TYPES - 1, &dtype) || read_sizes(reader, &rank, sizes) ||
      read_each(reader, rank, MAX_STRIDE, strides))
    return -1;
  const int status = objects->onednn->memory_desc_create_with_strides(&desc, (int)rank, sizes, (int)dtype, strides);
  return add(reader, objects, "strides", status, desc);
}

static int32_t read_any(Reader *reader, Objects *objects) {
  int64_t dtype, rank, sizes[MAX_NDIMS] = {0};
  void *desc = NULL;
  if (byoc_read_number(reader, 1, NUM_DATA_TYPES - 1, &dtype) || read_sizes(reader, &rank, sizes)) return -1;
  const int status =
      objects->onednn->memory_desc_create_with_tag(&desc, (int)rank, sizes, (int)dtype, FORMAT_TAG_ANY);
  return add(reader, objects, "a layout", status, desc);
}

static int64_t rank_of(const Objects *objects, Desc desc) {
  Layout layout;
  return byoc_query_layout(objects->onednn, desc, &layout) ? layout.rank : 0;
}

static int32_t read_permuted(Reader *reader, Objects *objects) {
  Desc base;
  int64_t rank, numbers[MAX_NDIMS];
  int axes[MAX_NDIMS] = {0};
  unsigned seen = 0;
  void *desc = NULL;
  if (byoc_read_desc_number(reader, objects, 0, &base) ||
      byoc_read_numbers(reader, 1, MAX_NDIMS, 0, MAX_NDIMS - 1, &rank, numbers))
    return -1;
  for (int64_t axis = 0; axis < rank; ++axis) {
    axes[axis] = (int)numbers[axis];
    seen |= 1u << numbers[axis];
  }
  if (rank != rank_of(objects, base) || seen != (1u << rank) - 1)
    return byoc_damaged(reader, "an order of axes names other axes");
  const int status = objects->onednn->memory_desc_permute_axes(&desc, base, axes);
  return add(reader, objects, "an order of axes", status, desc);
}

static int32_t read_reshaped(Reader *reader, Objects *objects) {
  Desc base;
  int64_t rank, sizes[MAX_NDIMS] = {0};
  void *desc = NULL;
  if (byoc_read_desc_number(reader, objects, 0, &base) || read_sizes(reader, &rank, sizes)) return -1;
  const int status = objects->onednn->memory_desc_reshape(&desc, base, (int)rank, sizes);
  return add(reader, objects, "other sizes", status, desc);
}

static int32_t read_part(Reader *reader, Objects *objects) {
  Desc base;
  int64_t rank, sizes[MAX_NDIMS] = {0}, starts[MAX_NDIMS] = {0};
  void *desc = NULL;
  Layout layout;
  if (byoc_read_desc_number(reader, objects, 0, &base) || read_sizes(reader, &rank, sizes) ||
      read_each(reader, rank, INT32_MAX, starts))
    return -1;
  if (!byoc_query_layout(objects->onednn, base, &layout) || layout.rank != rank)
    return byoc_damaged(reader, "a part has other axes");
  for (int64_t axis = 0; axis < rank; ++axis)
    if (starts[axis] + sizes[axis] > layout.sizes[axis]) return byoc_damaged(reader, "a part ends behind the tensor");
  const int status = objects->onednn->memory_desc_create_submemory(&desc, base, sizes, starts);
  return add(reader, objects, "a part", status, desc);
}

static int32_t read_queried(Reader *reader, Objects *objects) {
  int64_t primitive, query, index;
  void *desc = NULL;
  if (byoc_read_number(reader, 0, objects->num_primitives - 1, &primitive) ||
      byoc_read_number(reader, 0, UINT8_MAX, &query) || byoc_read_number(reader, 0, INT32_MAX, &index))
    return -1;
  Desc found = objects->onednn->primitive_desc_query_md(objects->primitives[primitive].desc, (int)query, (int)index);
  if (!found) return byoc_damaged(reader, "a primitive has no such argument");
  const int status = objects->onednn->memory_desc_clone(&desc, found);
  return add(reader, objects, "a copy", status, desc);
}

int32_t byoc_read_desc(Reader *reader, Objects *objects, const char *word) {
  static const struct {
    const char *word;
    int32_t (*read)(Reader *reader, Objects *objects);
  } kinds[] = {{"strided", read_strided},   {"any", read_any},   {"permuted", read_permuted},
               {"reshaped", read_reshaped}, {"part", read_part}, {"queried", read_queried}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i)
    if (!strcmp(word, kinds[i].word)) return kinds[i].read(reader, objects);
  return 1;
}

void byoc_free_objects(Objects *objects) {
  const Onednn *onednn = objects->onednn;
  for (int32_t i = 0; i < objects->num_primitives; ++i) {
    if (objects->primitives[i].primitive) (void)onednn->primitive_destroy(objects->primitives[i].primitive);
    (void)onednn->primitive_desc_destroy(objects->primitives[i].desc);
  }
  for (int32_t i = 0; i < objects->num_descs; ++i) (void)onednn->memory_desc_destroy(objects->descs[i]);
  free(objects->primitives);
  free(objects->descs);
}
