/* Kernels of the pooling of regions of images. */
#include <math.h>
#include <string.h>

#include "kernel_image.h"

enum { MOST_BINS = 1 << 20, MOST_SAMPLES = 1 << 14 }; /* along an axis; samples of a bin */
static const double FARTHEST = 1099511627776.0; /* the most distant corner of a region, in elements: 2**40 */

/* The operands of a call: images (N, C, H, W) as float64, regions, the image of each region, and the bins of a
 * region. */
typedef struct {
  const rt_array *x, *rois;
  const int64_t *batches;
  int64_t num_regions, size[2];
} regions;

static int32_t read_regions(rt_call *call, regions *r) {
  const rt_attr *size = rt_attribute(call, "size");
  r->x = rt_converted(call, 0, RT_T_F64);
  r->rois = rt_converted(call, 1, RT_T_F64);
  const rt_array *batches = rt_integers(call, 2);
  if (!r->x || !r->rois || !batches) return BYOC_RT_EXECUTION;
  if (r->x->rank != 4) return rt_reject(call, "operand `x` is no batch of images (N, C, H, W)");
  r->num_regions = r->rois->rank ? r->rois->shape[0] : 0;
  const int64_t shape[] = {r->num_regions, 4};
  int32_t status = rt_check_shape(call, "rois", r->rois, 2, shape);
  if (!status) status = rt_check_shape(call, "batches", batches, 1, shape);
  if (status) return status;
  if (size->count != 2 || size->integers[0] < 1 || size->integers[1] < 1 || size->integers[0] > MOST_BINS ||
      size->integers[1] > MOST_BINS)
    return rt_reject(call, "attribute `size` is no height and width");
  r->size[0] = size->integers[0];
  r->size[1] = size->integers[1];
  r->batches = (const int64_t *)batches->data;
  for (int64_t i = 0; i < r->num_regions; ++i)
    if (r->batches[i] < 0 || r->batches[i] >= r->x->shape[0])
      return rt_reject(call, "has a region in a missing image; got %lld, expected < %lld", (long long)r->batches[i],
                       (long long)r->x->shape[0]);
  return 0;
}

static double *make_result(rt_call *call, const regions *r, rt_array **result) {
  const int64_t shape[] = {r->num_regions, r->x->shape[1], r->size[0], r->size[1]};
  *result = rt_result(call, 0, 4, shape);
  double *elements = *result ? (double *)rt_open(call, *result, RT_T_F64) : NULL;
  if (elements) memset(elements, 0, (size_t)(*result)->count * sizeof *elements);
  return elements;
}

/* ---- Alignment --------------------------------------------------------------------------------------------------- */

/* The samples of a region along an axis: both neighbours of each sample and their weights; samples of a bin
 * together. */
typedef struct {
  int64_t count;    /* of a bin */
  int64_t capacity; /* of the arrays */
  int64_t *at[2];
  double *weights[2];
} samples;

static int32_t find_samples(rt_call *call, double start, double span, int64_t bins, int64_t count, int64_t length,
                            samples *s) {
  if (count <= 0) {
    const double number = ceil((span != span ? 0 : span) / (double)bins);
    if (number > MOST_SAMPLES) return rt_reject(call, "has a region far larger than an image; got %g", span);
    count = number > 1 ? (int64_t)number : 1;
  }
  if (count > MOST_SAMPLES) return rt_reject(call, "has a region far larger than an image; got %g", span);
  s->count = count;
  for (int k = 0; k < 2 && s->capacity < bins * count; ++k) {
    s->at[k] = rt_scratch(call, bins * count, sizeof(int64_t));
    s->weights[k] = rt_scratch(call, bins * count, sizeof(double));
    if (!s->at[k] || !s->weights[k]) return BYOC_RT_MEMORY;
    if (k) s->capacity = bins * count;
  }
  const double step = span / (double)bins;
  for (int64_t i = 0; i < bins * count; ++i) {
    const double position =
        start + (double)(i / count) * step + ((double)(i % count) + 0.5) * (step / (double)count);
    const int is_outside = !(position >= -1 && position <= (double)length); /* NaN is outside */
    const double last = (double)(length - 1);
    const double inside = !(position > 0) ? 0 : position > last ? last : position;
    s->at[0][i] = (int64_t)inside;
    s->at[1][i] = s->at[0][i] + 1 < length ? s->at[0][i] + 1 : length - 1;
    s->weights[1][i] = is_outside ? 0 : inside - (double)s->at[0][i];
    s->weights[0][i] = is_outside ? 0 : 1 - (inside - (double)s->at[0][i]);
  }
  return 0;
}

/* Return the sample of a channel at samples `i` and `j` of the axes: the sum, or the largest, of the weighed
 * neighbours. A neighbour without weight counts as 0, whatever its value. */
static double take_sample(const double *channel, int64_t width, const samples *rows, const samples *columns, int64_t i,
                          int64_t j, int is_max) {
  double total = 0;
  for (int k = 0; k < 4; ++k) {
    const double value = channel[rows->at[k / 2][i] * width + columns->at[k % 2][j]];
    const double weight = rows->weights[k / 2][i] * columns->weights[k % 2][j];
    const double part = weight == 0 ? 0 : value * weight;
    if (!is_max)
      total += part;
    else if (!k || !(total >= part || total != total))
      total = part;
  }
  return total;
}

static double pool_bin(const double *channel, int64_t width, const samples *rows, const samples *columns, int64_t row,
                       int64_t column, int is_max) {
  double total = 0;
  for (int64_t i = 0; i < rows->count; ++i) {
    for (int64_t j = 0; j < columns->count; ++j) {
      const double value =
          take_sample(channel, width, rows, columns, row * rows->count + i, column * columns->count + j, is_max);
      if (!is_max)
        total += value;
      else if ((!i && !j) || !(total >= value || total != total))
        total = value;
    }
  }
  return is_max ? total : total / (double)(rows->count * columns->count);
}

int32_t rt_run_roi_align(rt_call *call, const void *context) {
  (void)context;
  regions r;
  rt_array *result;
  int32_t status = read_regions(call, &r);
  double *target = status ? NULL : make_result(call, &r, &result);
  if (!target) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  if (!r.x->count) return rt_reject(call, "operand `x` has no element to sample");
  const double scale = rt_real(call, "scale");
  const int64_t per_bin = rt_integer(call, "samples");
  const int is_max = rt_integer(call, "method") == 1, has_half_pixel = rt_integer(call, "half_pixel") != 0;
  const int64_t channels = r.x->shape[1], height = r.x->shape[2], width = r.x->shape[3];
  const char *memory = (const char *)target;
  samples rows = {0}, columns = {0};
  for (int64_t region = 0; region < r.num_regions; ++region) {
    double corners[4], spans[2];
    for (int k = 0; k < 4; ++k)
      corners[k] = ((const double *)r.rois->data)[4 * region + k] * scale - (has_half_pixel ? 0.5 : 0);
    for (int axis = 0; axis < 2; ++axis) { /* rows, then columns */
      spans[axis] = corners[3 - axis] - corners[1 - axis];
      if (!has_half_pixel && spans[axis] < 1) spans[axis] = 1; /* at least a pixel */
    }
    status = find_samples(call, corners[1], spans[0], r.size[0], per_bin, height, &rows);
    if (!status) status = find_samples(call, corners[0], spans[1], r.size[1], per_bin, width, &columns);
    if (status) return status;
    for (int64_t channel = 0; channel < channels; ++channel) {
      const double *elements =
          (const double *)r.x->data + (r.batches[region] * channels + channel) * height * width;
      for (int64_t row = 0; row < r.size[0]; ++row)
        for (int64_t column = 0; column < r.size[1]; ++column)
          *target++ = pool_bin(elements, width, &rows, &columns, row, column, is_max);
    }
  }
  rt_close(result, RT_T_F64, memory);
  return 0;
}

/* ---- Maximum ----------------------------------------------------------------------------------------------------- */

/* Return a corner as an element: halves away from zero, in the type of the regions. */
static int64_t corner_of(double corner, double scale, rt_type work) {
  const double scaled = rt_rounded(work, corner * rt_rounded(work, scale));
  double rounded = trunc(rt_rounded(work, scaled + copysign(0.5, scaled)));
  if (rounded != rounded) rounded = 0;
  return (int64_t)(rounded < -FARTHEST ? -FARTHEST : rounded > FARTHEST ? FARTHEST : rounded);
}

/* Set the elements of a bin of a span of an axis, cut at the ends of the axis. */
static void find_bin(int64_t first, int64_t span, int64_t bin, int64_t bins, int64_t size, int64_t *start,
                     int64_t *stop) {
  *start = first + bin * span / bins;
  *stop = first + ((bin + 1) * span + bins - 1) / bins;
  *start = *start < 0 ? 0 : *start > size ? size : *start;
  *stop = *stop < 0 ? 0 : *stop > size ? size : *stop;
}

int32_t rt_run_roi_max_pool(rt_call *call, const void *context) {
  (void)context;
  regions r;
  rt_array *result;
  const int32_t status = read_regions(call, &r);
  double *target = status ? NULL : make_result(call, &r, &result);
  if (!target) return BYOC_RT_EXECUTION;
  const rt_type work = rt_working_type(rt_operand(call, 1)->type);
  const double scale = rt_real(call, "scale");
  const int64_t channels = r.x->shape[1], height = r.x->shape[2], width = r.x->shape[3];
  const char *memory = (const char *)target;
  for (int64_t region = 0; region < r.num_regions && r.x->count; ++region) {
    int64_t corners[4], spans[2];
    for (int k = 0; k < 4; ++k)
      corners[k] = corner_of(((const double *)r.rois->data)[4 * region + k], scale, work);
    for (int axis = 0; axis < 2; ++axis) {
      spans[axis] = corners[3 - axis] - corners[1 - axis] + 1;
      if (spans[axis] < 1) spans[axis] = 1;
    }
    for (int64_t channel = 0; channel < channels; ++channel) {
      const double *elements =
          (const double *)r.x->data + (r.batches[region] * channels + channel) * height * width;
      for (int64_t row = 0; row < r.size[0]; ++row) {
        for (int64_t column = 0; column < r.size[1]; ++column, ++target) {
          int64_t top, bottom, left, right;
          find_bin(corners[1], spans[0], row, r.size[0], height, &top, &bottom);
          find_bin(corners[0], spans[1], column, r.size[1], width, &left, &right);
          if (top >= bottom || left >= right) continue;
          double best = elements[top * width + left];
          for (int64_t y = top; y < bottom; ++y)
            for (int64_t x = left; x < right; ++x) {
              const double value = elements[y * width + x];
              if (!(best >= value || best != best)) best = value;
            }
          *target = best;
        }
      }
    }
  }
  rt_close(result, RT_T_F64, memory);
  return 0;
}
