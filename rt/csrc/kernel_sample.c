/* The kernel of sampling images by a grid. */
#include <math.h>
#include <string.h>

#include "kernel_image.h"

enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };
enum { MAX_TAPS = 4 };

/* The neighbours of a sample along an axis. */
typedef struct {
  int count;
  int64_t at[MAX_TAPS];
  double weights[MAX_TAPS];
  int is_inside[MAX_TAPS];
} axis_taps;

typedef struct {
  int64_t method, border;
  int aligns_corners;
} sampling;

/* Reflect a position at two ends until it lies between. */
static double reflected(double position, double low, double high) {
  const double span = high - low;
  if (span <= 0) return low;
  double offset = fmod(position - low, 2 * span);
  if (offset < 0) offset += 2 * span;
  return (2 * span - offset < offset ? 2 * span - offset : offset) + low;
}

static void find_taps(const sampling *s, double coordinate, int64_t length, axis_taps *taps) {
  const double low = s->aligns_corners ? 0 : -0.5, high = (double)length - (s->aligns_corners ? 1 : 0.5);
  const double position = (coordinate + 1) / 2 * (high - low) + low;
  const double first = floor(position), share = position - first;
  taps->count = s->method == NEAREST ? 1 : s->method == LINEAR ? 2 : 4;
  for (int t = 0; t < taps->count; ++t) {
    double index = first + t;
    if (s->method == NEAREST) {
      index = rint(position);
      taps->weights[t] = 1;
    } else if (s->method == LINEAR) {
      taps->weights[t] = t ? share : 1 - share;
    } else {
      index = first + t - 1;
      const double distance = fabs(share - (t - 1));
      taps->weights[t] = distance < 2 ? rt_cubic_weight(distance, -0.75) : 0;
      if (distance != distance) taps->weights[t] = distance;
    }
    taps->is_inside[t] = s->border != ZEROS || (index >= 0 && index < (double)length);
    taps->at[t] = rt_limited_index(s->border == REFLECTION ? rint(reflected(index, low, high)) : index, 0, length - 1);
    if (index != index) taps->at[t] = 0; /* NaN counts as 0 */
  }
}

/* An image and the elements of its channels, `pixels` apart. */
typedef struct {
  const char *elements;
  const int64_t *shape; /* of the spatial axes */
  int32_t rank;
  int64_t pixels, channels;
} image;

/* Set the offset and the weight of a combination of neighbours, one along each axis; return whether all are inside. */
static int combine_taps(const image *x, const axis_taps *taps, const int *chosen, int64_t *offset, double *weight) {
  int is_inside = 1;
  *offset = 0;
  *weight = 1;
  for (int32_t axis = 0; axis < x->rank; ++axis) {
    *offset = *offset * x->shape[axis] + taps[axis].at[chosen[axis]];
    *weight *= taps[axis].weights[chosen[axis]];
    is_inside &= taps[axis].is_inside[chosen[axis]];
  }
  return is_inside;
}

/* Move on to the next combination; return 0 after the last. */
static int next_combination(const axis_taps *taps, int32_t rank, int *chosen) {
  for (int32_t axis = rank - 1; axis >= 0; --axis) {
    if (++chosen[axis] < taps[axis].count) return 1;
    chosen[axis] = 0;
  }
  return 0;
}

/* Store the samples of all channels at a position, `step` elements apart. */
static void sample_reals(const image *x, const axis_taps *taps, double *target, int64_t step) {
  int chosen[RT_MAX_RANK] = {0};
  for (int64_t channel = 0; channel < x->channels; ++channel) target[channel * step] = 0;
  do {
    int64_t offset;
    double weight;
    const int is_inside = combine_taps(x, taps, chosen, &offset, &weight);
    for (int64_t channel = 0; channel < x->channels; ++channel) {
      const double value = ((const double *)x->elements)[channel * x->pixels + offset];
      target[channel * step] += (is_inside ? value : 0) * weight;
    }
  } while (next_combination(taps, x->rank, chosen));
}

static void sample_nearest(const image *x, const axis_taps *taps, char *target, int64_t step, size_t nbytes) {
  const int chosen[RT_MAX_RANK] = {0};
  int64_t offset;
  double weight;
  const int is_inside = combine_taps(x, taps, chosen, &offset, &weight);
  for (int64_t channel = 0; channel < x->channels; ++channel) {
    char *at = target + (size_t)(channel * step) * nbytes;
    if (is_inside)
      memcpy(at, x->elements + (size_t)(channel * x->pixels + offset) * nbytes, nbytes);
    else
      memset(at, 0, nbytes);
  }
}

static int32_t check_grid(rt_call *call, const rt_array *x, const rt_array *grid, int64_t *shape) {
  const int32_t rank = x->rank - 2;
  if (rank < 1) return rt_reject(call, "operand `x` has no spatial axes");
  if (grid->rank != x->rank || grid->shape[0] != x->shape[0] || grid->shape[grid->rank - 1] != rank)
    return rt_reject(call, "operand `grid` has the wrong shape");
  shape[0] = x->shape[0];
  shape[1] = x->shape[1];
  for (int32_t axis = 0; axis < rank; ++axis) shape[2 + axis] = grid->shape[1 + axis];
  return 0;
}

int32_t rt_run_grid_sample(rt_call *call, const void *context) {
  (void)context;
  const sampling s = {rt_integer(call, "method"), rt_integer(call, "border"), rt_integer(call, "align_corners") != 0};
  const rt_type own = rt_operand(call, 0)->type, type = s.method == NEAREST ? own : RT_T_F64;
  if (s.method != NEAREST && !rt_type_in(own, RT_FLOATS))
    return rt_reject(call, "interpolates elements of type %s", rt_type_name(own));
  const rt_array *x = rt_converted(call, 0, type), *grid = rt_converted(call, 1, RT_T_F64);
  int64_t shape[RT_MAX_RANK];
  if (!x || !grid || check_grid(call, x, grid, shape)) return BYOC_RT_EXECUTION;
  rt_array *result = rt_result(call, 0, x->rank, shape);
  char *samples = result ? rt_open(call, result, type) : NULL;
  if (!samples) return BYOC_RT_EXECUTION;
  if (!result->count) return 0;
  if (!x->count) return rt_reject(call, "operand `x` has no element to sample");
  const int32_t rank = x->rank - 2;
  image source = {x->data, x->shape + 2, rank, rt_num_elements(rank, x->shape + 2), x->shape[1]};
  const int64_t points = rt_num_elements(rank, shape + 2);
  const size_t nbytes = (size_t)rt_type_nbytes(type);
  axis_taps *taps = rt_scratch(call, rank, sizeof *taps);
  if (!taps) return BYOC_RT_MEMORY;
  const double *coordinates = (const double *)grid->data;
  for (int64_t i = 0; i < shape[0]; ++i) {
    source.elements = x->data + (size_t)(i * source.channels * source.pixels) * nbytes;
    for (int64_t point = 0; point < points; ++point, coordinates += rank) {
      for (int32_t axis = 0; axis < rank; ++axis)
        find_taps(&s, coordinates[rank - 1 - axis], source.shape[axis], &taps[axis]);
      char *target = samples + (size_t)(i * source.channels * points + point) * nbytes;
      if (s.method == NEAREST)
        sample_nearest(&source, taps, target, points, nbytes);
      else
        sample_reals(&source, taps, (double *)target, points);
    }
  }
  rt_close(result, type, samples);
  return 0;
}
