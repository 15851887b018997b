/* Products of a few rows by a panel of weights, for one instruction set. Included once for each set, with definitions of
 *
 *   LANES      floats of a vector
 *   TARGET     the attribute of functions
 *   NAME(x)    the name of a function for the set
 *   TILE_ROWS  rows with sums in registers beside unpacked weights
 *   REPEAT(x)  a vector of the same number
 *   MULTIPLY_ADD(a, b, c)  a * b + c
 *   UNPACK_4(words, step)  optional: the floats of 4 bits of each word
 */

typedef float NAME(Floats) __attribute__((vector_size(4 * LANES)));
typedef int32_t NAME(Words) __attribute__((vector_size(4 * LANES)));
typedef int8_t NAME(Bytes) __attribute__((vector_size(LANES)));

#define INLINE static inline __attribute__((always_inline)) TARGET
enum { NAME(GROUP) = 2 * LANES }; /* columns computed at a time */

INLINE NAME(Floats) NAME(load)(const float *from) {
  NAME(Floats) result;
  memcpy(&result, from, sizeof result);
  return result;
}

INLINE NAME(Words) NAME(load_words)(const int32_t *from) {
  NAME(Words) result;
  memcpy(&result, from, sizeof result);
  return result;
}

INLINE void NAME(store)(float *to, NAME(Floats) numbers) { memcpy(to, &numbers, sizeof numbers); }

INLINE NAME(Floats) NAME(load_zeros)(const int8_t *from) {
  NAME(Bytes) bytes;
  memcpy(&bytes, from, sizeof bytes);
  return __builtin_convertvector(__builtin_convertvector(bytes, NAME(Words)), NAME(Floats));
}

/* The number of `num_bits` bits of each word for a step. */
INLINE NAME(Floats) NAME(unpack)(NAME(Words) words, const int num_bits, const int step) {
#ifdef UNPACK_4
  if (num_bits == 4) return UNPACK_4(words, step);
#endif
  return __builtin_convertvector((words << (32 - num_bits * (step + 1))) >> (32 - num_bits), NAME(Floats));
}

/* Adds the products of step `i` of a word to the sums of each row. */
INLINE void NAME(add_step)(NAME(Floats) part[][2], const NAME(Words) words[2], const NAME(Floats) zeros[2],
                           const float *x, int64_t depth, int i, const int rows, const int num_bits,
                           const int has_zeros) {
  NAME(Floats) numbers[2];
  for (int v = 0; v < 2; ++v) {
    numbers[v] = NAME(unpack)(words[v], num_bits, i);
    if (has_zeros) numbers[v] -= zeros[v];
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < 2; ++v) part[r][v] = MULTIPLY_ADD(REPEAT(x[r * depth + i]), numbers[v], part[r][v]);
}

/* Sums of `rows` rows by a panel, with numbers unpacked in registers. The sum of a block is multiplied by the scale. */
INLINE void NAME(multiply)(const WeightProduct *p, const Panel *panel, const float *x, float *sums, const int rows,
                           const int num_bits, const int has_zeros) {
  const int per_word = 32 / num_bits;
  const int64_t block_words = (p->block_size + per_word - 1) / per_word;
  for (int group = 0; group < PANEL_COLUMNS; group += NAME(GROUP)) {
    NAME(Floats) totals[MAX_TILE_ROWS][2] = {0};
    for (int64_t block = 0, first = 0; first < p->depth; ++block, first += p->block_size) {
      const int64_t rest = p->depth - first, steps = rest < p->block_size ? rest : p->block_size;
      const int32_t *words = panel->words + block * block_words * PANEL_COLUMNS + group;
      const int64_t parameter = block * PANEL_COLUMNS + group;
      NAME(Floats) part[MAX_TILE_ROWS][2] = {0}, odd_part[MAX_TILE_ROWS][2] = {0}, zeros[2] = {0};
      if (has_zeros)
        for (int v = 0; v < 2; ++v) zeros[v] = NAME(load_zeros)(panel->zeros + parameter + v * LANES);
      for (int64_t step = 0; step < steps; step += per_word, words += PANEL_COLUMNS) {
        const NAME(Words) of_step[2] = {NAME(load_words)(words), NAME(load_words)(words + LANES)};
        const int64_t left = steps - step;
        for (int v = 0; v < 2; ++v) __builtin_prefetch(words + PREFETCHED + v * LANES);
        const float *of_x = x + first + step;
        if (left < per_word) {
          for (int i = 0; i < left; ++i) NAME(add_step)(part, of_step, zeros, of_x, p->depth, i, rows, num_bits, has_zeros);
        } else {
#pragma GCC unroll 8
          for (int i = 0; i < per_word; ++i) /* few sums would wait for each other */
            NAME(add_step)(rows <= 2 && i % 2 ? odd_part : part, of_step, zeros, of_x, p->depth, i, rows, num_bits, has_zeros);
        }
      }
      for (int v = 0; v < 2; ++v) {
        const NAME(Floats) scale = NAME(load)(panel->scales + parameter + v * LANES);
        for (int r = 0; r < rows; ++r) {
          if (rows <= 2) part[r][v] += odd_part[r][v];
          totals[r][v] = MULTIPLY_ADD(part[r][v], scale, totals[r][v]);
        }
      }
    }
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < 2; ++v) NAME(store)(sums + r * PANEL_COLUMNS + group + v * LANES, totals[r][v]);
  }
}

INLINE void NAME(multiply_form)(const WeightProduct *p, const Panel *panel, const float *x, float *sums,
                                const int rows) {
  if (p->num_bits == 4 && p->has_zeros) NAME(multiply)(p, panel, x, sums, rows, 4, 1);
  if (p->num_bits == 4 && !p->has_zeros) NAME(multiply)(p, panel, x, sums, rows, 4, 0);
  if (p->num_bits == 8 && p->has_zeros) NAME(multiply)(p, panel, x, sums, rows, 8, 1);
  if (p->num_bits == 8 && !p->has_zeros) NAME(multiply)(p, panel, x, sums, rows, 8, 0);
}

/* Sums of up to MAX_DIRECT_ROWS rows by a panel: tiles of 4, 2 and 1 rows. */
static TARGET void NAME(multiply_directly)(const WeightProduct *p, const Panel *panel, const float *x, float *sums,
                                           int64_t rows) {
  int64_t row = 0;
  if (rows >= 4) NAME(multiply_form)(p, panel, x, sums, 4), row = 4;
  if (rows - row >= 2) NAME(multiply_form)(p, panel, x + row * p->depth, sums + row * PANEL_COLUMNS, 2), row += 2;
  if (rows - row >= 1) NAME(multiply_form)(p, panel, x + row * p->depth, sums + row * PANEL_COLUMNS, 1);
}

INLINE void NAME(unpack_steps)(const WeightProduct *p, const Panel *panel, int64_t block, int64_t first, int64_t count,
                               float *to, const int num_bits) {
  const int per_word = 32 / num_bits;
  const int64_t block_words = (p->block_size + per_word - 1) / per_word;
  for (int column = 0; column < PANEL_COLUMNS; column += LANES) {
    const int64_t parameter = block * PANEL_COLUMNS + column;
    const int32_t *words = panel->words + (block * block_words + first / per_word) * PANEL_COLUMNS + column;
    const NAME(Floats) scale = NAME(load)(panel->scales + parameter);
    NAME(Floats) zeros = {0};
    if (p->has_zeros) zeros = NAME(load_zeros)(panel->zeros + parameter);
    float *of_step = to + column;
    int64_t step = 0;
    for (; step + per_word <= count; step += per_word, words += PANEL_COLUMNS) {
      const NAME(Words) of_column = NAME(load_words)(words);
#pragma GCC unroll 8
      for (int i = 0; i < per_word; ++i, of_step += PANEL_COLUMNS)
        NAME(store)(of_step, (NAME(unpack)(of_column, num_bits, i) - zeros) * scale);
    }
    for (int i = 0; step + i < count; ++i, of_step += PANEL_COLUMNS)
      NAME(store)(of_step, (NAME(unpack)(NAME(load_words)(words), num_bits, i) - zeros) * scale);
  }
}

/* The weights of the steps [first, first + count) of a block as floats; `first` begins a word. */
static TARGET void NAME(unpack_panel)(const WeightProduct *p, const Panel *panel, int64_t block, int64_t first,
                                      int64_t count, float *to) {
  if (p->num_bits == 4) NAME(unpack_steps)(p, panel, block, first, count, to, 4);
  if (p->num_bits == 8) NAME(unpack_steps)(p, panel, block, first, count, to, 8);
}

/* Adds the products of `rows` rows by unpacked weights of `count` steps to sums. */
INLINE void NAME(add_tile)(const float *x, int64_t depth, int64_t count, const float *weights, float *sums,
                           const int rows) {
  for (int group = 0; group < PANEL_COLUMNS; group += NAME(GROUP)) {
    NAME(Floats) totals[TILE_ROWS][2];
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < 2; ++v) totals[r][v] = NAME(load)(sums + r * PANEL_COLUMNS + group + v * LANES);
    for (int64_t k = 0; k < count; ++k) {
      const float *step = weights + k * PANEL_COLUMNS + group;
      const NAME(Floats) numbers[2] = {NAME(load)(step), NAME(load)(step + LANES)};
      for (int r = 0; r < rows; ++r)
        for (int v = 0; v < 2; ++v) totals[r][v] = MULTIPLY_ADD(REPEAT(x[r * depth + k]), numbers[v], totals[r][v]);
    }
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < 2; ++v) NAME(store)(sums + r * PANEL_COLUMNS + group + v * LANES, totals[r][v]);
  }
}

#define ADD_TILES(tile_rows)                                                                                       \
  for (; row + (tile_rows) <= rows; row += (tile_rows))                                                            \
    NAME(add_tile)(x + row * depth, depth, count, weights, sums + row * PANEL_COLUMNS, tile_rows)

static TARGET void NAME(add_product)(const float *x, int64_t depth, int64_t count, const float *weights, float *sums,
                                     int64_t rows) {
  int64_t row = 0;
  ADD_TILES(TILE_ROWS);
#if TILE_ROWS > 8
  ADD_TILES(8);
#endif
#if TILE_ROWS > 4
  ADD_TILES(4);
#endif
  ADD_TILES(2);
  ADD_TILES(1);
}

static const Tiles NAME(tiles) = {NAME(multiply_directly), NAME(unpack_panel), NAME(add_product)};

#undef ADD_TILES
#undef INLINE
#undef LANES
#undef TARGET
#undef NAME
#undef TILE_ROWS
#undef MULTIPLY_ADD
#undef REPEAT
#undef UNPACK_4
