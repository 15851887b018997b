#include "layout.h"

#include <string.h>

int64_t byoc_itemsize(int64_t dtype) {
  static const int64_t sizes[NUM_DATA_TYPES] = {
      [FLOAT16] = 2, [BFLOAT16] = 2, [FLOAT32] = 4, [INT32] = 4, [INT8] = 1, [UINT8] = 1};
  return dtype > 0 && dtype < NUM_DATA_TYPES ? sizes[dtype] : 0;
}

static int64_t query_number(const Onednn *onednn, Desc desc, int query) {
  int number = 0;
  return onednn->memory_desc_query(desc, query, &number) ? 0 : number;
}

static void query_numbers(const Onednn *onednn, Desc desc, int query, int64_t count, int64_t *numbers) {
  const int64_t *found = NULL;
  if (onednn->memory_desc_query(desc, query, &found) || !found) return;
  memcpy(numbers, found, (size_t)count * sizeof *numbers);
}

int byoc_query_layout(const Onednn *onednn, Desc desc, Layout *layout) {
  *layout = (Layout){0};
  if (!desc) return 1;
  layout->rank = query_number(onednn, desc, QUERY_NDIMS);
  layout->kind = query_number(onednn, desc, QUERY_FORMAT_KIND);
  if (layout->rank < 0 || layout->rank > MAX_NDIMS) return 0;
  if (!layout->rank) return 1;
  layout->dtype = query_number(onednn, desc, QUERY_DATA_TYPE);
  query_numbers(onednn, desc, QUERY_DIMS, layout->rank, layout->sizes);
  const size_t nbytes = onednn->memory_desc_get_size(desc);
  if (nbytes > INT64_MAX) return 0;
  layout->nbytes = (int64_t)nbytes;
  if (layout->kind != FORMAT_KIND_BLOCKED) return 1;
  query_numbers(onednn, desc, QUERY_PADDED_DIMS, layout->rank, layout->padded_sizes);
  query_numbers(onednn, desc, QUERY_STRIDES, layout->rank, layout->strides);
  (void)onednn->memory_desc_query(desc, QUERY_SUBMEMORY_OFFSET, &layout->offset);
  layout->num_blocks = query_number(onednn, desc, QUERY_INNER_NBLKS);
  if (layout->num_blocks < 0 || layout->num_blocks > MAX_NDIMS) return 0;
  query_numbers(onednn, desc, QUERY_INNER_BLKS, layout->num_blocks, layout->blocks);
  query_numbers(onednn, desc, QUERY_INNER_IDXS, layout->num_blocks, layout->block_axes);
  return 1;
}

static uint64_t hash_numbers(uint64_t hash, const int64_t *numbers, int64_t count) {
  for (int64_t i = 0; i < count; ++i) hash = (hash ^ (uint64_t)numbers[i]) * UINT64_C(0x100000001b3);
  return hash;
}

int64_t byoc_fingerprint(const Layout *layout) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  hash = hash_numbers(hash, (const int64_t[]){layout->kind, layout->rank, layout->dtype, layout->nbytes}, 4);
  hash = hash_numbers(hash, layout->sizes, layout->rank);
  if (layout->kind == FORMAT_KIND_BLOCKED) {
    hash = hash_numbers(hash, layout->padded_sizes, layout->rank);
    hash = hash_numbers(hash, layout->strides, layout->rank);
    hash = hash_numbers(hash, (const int64_t[]){layout->offset, layout->num_blocks}, 2);
    hash = hash_numbers(hash, layout->blocks, layout->num_blocks);
    hash = hash_numbers(hash, layout->block_axes, layout->num_blocks);
  }
  return (int64_t)(hash >> 1);
}

static int64_t bytes_of(const Layout *layout, int64_t elements) {
  const int64_t itemsize = byoc_itemsize(layout->dtype);
  return itemsize && elements <= INT64_MAX / itemsize ? elements * itemsize : -1;
}

/* Adds a product to a sum of numbers of at least 0; returns 0 at an overflow. */
static int add_product(int64_t *sum, int64_t a, int64_t b) {
  if (a < 0 || b < 0 || (b && a > (INT64_MAX - *sum) / b)) return 0;
  *sum += a * b;
  return 1;
}

int64_t byoc_extent(const Layout *layout) {
  if (!layout->rank || layout->kind == FORMAT_KIND_ANY) return -1;
  if (layout->kind != FORMAT_KIND_BLOCKED) return layout->nbytes > 0 ? layout->nbytes : -1;
  int64_t counts[MAX_NDIMS], elements = layout->offset, block = 1;
  if (elements < 0) return -1;
  memcpy(counts, layout->padded_sizes, sizeof counts);
  for (int64_t i = 0; i < layout->num_blocks; ++i) {
    const int64_t axis = layout->block_axes[i], size = layout->blocks[i];
    if (axis < 0 || axis >= layout->rank || size < 1 || counts[axis] % size || block > INT32_MAX / size) return -1;
    counts[axis] /= size;
    block *= size;
  }
  if (!add_product(&elements, block, 1)) return -1;
  for (int64_t axis = 0; axis < layout->rank; ++axis)
    if (!add_product(&elements, counts[axis] - 1, layout->strides[axis])) return -1;
  const int64_t nbytes = bytes_of(layout, elements);
  return nbytes < 0 || layout->offset || nbytes > layout->nbytes ? nbytes : layout->nbytes;
}
