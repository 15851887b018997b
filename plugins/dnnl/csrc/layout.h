/* Layouts of memory descriptions: their fingerprints, compared with those of the plan, and their extents. */
#ifndef BYOC_DNNL_LAYOUT_H_
#define BYOC_DNNL_LAYOUT_H_

#include "onednn.h"

/* A layout as numbers; of a layout without strides, only kind, dtype, sizes and number of bytes. */
typedef struct {
  int64_t kind, rank, dtype;
  int64_t sizes[MAX_NDIMS], padded_sizes[MAX_NDIMS], strides[MAX_NDIMS], offset;
  int64_t num_blocks, blocks[MAX_NDIMS], block_axes[MAX_NDIMS];
  int64_t nbytes;
} Layout;

/* Queries a description; `desc` may be NULL. Returns 0 if the numbers are out of range. */
int byoc_query_layout(const Onednn *onednn, Desc desc, Layout *layout);

/* Returns a number of 63 bits, equal for equal layouts: FNV-1a over the numbers (`byoc_dnnl.stored.fingerprints`). */
int64_t byoc_fingerprint(const Layout *layout);

/* Returns the bytes from the beginning of the memory to the end of the last element; -1 if unknown or too many. */
int64_t byoc_extent(const Layout *layout);

/* Returns the size of an element of dnnl_data_type_t; 0 for an unknown dtype. */
int64_t byoc_itemsize(int64_t dtype);

#endif /* BYOC_DNNL_LAYOUT_H_ */
