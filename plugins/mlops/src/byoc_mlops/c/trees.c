/* An ensemble of decision trees on samples of REAL, with names of the prefix TREES.
 *
 * Leaves are nodes with themselves as both children, so samples at a leaf stay there while other samples walk on.
 * Samples walk in groups of LANES through a tree: the walks are independent, and the processor overlaps them. Each
 * further sample walks through LANES trees at once. All samples of a block walk through a tree before the next tree. A
 * sample's weights are added in the order of trees. */
enum { TREES_LANES = 8 };

struct TREES_nodes {
  const REAL *thresholds, *members;
  const int32_t *features, *children, *set_starts;
  const uint8_t *modes, *missing;
};

/* Return whether a value is in the sorted set of a node; NaN never is. */
static inline int TREES_contains(const struct TREES_nodes *nodes, int32_t node, REAL value) {
  int32_t low = nodes->set_starts[node], high = nodes->set_starts[node + 1];
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (nodes->members[middle] == value) return 1;
    if (nodes->members[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return 0;
}

static inline int TREES_decide(const struct TREES_nodes *nodes, int32_t node, REAL value) {
  const REAL threshold = nodes->thresholds[node];
  (void)threshold;
  return DECISION;
}

/* Move the samples of a group from the root to the leaves of a tree, at most `depth` levels below. */
static inline void TREES_walk(const struct TREES_nodes *nodes, const REAL *x, int64_t num_features, int64_t count,
                              int32_t root, int32_t depth, int32_t *states) {
  for (int64_t i = 0; i < count; ++i) states[i] = root;
  for (int32_t level = 0; level < depth; ++level) {
    int32_t moved = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t node = states[i];
      const REAL value = x[i * num_features + nodes->features[node]];
      const int32_t next = nodes->children[2 * (int64_t)node + !TREES_decide(nodes, node, value)];
      moved |= next ^ node;
      states[i] = next;
    }
    if (!moved) return;
  }
}

/* Move a sample from the roots of `count` trees to the leaves; LANES walkers move, the last of them without use. */
static inline void TREES_walk_trees(const struct TREES_nodes *nodes, const REAL *row, const int32_t *roots,
                                    const int32_t *depths, int64_t count, int32_t *states) {
  int32_t depth = 0;
  for (int64_t i = 0; i < TREES_LANES; ++i) states[i] = roots[i < count ? i : 0];
  for (int64_t i = 0; i < count; ++i) depth = depths[i] > depth ? depths[i] : depth;
  for (int32_t level = 0; level < depth; ++level) {
    int32_t moved = 0;
    for (int64_t i = 0; i < TREES_LANES; ++i) {
      const int32_t node = states[i];
      const REAL value = row[nodes->features[node]];
      const int32_t next = nodes->children[2 * (int64_t)node + !TREES_decide(nodes, node, value)];
      moved |= next ^ node;
      states[i] = next;
    }
    if (!moved) return;
  }
}

/* Join the weights of a leaf of a sample: entries `starts[leaf]` to `starts[leaf + 1]`. */
static inline void TREES_join(const int32_t *starts, const int32_t *targets, const double *weights, int32_t leaf,
                              double *sums, uint8_t *seen) {
  (void)seen;
  for (int32_t entry = starts[leaf]; entry < starts[leaf + 1]; ++entry) {
    const int64_t slot = targets[entry];
    const double weight = weights[entry];
    JOIN;
  }
}

static void TREES_run(const REAL *x, const REAL *thresholds, const int32_t *features, const int32_t *children,
                      const uint8_t *modes, const uint8_t *missing, const int32_t *set_starts, const REAL *members,
                      const int32_t *roots, const int32_t *depths, const int32_t *starts, const int32_t *targets,
                      const double *weights, double *sums, uint8_t *seen, REAL *out, int64_t num_samples,
                      int64_t num_features, int64_t num_trees, int64_t num_targets, int64_t first_leaf,
                      int64_t block) {
  const struct TREES_nodes nodes = {thresholds, members, features, children, set_starts, modes, missing};
  for (int64_t first = 0; first < num_samples; first += block) {
    const int64_t count = num_samples - first < block ? num_samples - first : block;
    for (int64_t i = 0; i < count * num_targets; ++i) {
      sums[i] = START;
      seen[i] = 0;
    }
    /* Few trees are no group: then the further samples walk through a tree together. */
    const int64_t grouped = num_trees < TREES_LANES ? count : count / TREES_LANES * TREES_LANES;
    int32_t leaves[TREES_LANES];
    for (int64_t tree = 0; tree < num_trees; ++tree) {
      for (int64_t i = 0; i < grouped; i += TREES_LANES) {
        const int64_t lanes = grouped - i < TREES_LANES ? grouped - i : TREES_LANES;
        const REAL *rows = x + (first + i) * num_features;
        if (lanes == TREES_LANES) { /* a constant number of rounds */
          TREES_walk(&nodes, rows, num_features, TREES_LANES, roots[tree], depths[tree], leaves);
        } else {
          TREES_walk(&nodes, rows, num_features, lanes, roots[tree], depths[tree], leaves);
        }
        for (int64_t lane = 0; lane < lanes; ++lane) {
          TREES_join(starts, targets, weights, leaves[lane] - (int32_t)first_leaf, sums + (i + lane) * num_targets,
                     seen + (i + lane) * num_targets);
        }
      }
    }
    for (int64_t tree = 0; tree < num_trees; tree += TREES_LANES) {
      const int64_t lanes = num_trees - tree < TREES_LANES ? num_trees - tree : TREES_LANES;
      for (int64_t i = grouped; i < count; ++i) {
        TREES_walk_trees(&nodes, x + (first + i) * num_features, roots + tree, depths + tree, lanes, leaves);
        for (int64_t lane = 0; lane < lanes; ++lane) {
          TREES_join(starts, targets, weights, leaves[lane] - (int32_t)first_leaf, sums + i * num_targets,
                     seen + i * num_targets);
        }
      }
    }
    REAL *results = out + first * num_targets;
    for (int64_t i = 0; i < count * num_targets; ++i) results[i] = (REAL)(RESULT);
  }
}
