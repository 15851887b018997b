/* Products of rows of float32 by weights of 4 or 8 bits with scales. oneDNN 3.2 has no such product.
 *
 * A product of few rows takes as long as reading the weights, so the numbers are unpacked in registers, and no weight is
 * written. With more rows, a part of a panel is unpacked into the nearest cache, and meets all rows there.
 */
#include "program.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
  PANEL_COLUMNS = BYOC_PANEL_COLUMNS,
  MAX_TILE_ROWS = 4,   /* rows with sums in registers beside numbers unpacked there */
  MAX_DIRECT_ROWS = 7, /* more rows meet unpacked weights */
  MAX_ROWS = 192,      /* rows with sums held at a time */
  UNPACKED_STEPS = 64, /* steps of a panel unpacked at a time; a whole number of words */
  PREFETCHED = 24 * PANEL_COLUMNS /* words from a read word to a prefetched word; also the first of the next panel */
};

/* The weights of PANEL_COLUMNS columns. */
typedef struct {
  const int32_t *words; /* by block, word of the block, column */
  const float *scales;  /* by block, column */
  const int8_t *zeros;  /* as scales */
} Panel;

/* The functions of an instruction set. */
typedef struct {
  void (*multiply_directly)(const WeightProduct *p, const Panel *panel, const float *x, float *sums, int64_t rows);
  void (*unpack_panel)(const WeightProduct *p, const Panel *panel, int64_t block, int64_t first,
                       int64_t count, float *to);
  void (*add_product)(const float *x, int64_t depth, int64_t count, const float *weights, float *sums, int64_t rows);
} Tiles;

#define LANES 4
#define TARGET
#define NAME(x) x##_by_baseline
#define TILE_ROWS 4
#define REPEAT(x) ((Floats_by_baseline){x, x, x, x})
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#include "weights_tiles.h"

#if defined(__x86_64__)
#define LANES 8
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) x##_by_avx2
#define TILE_ROWS 6
#define REPEAT(x) (Floats_by_avx2) _mm256_set1_ps(x)
#define MULTIPLY_ADD(a, b, c) (Floats_by_avx2) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#include "weights_tiles.h"

/* A table of the 16 numbers replaces the conversion: the permutation reads the lowest four bits of each word. */
static inline __attribute__((always_inline, target("avx512f"))) __m512 numbers_of_4_bits(__m512i words, int step) {
  const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  return _mm512_permutexvar_ps((__m512i)((__v16su)words >> (4 * step)), table);
}

#define LANES 16
#define TARGET __attribute__((target("avx512f")))
#define NAME(x) x##_by_avx512
#define TILE_ROWS 12
#define REPEAT(x) (Floats_by_avx512) _mm512_set1_ps(x)
#define MULTIPLY_ADD(a, b, c) (Floats_by_avx512) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define UNPACK_4(words, step) (Floats_by_avx512) numbers_of_4_bits((__m512i)(words), step)
#include "weights_tiles.h"
#endif

typedef struct {
  const WeightProduct *product;
  const WeightOperands *operands;
  const Tiles *tiles;
  int64_t panels, rows_at_a_time;
} ProductTask;

/* Unpacks whole blocks from a step on, or a part of a long block; returns the number of steps. */
static int64_t unpack(const ProductTask *task, const Panel *panel, int64_t step, float *to) {
  const WeightProduct *p = task->product;
  int64_t unpacked = 0;
  do {
    const int64_t block = (step + unpacked) / p->block_size, first = (step + unpacked) % p->block_size;
    const int64_t rest = p->depth - step - unpacked, in_block = p->block_size - first, room = UNPACKED_STEPS - unpacked;
    int64_t count = rest < in_block ? rest : in_block;
    if (count > room) count = room;
    task->tiles->unpack_panel(p, panel, block, first, count, to + unpacked * PANEL_COLUMNS);
    unpacked += count;
  } while (step + unpacked < p->depth && unpacked + p->block_size <= UNPACKED_STEPS);
  return unpacked;
}

static void multiply_item(const ProductTask *task, int64_t item) {
  const WeightProduct *p = task->product;
  const WeightOperands *operands = task->operands;
  const int64_t number = item % task->panels, row = item / task->panels * task->rows_at_a_time;
  const int64_t rows = p->rows - row < task->rows_at_a_time ? p->rows - row : task->rows_at_a_time;
  const int64_t per_word = 32 / p->num_bits, blocks = (p->depth + p->block_size - 1) / p->block_size;
  const int64_t words = blocks * ((p->block_size + per_word - 1) / per_word) * PANEL_COLUMNS;
  const int64_t parameters = number * blocks * PANEL_COLUMNS;
  const Panel panel = {operands->words + number * words, operands->scales + parameters,
                       p->has_zeros ? operands->zeros + parameters : NULL};
  const float *x = operands->x + row * p->depth;
  _Alignas(64) float sums[MAX_ROWS * PANEL_COLUMNS], weights[UNPACKED_STEPS * PANEL_COLUMNS];
  if (rows <= MAX_DIRECT_ROWS) {
    task->tiles->multiply_directly(p, &panel, x, sums, rows);
  } else {
    memset(sums, 0, (size_t)(rows * PANEL_COLUMNS) * sizeof *sums);
    for (int64_t step = 0; step < p->depth;) {
      const int64_t unpacked = unpack(task, &panel, step, weights);
      task->tiles->add_product(x + step, p->depth, unpacked, weights, sums, rows);
      step += unpacked;
    }
  }
  const int64_t column = number * PANEL_COLUMNS, left = p->columns - column;
  const size_t nbytes = (size_t)(left < PANEL_COLUMNS ? left : PANEL_COLUMNS) * sizeof *sums;
  for (int64_t r = 0; r < rows; ++r)
    memcpy(operands->y + (row + r) * p->columns + column, sums + r * PANEL_COLUMNS, nbytes);
}

static void multiply_items(void *data, int64_t first, int64_t count) {
  for (int64_t item = first; item < first + count; ++item) multiply_item(data, item);
}

/* The functions for the longest vectors of this processor, of at most `max_lanes` floats. */
static const Tiles *find_tiles(int32_t max_lanes) {
#if defined(__x86_64__)
  if (max_lanes >= 16 && __builtin_cpu_supports("avx512f")) return &tiles_by_avx512;
  if (max_lanes >= 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &tiles_by_avx2;
#endif
  return &tiles_by_baseline;
}

void byoc_multiply(const Api *api, const WeightProduct *product, const WeightOperands *operands) {
  enum { LEAST_SHARED = 1 << 16 }; /* multiplications worth a second thread */
  const int64_t panels = (product->columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
  const int64_t chunks = (product->rows + MAX_ROWS - 1) / MAX_ROWS;
  const int64_t rows_at_a_time = chunks ? (product->rows + chunks - 1) / chunks : 1;
  const ProductTask task = {product, operands, find_tiles(product->max_lanes), panels, rows_at_a_time};
  const int is_large = product->rows * product->depth > LEAST_SHARED / product->columns;
  byoc_share(api, panels * chunks, 1, is_large, multiply_items, (void *)&task);
}
