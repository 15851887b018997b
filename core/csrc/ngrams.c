#include "ngrams.h"

#include <stdlib.h>
#include <string.h>

/* An edge of the tree; the child is 0 in a free slot: the root is no child. */
typedef struct byoc_gram_edge {
  int64_t parent, item, child;
} byoc_gram_edge;

static uint64_t hash_edge(int64_t parent, int64_t item) {
  uint64_t hash = ((uint64_t)parent * 0x9E3779B97F4A7C15u ^ (uint64_t)item) * 0xD6E8FEB86659FD93u;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93u;
  return hash ^ hash >> 32;
}

/* Return the slot of an edge: taken, or free for this edge. */
static byoc_gram_edge *find_edge(const byoc_gram_tree *tree, int64_t parent, int64_t item) {
  for (uint64_t i = hash_edge(parent, item) & tree->mask;; i = (i + 1) & tree->mask) {
    byoc_gram_edge *edge = &tree->edges[i];
    if (!edge->child || (edge->parent == parent && edge->item == item)) return edge;
  }
}

int byoc_gram_tree_build(byoc_gram_tree *tree, const int64_t *items, int64_t num_items, const int64_t *sizes,
                         const int64_t *columns, int64_t num_grams, int64_t num_columns) {
  uint64_t num_slots = 8;
  while (num_slots < 2 * (uint64_t)num_items) num_slots *= 2;
  *tree = (byoc_gram_tree){.mask = num_slots - 1, .num_nodes = 1};
  tree->edges = calloc(num_slots, sizeof *tree->edges);
  tree->columns = malloc(((size_t)num_items + 1) * sizeof *tree->columns);
  if (!tree->edges || !tree->columns) {
    byoc_gram_tree_free(tree);
    return BYOC_GRAMS_NO_MEMORY;
  }
  tree->columns[0] = -1;
  int64_t rest = num_items;
  for (int64_t gram = 0; gram < num_grams; ++gram) {
    if (sizes[gram] < 1 || sizes[gram] > rest || columns[gram] < 0 || columns[gram] >= num_columns) {
      byoc_gram_tree_free(tree);
      return BYOC_GRAMS_MALFORMED;
    }
    rest -= sizes[gram];
    int64_t node = 0;
    for (int64_t i = 0; i < sizes[gram]; ++i) {
      byoc_gram_edge *edge = find_edge(tree, node, *items);
      if (!edge->child) {
        tree->columns[tree->num_nodes] = -1;
        *edge = (byoc_gram_edge){node, *items, tree->num_nodes++};
      }
      node = edge->child;
      ++items;
    }
    tree->columns[node] = columns[gram];
  }
  if (rest) {
    byoc_gram_tree_free(tree);
    return BYOC_GRAMS_MALFORMED;
  }
  return BYOC_GRAMS_BUILT;
}

void byoc_gram_tree_free(byoc_gram_tree *tree) {
  free(tree->edges);
  free(tree->columns);
  tree->edges = NULL;
  tree->columns = NULL;
}

void byoc_count_grams(const byoc_gram_tree *tree, const byoc_gram_choice *choice, const int64_t *row, int64_t size,
                      float *counts) {
  int64_t shortest = choice->min_length;
  for (int64_t step = 1; step <= choice->max_skip + 1; ++step) {
    /* The shortest n-gram reaches over (shortest - 1) steps; a longer reach than the row ends the count. */
    if (shortest > 1 && step > (size - 1) / (shortest - 1)) return;
    const int64_t stop = size - step * (shortest - 1);
    for (int64_t start = 0; start < stop; ++start) {
      int64_t node = 0, length = 1;
      for (int64_t i = start; length <= choice->max_length; i += step, ++length) {
        node = find_edge(tree, node, row[i])->child;
        if (!node) break;
        if (length >= shortest && tree->columns[node] >= 0) counts[tree->columns[node]] += 1.0f;
        if (step > size - 1 - i) break;
      }
    }
    if (shortest == 1 && ++shortest > choice->max_length) return;
  }
}
