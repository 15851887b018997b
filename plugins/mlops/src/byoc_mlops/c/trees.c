/* An ensemble of decision trees on samples of REAL, with names of the prefix TREES.
 *
 * Samples become integers in the same order, of type KEY, in a slot for each feature and side of NaN; see
 * tree_tables.py. All keys of a sample are computed first, or each comparison computes a key. A record of a node has
 * elements of 32 bits: the limit (of the size of KEY), the slot, the next pair of records, the leaf, and padding. A key
 * up to the limit leads to the first record of the pair. A leaf leads to itself. Eight walks of samples through a tree,
 * or of a sample through eight trees, take turns: the walks are independent, and the processor overlaps them. All
 * samples of a block walk through a tree before the next tree. A sample's weights are added in the order of trees. */
enum {
  TREES_LANES = 8,
  TREES_SLOT = (int)(sizeof(KEY) / sizeof(int32_t)),
  TREES_NEXT,
  TREES_LEAF,
  TREES_RECORD = 2 * TREES_SLOT + 2
};

/* Return the key of a value; NaN becomes `nan`. */
static inline KEY TREES_key(REAL value, KEY nan) {
  KEY bits;
  memcpy(&bits, &value, sizeof bits);
  const KEY magnitude = bits & LARGEST;
  const KEY key = bits < 0 ? bits ^ LARGEST : bits;
  return magnitude > INFINITE ? nan : key;
}

/* Write the keys of a sample into lane 0 of slots `first` to `end` of features; NaN becomes `nan`. */
static inline void TREES_convert(const REAL *row, const int32_t *features, int64_t first, int64_t end, KEY nan,
                                 KEY *keys) {
  for (int64_t slot = first; slot < end; ++slot) keys[slot * TREES_LANES] = TREES_key(row[features[slot]], nan);
}

/* Write the keys of `lanes` lanes in groups of LANES lanes: (group, slot, lane). Lane `count - 1` is repeated. */
static void TREES_convert_block(const REAL *x, int64_t num_features, const int32_t *features, int64_t num_low,
                                int64_t num_slots, int64_t count, int64_t lanes, KEY *keys) {
  for (int64_t i = 0; i < lanes; ++i) {
    const REAL *row = x + (i < count ? i : count - 1) * num_features;
    KEY *group = keys + i / TREES_LANES * num_slots * TREES_LANES + i % TREES_LANES;
    TREES_convert(row, features, 0, num_low, -LARGEST - 1, group);
    TREES_convert(row, features, num_low, num_slots, LARGEST, group);
  }
}

struct TREES_forest {
  const int32_t *nodes, *features;
  int64_t num_low;
};

static inline int32_t TREES_step(const struct TREES_forest *forest, const INPUT *inputs, int32_t node) {
  const int32_t *record = forest->nodes + node;
  const int32_t slot = record[TREES_SLOT];
  KEY limit;
  memcpy(&limit, record, sizeof limit);
  return record[TREES_NEXT] + (SLOT_KEY > limit) * TREES_RECORD;
}

/* Move LANES walks from records `states` to leaves, at most `depth` levels below. Walk i reads inputs from i * lane. */
static inline void TREES_walk(const struct TREES_forest *forest, const INPUT *inputs, int64_t lane, int32_t depth,
                              int32_t *states) {
  int32_t a = states[0], b = states[1], c = states[2], d = states[3];
  int32_t e = states[4], f = states[5], g = states[6], h = states[7];
#define TREES_LEVEL                              \
  a = TREES_step(forest, inputs, a);             \
  b = TREES_step(forest, inputs + lane, b);      \
  c = TREES_step(forest, inputs + 2 * lane, c);  \
  d = TREES_step(forest, inputs + 3 * lane, d);  \
  e = TREES_step(forest, inputs + 4 * lane, e);  \
  f = TREES_step(forest, inputs + 5 * lane, f);  \
  g = TREES_step(forest, inputs + 6 * lane, g);  \
  h = TREES_step(forest, inputs + 7 * lane, h);
  for (; depth & 3; --depth) {
    TREES_LEVEL
  }
  for (; depth > 0; depth -= 4) {
    TREES_LEVEL
    TREES_LEVEL
    TREES_LEVEL
    const int32_t before[] = {a, b, c, d, e, f, g, h};
    TREES_LEVEL
    if (!((before[0] ^ a) | (before[1] ^ b) | (before[2] ^ c) | (before[3] ^ d) | (before[4] ^ e) | (before[5] ^ f) |
          (before[6] ^ g) | (before[7] ^ h))) {
      break;
    }
  }
#undef TREES_LEVEL
  states[0] = a, states[1] = b, states[2] = c, states[3] = d;
  states[4] = e, states[5] = f, states[6] = g, states[7] = h;
}

/* Join the weights of a leaf of a sample. */
static inline void TREES_join(const int32_t *starts, const int32_t *targets, const double *weights, int32_t leaf,
                              double *sums, uint8_t *seen) {
  (void)starts, (void)targets, (void)seen;
  for (int64_t entry = FIRST_ENTRY; entry < LAST_ENTRY; ++entry) {
    const int64_t slot = ENTRY_SLOT;
    const double weight = weights[entry];
    JOIN;
  }
}

static void TREES_run(const REAL *x, const int32_t *nodes, const int32_t *features, const int32_t *depths,
                      const int32_t *starts, const int32_t *targets, const double *weights, KEY *keys, double *sums,
                      uint8_t *seen, REAL *out, int64_t num_samples, int64_t num_features, int64_t num_low,
                      int64_t num_slots, int64_t num_trees, int64_t num_targets, int64_t block) {
  const struct TREES_forest forest = {nodes, features, num_low};
  (void)keys, (void)num_slots;
  for (int64_t first = 0; first < num_samples; first += block) {
    const int64_t count = num_samples - first < block ? num_samples - first : block;
    const int64_t rest = count % TREES_LANES, tree_groups = (num_trees + TREES_LANES - 1) / TREES_LANES;
    /* The further samples walk through each tree together, or each through several trees: the fewer walks. Without keys
     * they never walk together, because there is no sample for the last walks. */
    const int64_t grouped = !HAS_KEYS || rest * tree_groups < num_trees ? count - rest : count;
    if (HAS_KEYS) {
      const int64_t lanes_used = grouped < count ? count : (count + TREES_LANES - 1) / TREES_LANES * TREES_LANES;
      const REAL *rows = x + first * num_features;
      TREES_convert_block(rows, num_features, features, num_low, num_slots, count, lanes_used, keys);
    }
    for (int64_t i = 0; i < count * num_targets; ++i) {
      sums[i] = START;
      seen[i] = 0;
    }
    int32_t states[TREES_LANES];
    for (int64_t tree = 0; tree < num_trees; ++tree) {
      for (int64_t i = 0; i < grouped; i += TREES_LANES) {
        for (int64_t lane = 0; lane < TREES_LANES; ++lane) states[lane] = (int32_t)tree * TREES_RECORD;
        TREES_walk(&forest, GROUP_INPUTS, GROUP_LANE, depths[tree], states);
        const int64_t lanes = grouped - i < TREES_LANES ? grouped - i : TREES_LANES;
        for (int64_t lane = 0; lane < lanes; ++lane) {
          TREES_join(starts, targets, weights, nodes[states[lane] + TREES_LEAF], sums + (i + lane) * num_targets,
                     seen + (i + lane) * num_targets);
        }
      }
    }
    for (int64_t tree = 0; tree < (grouped < count ? num_trees : 0); tree += TREES_LANES) {
      const int64_t lanes = num_trees - tree < TREES_LANES ? num_trees - tree : TREES_LANES;
      int32_t depth = 0;
      for (int64_t lane = 0; lane < lanes; ++lane) depth = depths[tree + lane] > depth ? depths[tree + lane] : depth;
      for (int64_t i = grouped; i < count; ++i) {
        for (int64_t lane = 0; lane < TREES_LANES; ++lane) {
          states[lane] = (int32_t)(tree + (lane < lanes ? lane : 0)) * TREES_RECORD;
        }
        TREES_walk(&forest, SINGLE_INPUTS, 0, depth, states);
        for (int64_t lane = 0; lane < lanes; ++lane) {
          TREES_join(starts, targets, weights, nodes[states[lane] + TREES_LEAF], sums + i * num_targets,
                     seen + i * num_targets);
        }
      }
    }
    REAL *results = out + first * num_targets;
    for (int64_t i = 0; i < count * num_targets; ++i) results[i] = (REAL)(RESULT);
  }
}
