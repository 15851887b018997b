/* Copies between arrays of any strides.
 *
 * The axes are joined where both arrays permit this, and a short contiguous run becomes a wider element. What remains
 * is one of three forms: long runs (memcpy), planes whose elements are neighbours along one axis of the source and
 * along another axis of the target (blocks of a cache line in each direction), and anything else (a loop along the axis
 * that leaves the fewest iterations outside).
 */
#include <string.h>

#include "kernel_walk.h"

enum { TARGET, SOURCE, CACHE_LINE = 64, SHORT_AXIS = 16, TILE_COLUMNS = 128 };

/* ---- Axes -------------------------------------------------------------------------------------------------------- */

typedef struct {
  int64_t nbytes; /* of an element */
  int32_t rank;
  int64_t shape[RT_MAX_RANK + 1], strides[2][RT_MAX_RANK + 1];
} copy;

/* Describe a copy by the fewest axes; return 0 if there are no elements. */
static int join_axes(copy *c, const int64_t *const *strides, int32_t rank, const int64_t *shape) {
  c->rank = 0;
  for (int32_t axis = 0; axis < rank; ++axis) {
    const int32_t last = c->rank - 1;
    if (shape[axis] == 0) return 0;
    if (shape[axis] == 1) continue;
    const int joins = last >= 0 && c->strides[TARGET][last] == strides[TARGET][axis] * shape[axis] &&
                      c->strides[SOURCE][last] == strides[SOURCE][axis] * shape[axis];
    if (!joins) c->shape[c->rank++] = 1;
    c->shape[c->rank - 1] *= shape[axis];
    for (int k = 0; k < 2; ++k) c->strides[k][c->rank - 1] = strides[k][axis];
  }
  return 1;
}

static int is_contiguous(const copy *c, int32_t axis) {
  return c->strides[TARGET][axis] == c->nbytes && c->strides[SOURCE][axis] == c->nbytes;
}

/* Make a run of up to a cache line an element, if its bytes are a power of two. */
static void widen_elements(copy *c) {
  const int32_t last = c->rank - 1;
  if (last < 0 || !is_contiguous(c, last)) return;
  const int64_t nbytes = c->nbytes * c->shape[last];
  if (nbytes > CACHE_LINE || nbytes & (nbytes - 1)) return;
  c->nbytes = nbytes;
  c->rank = last;
}

/* Move an axis to another place among the axes. */
static void move_axis(copy *c, int32_t from, int32_t to) {
  const int32_t step = from < to ? 1 : -1;
  const copy before = *c;
  for (int32_t axis = from; axis != to; axis += step) {
    c->shape[axis] = before.shape[axis + step];
    for (int k = 0; k < 2; ++k) c->strides[k][axis] = before.strides[k][axis + step];
  }
  c->shape[to] = before.shape[from];
  for (int k = 0; k < 2; ++k) c->strides[k][to] = before.strides[k][from];
}

/* Call `inner` for the elements along the outer axes. */
static void walk(const copy *c, char *const *data, int32_t num_outer, rt_inner inner, const void *context) {
  const int64_t *const strides[] = {c->strides[TARGET], c->strides[SOURCE]};
  rt_walk(2, data, strides, num_outer, c->shape, inner, context);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

#define COPY_ELEMENTS(NBYTES)                                                                          \
  case NBYTES:                                                                                         \
    for (; count; --count, target += to, source += from) memcpy(target, source, NBYTES);               \
    return

static void copy_line(const void *context, char *const *data, const int64_t *strides, int64_t count) {
  const int64_t nbytes = ((const copy *)context)->nbytes, to = strides[TARGET], from = strides[SOURCE];
  char *restrict target = data[TARGET];
  const char *restrict source = data[SOURCE];
  if ((to == nbytes && from == nbytes) || count == 1) {
    memcpy(target, source, (size_t)(count * nbytes));
    return;
  }
  switch (nbytes) {
    COPY_ELEMENTS(1);
    COPY_ELEMENTS(2);
    COPY_ELEMENTS(4);
    COPY_ELEMENTS(8);
    COPY_ELEMENTS(16);
    COPY_ELEMENTS(32);
    COPY_ELEMENTS(64);
  }
}

/* ---- Planes ------------------------------------------------------------------------------------------------------ */

/* Copy a block of lines: neighbours along the lines of the source lie `to` bytes apart in the target. A block of the
 * size of a cache line in both directions is read and written in whole lines; from a copy of the block, because lines a
 * power of two apart displace each other in the cache. */
#define DEFINE_BLOCK(NBYTES)                                                                                      \
  static void copy_block_##NBYTES(char *restrict target, int64_t to, const char *restrict source, int64_t from) { \
    enum { COUNT = CACHE_LINE / NBYTES };                                                                         \
    char block[COUNT][COUNT][NBYTES], line[COUNT][NBYTES];                                                        \
    for (int i = 0; i < COUNT; ++i) memcpy(block[i], source + i * from, CACHE_LINE);                              \
    for (int k = 0; k < COUNT; ++k) {                                                                             \
      for (int i = 0; i < COUNT; ++i) memcpy(line[i], block[i][k], NBYTES);                                       \
      memcpy(target + k * to, line, CACHE_LINE);                                                                  \
    }                                                                                                             \
  }
DEFINE_BLOCK(1)
DEFINE_BLOCK(2)
DEFINE_BLOCK(16)

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_SHUFFLES
#endif
#endif

#ifdef HAS_SHUFFLES

typedef uint32_t four __attribute__((vector_size(16)));
typedef uint64_t two __attribute__((vector_size(16)));

static void copy_block_4(char *restrict target, int64_t to, const char *restrict source, int64_t from) {
  four block[16][4]; /* by line and quarter of the line */
  for (int i = 0; i < 16; ++i) memcpy(block[i], source + i * from, CACHE_LINE);
  for (int k = 0; k < 4; ++k, target += 4 * to)
    for (int i = 0; i < 4; ++i) {
      const four a = block[4 * i][k], b = block[4 * i + 1][k], c = block[4 * i + 2][k], d = block[4 * i + 3][k];
      const four ac_low = __builtin_shufflevector(a, c, 0, 4, 1, 5), bd_low = __builtin_shufflevector(b, d, 0, 4, 1, 5);
      const four ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7);
      const four bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
      const four lines[] = {
          __builtin_shufflevector(ac_low, bd_low, 0, 4, 1, 5), __builtin_shufflevector(ac_low, bd_low, 2, 6, 3, 7),
          __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5), __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7)};
      for (int line = 0; line < 4; ++line) memcpy(target + line * to + 16 * i, &lines[line], sizeof(four));
    }
}

static void copy_block_8(char *restrict target, int64_t to, const char *restrict source, int64_t from) {
  two block[8][4]; /* by line and quarter of the line */
  for (int i = 0; i < 8; ++i) memcpy(block[i], source + i * from, CACHE_LINE);
  for (int k = 0; k < 4; ++k, target += 2 * to)
    for (int i = 0; i < 4; ++i) {
      const two a = block[2 * i][k], b = block[2 * i + 1][k];
      const two lines[] = {__builtin_shufflevector(a, b, 0, 2), __builtin_shufflevector(a, b, 1, 3)};
      for (int line = 0; line < 2; ++line) memcpy(target + line * to + 16 * i, &lines[line], sizeof(two));
    }
}

#else

DEFINE_BLOCK(4)
DEFINE_BLOCK(8)

#endif

typedef void (*block_copy)(char *restrict target, int64_t to, const char *restrict source, int64_t from);

static block_copy find_block_copy(int64_t nbytes) {
  switch (nbytes) {
    case 1:
      return copy_block_1;
    case 2:
      return copy_block_2;
    case 4:
      return copy_block_4;
    case 8:
      return copy_block_8;
    default:
      return copy_block_16;
  }
}

/* Copy part of a plane: `rows` along the last axis but one, neighbours in the source; `columns` along the last axis,
 * neighbours in the target. */
static void copy_part(const copy *c, char *target, const char *source, int64_t rows, int64_t columns) {
  const int32_t axis = c->rank - 2;
  const int64_t steps[] = {c->strides[TARGET][axis + 1], c->strides[SOURCE][axis + 1]};
  for (int64_t row = 0; row < rows; ++row) {
    char *const at[] = {target + row * c->strides[TARGET][axis],
                        (char *)(uintptr_t)source + row * c->strides[SOURCE][axis]};
    copy_line(c, at, steps, columns);
  }
}

/* Copy planes: strips of columns, in a strip whole blocks. */
static void copy_planes(const void *context, char *const *data, const int64_t *strides, int64_t count) {
  const copy *c = context;
  const int32_t row_axis = c->rank - 2, column_axis = c->rank - 1;
  const int64_t num_rows = c->shape[row_axis], num_columns = c->shape[column_axis], nbytes = c->nbytes;
  const int64_t side = CACHE_LINE / nbytes, to = c->strides[TARGET][row_axis], from = c->strides[SOURCE][column_axis];
  const block_copy copy_block = find_block_copy(nbytes);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t first = 0; first < num_columns; first += TILE_COLUMNS) {
      const int64_t columns = num_columns - first < TILE_COLUMNS ? num_columns - first : TILE_COLUMNS;
      const int64_t whole_columns = columns / side * side, whole_rows = num_rows / side * side;
      char *target = data[TARGET] + i * strides[TARGET] + first * nbytes;
      const char *source = data[SOURCE] + i * strides[SOURCE] + first * from;
      for (int64_t row = 0; row < whole_rows; row += side)
        for (int64_t column = 0; column < whole_columns; column += side)
          copy_block(target + row * to + column * nbytes, to, source + row * nbytes + column * from, from);
      copy_part(c, target + whole_columns * nbytes, source + whole_columns * from, whole_rows, columns - whole_columns);
      copy_part(c, target + whole_rows * to, source + whole_rows * nbytes, num_rows - whole_rows, columns);
    }
}

/* Move the axis of the source's neighbours behind the others, before the last axis, if both axes have room for blocks.
 * Return whether the last two axes are a plane then. */
static int find_plane(copy *c) {
  const int32_t last = c->rank - 1;
  const int64_t side = CACHE_LINE / c->nbytes;
  if (last < 1 || side < 4 || c->strides[TARGET][last] != c->nbytes || c->shape[last] < side) return 0;
  for (int32_t axis = 0; axis < last; ++axis) {
    if (c->strides[SOURCE][axis] != c->nbytes || c->shape[axis] < side) continue;
    move_axis(c, axis, last - 1);
    return 1;
  }
  return 0;
}

/* ---- Any strides ------------------------------------------------------------------------------------------------- */

/* Move the longest axis with neighbours in a cache line of the source behind a short last axis: the loop along the last
 * axis has many iterations. */
static void choose_line(copy *c) {
  const int32_t last = c->rank - 1;
  int32_t longest = last;
  if (last < 1 || c->shape[last] >= SHORT_AXIS || is_contiguous(c, last)) return;
  for (int32_t axis = last - 1; axis >= 0; --axis) {
    const int64_t stride = c->strides[SOURCE][axis];
    if (c->shape[axis] > c->shape[longest] && stride <= CACHE_LINE && stride >= -CACHE_LINE) longest = axis;
  }
  move_axis(c, longest, last);
}

void rt_copy_strided(char *target, const int64_t *target_strides, const char *source, const int64_t *source_strides,
                     int32_t rank, const int64_t *shape, int64_t nbytes) {
  char *const data[] = {target, (char *)(uintptr_t)source};
  const int64_t *const strides[] = {target_strides, source_strides};
  copy c = {.nbytes = nbytes};
  if (!join_axes(&c, strides, rank, shape)) return;
  widen_elements(&c);
  if (find_plane(&c)) {
    walk(&c, data, c.rank - 2, copy_planes, &c);
    return;
  }
  choose_line(&c);
  walk(&c, data, c.rank, copy_line, &c);
}
