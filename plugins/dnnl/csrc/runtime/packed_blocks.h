/* Memory of packed constants, shared by all modules of the process: equal bytes exist once. */
#ifndef BYOC_DNNL_PACKED_BLOCKS_H_
#define BYOC_DNNL_PACKED_BLOCKS_H_

#include <stdint.h>

/* Bytes that nobody writes any more. */
typedef struct PackedBlock {
  struct PackedBlock *next;
  uint64_t hash;
  int64_t nbytes, num_users;
  void *memory;
} PackedBlock;

/* Returns the block with these bytes, for one more user, or NULL without memory. The bytes, of `malloc`, belong to the
 * block, or are freed. */
PackedBlock *byoc_share_block(void *memory, int64_t nbytes);

/* Ends the use by a user; the last one frees the block. */
void byoc_release_block(PackedBlock *block);

#endif /* BYOC_DNNL_PACKED_BLOCKS_H_ */
