#include "kernel_walk.h"

#include <string.h>

void rt_walk(int num, char *const *data, const int64_t *const *strides, int32_t rank, const int64_t *shape,
             rt_inner inner, const void *context) {
  int64_t sizes[RT_MAX_RANK + 1], steps[RT_MAX_WALKED][RT_MAX_RANK + 1], index[RT_MAX_RANK + 1] = {0};
  char *at[RT_MAX_WALKED];
  int32_t count = 0; /* of joined axes */
  for (int32_t axis = 0; axis < rank; ++axis) {
    if (shape[axis] == 0) return;
    if (shape[axis] == 1) continue;
    int joins = count > 0;
    for (int k = 0; k < num && joins; ++k) joins = steps[k][count - 1] == strides[k][axis] * shape[axis];
    if (joins)
      sizes[count - 1] *= shape[axis];
    else
      sizes[count++] = shape[axis];
    for (int k = 0; k < num; ++k) steps[k][count - 1] = strides[k][axis];
  }
  if (!count) {
    sizes[count++] = 1;
    for (int k = 0; k < num; ++k) steps[k][0] = 0;
  }
  int64_t inner_steps[RT_MAX_WALKED] = {0};
  for (int k = 0; k < num; ++k) {
    at[k] = data[k];
    inner_steps[k] = steps[k][count - 1];
  }
  for (;;) {
    inner(context, at, inner_steps, sizes[count - 1]);
    int32_t axis = count - 2;
    for (; axis >= 0; --axis) {
      for (int k = 0; k < num; ++k) at[k] += steps[k][axis];
      if (++index[axis] < sizes[axis]) break;
      for (int k = 0; k < num; ++k) at[k] -= steps[k][axis] * sizes[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}


#define COPY(T)                                                               \
  {                                                                           \
    for (int64_t i = 0; i < count; ++i, target += to, source += from) *(T *)target = *(const T *)source; \
    return;                                                                   \
  }

static void copy_inner(const void *context, char *const *data, const int64_t *strides, int64_t count) {
  const int64_t nbytes = *(const int64_t *)context, to = strides[0], from = strides[1];
  char *target = data[0];
  const char *source = data[1];
  if ((to == nbytes && from == nbytes) || count == 1) {
    memcpy(target, source, (size_t)(count * nbytes));
    return;
  }
  switch (nbytes) {
    case 1:
      COPY(uint8_t)
    case 2:
      COPY(uint16_t)
    case 4:
      COPY(uint32_t)
    case 8:
      for (; count; --count, target += to, source += from) memcpy(target, source, 8); /* complex64 aligns to 4 */
      return;
    default:
      for (; count; --count, target += to, source += from) memcpy(target, source, 16);
  }
}

enum { TILE = 32, CACHE_LINE = 64 };

/* The two axes of a plane whose elements are neighbours along different axes: in the target along the columns, in the
 * source along the rows. */
typedef struct {
  int64_t nbytes, num_rows, num_columns;
  int64_t row_steps[2], column_steps[2]; /* of target and source */
} plane;

/* Copy planes in tiles: a cache line of the source is read once for all its elements. */
static void copy_planes(const void *context, char *const *data, const int64_t *strides, int64_t count) {
  const plane *p = context;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t row = 0; row < p->num_rows; row += TILE)
      for (int64_t column = 0; column < p->num_columns; column += TILE) {
        const int64_t last = row + TILE < p->num_rows ? row + TILE : p->num_rows;
        const int64_t width = column + TILE < p->num_columns ? TILE : p->num_columns - column;
        for (int64_t k = row; k < last; ++k) {
          char *const at[] = {data[0] + i * strides[0] + k * p->row_steps[0] + column * p->column_steps[0],
                              data[1] + i * strides[1] + k * p->row_steps[1] + column * p->column_steps[1]};
          copy_inner(&p->nbytes, at, p->column_steps, width);
        }
      }
}

/* Return the axis along which the source's elements are neighbours, if the last axis jumps over cache lines; else -1. */
static int32_t find_row_axis(const int64_t *source_strides, int32_t rank, const int64_t *shape, int64_t nbytes) {
  if (rank < 2 || shape[rank - 1] < TILE || source_strides[rank - 1] < CACHE_LINE) return -1;
  for (int32_t axis = 0; axis < rank - 1; ++axis)
    if (source_strides[axis] == nbytes && shape[axis] >= CACHE_LINE / nbytes) return axis;
  return -1;
}

void rt_copy_strided(char *target, const int64_t *target_strides, const char *source, const int64_t *source_strides,
                      int32_t rank, const int64_t *shape, int64_t nbytes) {
  char *const data[] = {target, (char *)(uintptr_t)source};
  const int64_t *strides[] = {target_strides, source_strides};
  const int32_t row_axis = find_row_axis(source_strides, rank, shape, nbytes);
  if (row_axis < 0) {
    rt_walk(2, data, strides, rank, shape, copy_inner, &nbytes);
    return;
  }
  const int32_t last = rank - 1;
  const plane transposed = {nbytes,
                            shape[row_axis],
                            shape[last],
                            {target_strides[row_axis], source_strides[row_axis]},
                            {target_strides[last], source_strides[last]}};
  int64_t outer_shape[RT_MAX_RANK], outer_strides[2][RT_MAX_RANK];
  int32_t outer_rank = 0;
  for (int32_t axis = 0; axis < last; ++axis) {
    if (axis == row_axis) continue;
    outer_shape[outer_rank] = shape[axis];
    outer_strides[0][outer_rank] = target_strides[axis];
    outer_strides[1][outer_rank++] = source_strides[axis];
  }
  strides[0] = outer_strides[0];
  strides[1] = outer_strides[1];
  rt_walk(2, data, strides, outer_rank, outer_shape, copy_planes, &transposed);
}
