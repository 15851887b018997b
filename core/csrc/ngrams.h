/* Counts of n-grams: sequences of integers found among the items of a row, perhaps with items skipped in between.
 *
 * Independent of Python.
 */
#ifndef BYOC_NGRAMS_H_
#define BYOC_NGRAMS_H_

#include <stdint.h>

/* Known n-grams as a tree: the first item leads from the root to a node, the next item to a child, and so on. */
typedef struct {
  struct byoc_gram_edge *edges; /* a hash table */
  uint64_t mask;                /* the number of slots, a power of two, less 1 */
  int64_t *columns;             /* by node: the column of the n-gram that ends here, or -1 */
  int64_t num_nodes;
} byoc_gram_tree;

enum { BYOC_GRAMS_BUILT = 0, BYOC_GRAMS_NO_MEMORY = -1, BYOC_GRAMS_MALFORMED = -2 };

/* Build the tree of n-grams; of equal n-grams the last counts.
 *
 * `items` has the items of all n-grams, one after the other, `sizes` the number of items of each, 1 or more, `columns`
 * the column of each, from 0 to below `num_columns`.
 */
int byoc_gram_tree_build(byoc_gram_tree *tree, const int64_t *items, int64_t num_items, const int64_t *sizes,
                         const int64_t *columns, int64_t num_grams, int64_t num_columns);

void byoc_gram_tree_free(byoc_gram_tree *tree);

typedef struct {
  int64_t min_length, max_length; /* of counted n-grams */
  int64_t max_skip;               /* the most items between neighbours of an n-gram, the same number in all places */
} byoc_gram_choice;

/* Add the n-grams of a row of items to the counts of their columns. N-grams of a single item count once. */
void byoc_count_grams(const byoc_gram_tree *tree, const byoc_gram_choice *choice, const int64_t *row, int64_t size,
                      float *counts);

#endif
