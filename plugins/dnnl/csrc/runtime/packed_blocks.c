#include "packed_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "program.h"

/* All blocks in use; changes with the lock held. */
static PackedBlock *blocks;

/* FNV-1a over words, then over the remaining bytes. Equal hashes only select the block to compare. */
static uint64_t hash_bytes(const char *bytes, int64_t nbytes) {
  enum { WORD = sizeof(uint64_t) };
  const uint64_t prime = 0x100000001b3;
  uint64_t hash = 0xcbf29ce484222325;
  int64_t i = 0;
  for (; i + WORD <= nbytes; i += WORD) {
    uint64_t word;
    memcpy(&word, bytes + i, WORD);
    hash = (hash ^ word) * prime;
    hash ^= hash >> 32; /* the highest bits of words count too */
  }
  for (; i < nbytes; ++i) hash = (hash ^ (unsigned char)bytes[i]) * prime;
  return hash;
}

/* Returns the first block of this size and hash, for one more user; inserts the given block if there is none. */
static PackedBlock *find_or_insert(PackedBlock *block) {
  byoc_lock();
  PackedBlock *found = blocks;
  while (found && (found->nbytes != block->nbytes || found->hash != block->hash)) found = found->next;
  if (found) {
    ++found->num_users;
  } else {
    block->next = blocks;
    blocks = block;
  }
  byoc_unlock();
  return found ? found : block;
}

static void insert(PackedBlock *block) {
  byoc_lock();
  block->next = blocks;
  blocks = block;
  byoc_unlock();
}

PackedBlock *byoc_share_block(void *memory, int64_t nbytes) {
  PackedBlock *block = malloc(sizeof *block);
  if (!block) {
    free(memory);
    return NULL;
  }
  *block = (PackedBlock){NULL, hash_bytes(memory, nbytes), nbytes, 1, memory};
  PackedBlock *found = find_or_insert(block);
  if (found == block) return block;
  if (!memcmp(found->memory, memory, (size_t)nbytes)) {
    free(memory);
    free(block);
    return found;
  }
  byoc_release_block(found);
  insert(block);
  return block;
}

void byoc_release_block(PackedBlock *block) {
  byoc_lock();
  const int is_unused = --block->num_users == 0;
  if (is_unused) {
    PackedBlock **link = &blocks;
    while (*link != block) link = &(*link)->next;
    *link = block->next;
  }
  byoc_unlock();
  if (!is_unused) return;
  free(block->memory);
  free(block);
}
