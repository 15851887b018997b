#include "kernel_columns.h"

#include <math.h>
#include <string.h>

#include "kernel_windows.h"

/* Move on to the next index of a shape in row-major order. */
static void next_index(int32_t rank, const int64_t *shape, int64_t *index) {
  for (int32_t axis = rank - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
}

/* Return the row-major offset of a tap of a window in an image; -1 if outside. */
static int64_t tap_offset(int32_t rank, const rt_windows *windows, const int64_t *tap, const int64_t *window) {
  int64_t offset = 0;
  for (int32_t axis = 0; axis < rank; ++axis) {
    const int64_t at = windows[axis].first[window[axis]] + tap[axis] * windows[axis].dilation;
    if (at < 0 || at >= windows[axis].size) return -1;
    offset = offset * windows[axis].size + at;
  }
  return offset;
}

int32_t rt_run_col2im(rt_call *call, const void *context) {
  (void)context;
  const rt_array *operand = rt_operand(call, 0);
  const rt_attr *size = rt_attribute(call, "image_size");
  const int32_t rank = size->count;
  const rt_type wide = rt_wide_type(operand->type);
  if (rank < 1 || operand->rank != 2 + 2 * rank)
    return rt_reject(call, "operand `x` has rank %d, expected %d", (int)operand->rank, (int)(2 + 2 * rank));
  rt_windows windows[RT_MAX_RANK];
  int64_t expected[RT_MAX_RANK], shape[RT_MAX_RANK];
  memcpy(expected, operand->shape, sizeof expected);
  memcpy(shape, operand->shape, 2 * sizeof *shape);
  for (int32_t axis = 0; axis < rank; ++axis) {
    if (size->integers[axis] < 0) return rt_reject(call, "attribute `image_size` has a negative size");
    const int32_t status =
        rt_slide(call, axis, rank, size->integers[axis], operand->shape[2 + axis], 0, &windows[axis]);
    if (status) return status;
    expected[2 + rank + axis] = windows[axis].count;
    shape[2 + axis] = size->integers[axis];
  }
  const int32_t status = rt_check_shape(call, "x", operand, operand->rank, expected);
  if (status) return status;
  const rt_array *x = rt_converted(call, 0, wide);
  rt_array *result = rt_result(call, 0, 2 + rank, shape);
  char *sums = result && x ? rt_open(call, result, wide) : NULL;
  if (!sums) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  memset(sums, 0, (size_t)result->count * 8);
  const int64_t taps = rt_num_elements(rank, expected + 2), counts = rt_num_elements(rank, expected + 2 + rank);
  const int64_t pixels = rt_num_elements(rank, shape + 2);
  int64_t tap[RT_MAX_RANK] = {0}, window[RT_MAX_RANK] = {0};
  for (int64_t i = 0; i < taps; ++i, next_index(rank, expected + 2, tap)) {
    for (int64_t j = 0; j < counts; ++j, next_index(rank, expected + 2 + rank, window)) {
      const int64_t offset = tap_offset(rank, windows, tap, window);
      for (int64_t channel = 0; offset >= 0 && channel < shape[0] * shape[1]; ++channel) {
        const size_t target = (size_t)(channel * pixels + offset), source = (size_t)((channel * taps + i) * counts + j);
        if (wide == RT_T_F64)
          ((double *)sums)[target] += ((const double *)x->data)[source];
        else
          ((uint64_t *)sums)[target] += ((const uint64_t *)x->data)[source];
      }
    }
  }
  rt_close(result, wide, sums);
  return 0;
}

/* ---- Deformable windows ------------------------------------------------------------------------------------------ */

typedef struct {
  int32_t rank;
  const int64_t *spatial; /* sizes of the image */
  rt_windows windows[RT_MAX_RANK];
  int64_t counts[RT_MAX_RANK], window[RT_MAX_RANK];
  int64_t taps, columns, pixels;
} deformation;

/* Set the neighbours of a position of a channel: row-major offsets and weights; a weight of 0 stands for no element.
 * Return their number. */
static int find_neighbours(const deformation *d, const double *positions, int64_t *offsets, double *weights) {
  const int count = 1 << d->rank;
  for (int i = 0; i < count; ++i) {
    offsets[i] = 0;
    weights[i] = 1;
    for (int32_t axis = 0; axis < d->rank; ++axis) {
      const double first = floor(positions[axis]), share = positions[axis] - first;
      const int is_second = i >> (d->rank - 1 - axis) & 1;
      const double at = first + is_second;
      const int is_inside = at >= 0 && at < (double)d->spatial[axis]; /* NaN is outside */
      offsets[i] = offsets[i] * d->spatial[axis] + (is_inside ? (int64_t)at : 0);
      weights[i] *= is_inside ? (is_second ? share : 1 - share) : 0;
    }
  }
  return count;
}

static int32_t read_deformation(rt_call *call, const rt_array *x, const rt_array *offsets, deformation *d) {
  const rt_attr *window = rt_attribute(call, "window");
  d->rank = window->count;
  if (d->rank < 1 || d->rank > 8 || x->rank != 2 + d->rank || offsets->rank != 4 + d->rank)
    return rt_reject(call, "an operand has the wrong rank");
  d->spatial = x->shape + 2;
  d->taps = 1;
  int64_t expected[RT_MAX_RANK];
  for (int32_t axis = 0; axis < d->rank; ++axis) {
    const int32_t status =
        rt_slide(call, axis, d->rank, d->spatial[axis], window->integers[axis], 0, &d->windows[axis]);
    if (status) return status;
    d->window[axis] = window->integers[axis];
    d->taps = rt_product(d->taps, window->integers[axis]);
    d->counts[axis] = expected[4 + axis] = d->windows[axis].count;
  }
  expected[0] = x->shape[0];
  expected[1] = offsets->shape[1];
  expected[2] = d->taps;
  expected[3] = d->rank;
  d->columns = rt_num_elements(d->rank, d->counts);
  d->pixels = rt_num_elements(d->rank, d->spatial);
  if (offsets->shape[1] < 1 || x->shape[1] % offsets->shape[1])
    return rt_reject(call, "the groups do not divide the channels; got %lld", (long long)offsets->shape[1]);
  return rt_check_shape(call, "offsets", offsets, offsets->rank, expected);
}

int32_t rt_run_deformable_im2col(rt_call *call, const void *context) {
  (void)context;
  const rt_array *x = rt_converted(call, 0, RT_T_F64), *offsets = rt_converted(call, 1, RT_T_F64);
  deformation d;
  if (!x || !offsets) return BYOC_RT_EXECUTION;
  const int32_t status = read_deformation(call, x, offsets, &d);
  if (status) return status;
  int64_t shape[RT_MAX_RANK] = {x->shape[0], x->shape[1], d.taps};
  memcpy(shape + 3, d.counts, (size_t)d.rank * sizeof *shape);
  rt_array *result = rt_result(call, 0, 3 + d.rank, shape);
  double *samples = result ? (double *)rt_open(call, result, RT_T_F64) : NULL;
  if (!samples) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  memset(samples, 0, (size_t)result->count * sizeof *samples);
  const int64_t groups = offsets->shape[1], per_group = x->shape[1] / groups, samples_of_channel = d.taps * d.columns;
  int64_t at[256];
  double weights[256], positions[8];
  for (int64_t i = 0; i < x->shape[0] * groups; ++i) {
    int64_t tap[RT_MAX_RANK] = {0}, window[RT_MAX_RANK] = {0};
    for (int64_t t = 0; t < d.taps; ++t, next_index(d.rank, d.window, tap)) {
      for (int64_t j = 0; j < d.columns; ++j, next_index(d.rank, d.counts, window)) {
        for (int32_t axis = 0; axis < d.rank; ++axis) {
          const double moved = ((const double *)offsets->data)[((i * d.taps + t) * d.rank + axis) * d.columns + j];
          positions[axis] =
              moved + (double)(d.windows[axis].first[window[axis]] + tap[axis] * d.windows[axis].dilation);
        }
        const int count = find_neighbours(&d, positions, at, weights);
        for (int64_t channel = i * per_group; channel < (i + 1) * per_group; ++channel)
          for (int k = 0; k < count; ++k)
            if (weights[k] != 0)
              samples[channel * samples_of_channel + t * d.columns + j] +=
                  ((const double *)x->data)[channel * d.pixels + at[k]] * weights[k];
      }
    }
  }
  rt_close(result, RT_T_F64, (const char *)samples);
  return 0;
}
