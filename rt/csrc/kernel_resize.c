/* Kernels of resizing. Positions and weights are computed in float64; elements are weighed in float64 and rounded
 * once. */
#include <math.h>
#include <string.h>

#include "kernel_image.h"

double rt_cubic_weight(double distance, double coefficient) {
  if (distance <= 1) return ((coefficient + 2) * distance - (coefficient + 3)) * distance * distance + 1;
  if (distance < 2) return ((distance - 5) * distance + 8) * distance * coefficient - 4 * coefficient;
  return 0;
}

int64_t rt_limited_index(double position, int64_t low, int64_t high) {
  if (!(position > (double)low)) return low;
  return position >= (double)high ? high : (int64_t)position;
}

enum { HALF_PIXEL, HALF_PIXEL_SYMMETRIC, HALF_PIXEL_OR_FIRST, HALF_PIXEL_FOR_NEAREST, ALIGN_CORNERS, ASYMMETRIC };
enum { NEAREST, LINEAR, CUBIC };

/* The resizing of an axis: index `index` of `size` samples an axis of `length` elements. */
typedef struct {
  int64_t size, length;
  double scale;
  int64_t coordinates, method, rounding;
  double coefficient;
  int excludes_outside, is_antialias;
} axis_resize;

static double sample_position(const axis_resize *r, int64_t index) {
  const double i = (double)index, size = (double)r->size, length = (double)r->length;
  switch (r->coordinates) {
    case ASYMMETRIC:
      return i / r->scale;
    case ALIGN_CORNERS:
      return i * (length - 1) / (size - 1 > 1 ? size - 1 : 1);
    case HALF_PIXEL_FOR_NEAREST:
      return (i + 0.5) / r->scale;
    case HALF_PIXEL_OR_FIRST:
      if (r->size == 1) return 0;
      return (i + 0.5) / r->scale - 0.5;
    case HALF_PIXEL_SYMMETRIC:
      return (i + 0.5) / r->scale - 0.5 + (length - size / r->scale) / 2;
    default:
      return (i + 0.5) / r->scale - 0.5;
  }
}

static int64_t nearest_element(const axis_resize *r, int64_t index) {
  double position = sample_position(r, index);
  switch (r->rounding) { /* half_down, half_up, floor, ceil */
    case 0:
      position = ceil(position - 0.5);
      break;
    case 1:
      position = floor(position + 0.5);
      break;
    case 2:
      position = floor(position);
      break;
    default:
      position = ceil(position);
  }
  return rt_limited_index(position, 0, r->length - 1);
}

/* Return the number of neighbours of each sample. */
static int64_t count_taps(const axis_resize *r) {
  if (!r->is_antialias) return r->method == LINEAR ? 2 : 4;
  const double shrinking = r->scale < 1 ? r->scale : 1;
  const double count = floor(2 * (r->method == LINEAR ? 1 : 2) / shrinking) + 1;
  return count < 1e15 ? (int64_t)count : -1;
}

/* Set the neighbours of a sample, as indices of the axis, and their weights. */
static void find_taps(const axis_resize *r, int64_t index, int64_t count, int64_t *taps, double *weights) {
  double position = sample_position(r, index), total = 0;
  const double shrinking = r->is_antialias && r->scale < 1 ? r->scale : 1;
  double first;
  if (r->is_antialias) {
    first = ceil(position - (r->method == LINEAR ? 1 : 2) / shrinking);
  } else if (r->method == LINEAR) {
    const double last = (double)(r->length - 1);
    position = position < 0 ? 0 : position > last ? last : position;
    first = floor(position);
  } else {
    first = floor(position) - 1;
  }
  for (int64_t t = 0; t < count; ++t) {
    const double at = first + (double)t, distance = fabs(at - position) * shrinking;
    if (r->method == LINEAR)
      weights[t] = distance < 1 ? 1 - distance : 0;
    else
      weights[t] = rt_cubic_weight(distance, r->coefficient);
    if (r->excludes_outside && (at < 0 || at >= (double)r->length)) weights[t] = 0;
    total += weights[t];
    taps[t] = rt_limited_index(at, 0, r->length - 1);
  }
  if (r->is_antialias || r->excludes_outside)
    for (int64_t t = 0; t < count; ++t) weights[t] /= total;
}

/* Replace the compact elements of an array of float64 by the weighed sums of neighbours along an axis. */
static int32_t weigh_axis(rt_call *call, rt_array *x, int32_t axis, const axis_resize *r) {
  const int64_t count = count_taps(r);
  if (count < 0) return rt_reject(call, "attribute `scales` has a value out of range");
  int64_t *taps = rt_scratch(call, count, sizeof *taps), shape[RT_MAX_RANK], outer, inner;
  double *weights = rt_scratch(call, count, sizeof *weights);
  rt_array result;
  memcpy(shape, x->shape, sizeof shape);
  shape[axis] = r->size;
  if (!taps || !weights) return BYOC_RT_MEMORY;
  if (!rt_describe(&result, NULL, RT_T_F64, x->rank, shape)) return rt_reject(call, "a result exceeds 64 bits");
  result.data = rt_scratch(call, result.count, sizeof(double));
  if (!result.data) return BYOC_RT_MEMORY;
  rt_split_axis(x, axis, &outer, &inner);
  for (int64_t i = 0; i < r->size; ++i) {
    find_taps(r, i, count, taps, weights);
    for (int64_t row = 0; row < outer; ++row) {
      double *target = (double *)result.data + (row * r->size + i) * inner;
      memset(target, 0, (size_t)inner * sizeof *target);
      for (int64_t t = 0; t < count; ++t) {
        const double *source = (const double *)x->data + (row * r->length + taps[t]) * inner;
        for (int64_t k = 0; k < inner; ++k) target[k] += source[k] * weights[t];
      }
    }
  }
  *x = result;
  return 0;
}

/* Replace a compact array by the nearest elements along an axis. */
static int32_t pick_axis(rt_call *call, rt_array *x, int32_t axis, const axis_resize *r) {
  int64_t shape[RT_MAX_RANK], outer, inner;
  rt_array result;
  memcpy(shape, x->shape, sizeof shape);
  shape[axis] = r->size;
  if (!rt_describe(&result, NULL, x->type, x->rank, shape)) return rt_reject(call, "a result exceeds 64 bits");
  result.data = rt_scratch(call, result.count, rt_type_nbytes(x->type));
  if (!result.data) return BYOC_RT_MEMORY;
  rt_split_axis(x, axis, &outer, &inner);
  const size_t nbytes = (size_t)(inner * rt_type_nbytes(x->type));
  for (int64_t i = 0; i < r->size; ++i) {
    const int64_t at = nearest_element(r, i);
    for (int64_t row = 0; row < outer; ++row)
      memcpy(result.data + (size_t)(row * r->size + i) * nbytes, x->data + (size_t)(row * r->length + at) * nbytes,
             nbytes);
  }
  *x = result;
  return 0;
}

/* Check the attributes, and set the shape of the result. */
static int32_t resized_shape(rt_call *call, const rt_array *x, int64_t *shape) {
  const rt_attr *axes = rt_attribute(call, "axes"), *sizes = rt_attribute(call, "sizes");
  const rt_attr *scales = rt_attribute(call, "scales");
  uint8_t is_named[RT_MAX_RANK];
  const int32_t status = rt_axes(call, "axes", x->rank, is_named);
  if (status) return status;
  if (sizes->count != axes->count || (!scales->is_none && scales->count != axes->count))
    return rt_reject(call, "the attributes have different numbers of values");
  memcpy(shape, x->shape, RT_MAX_RANK * sizeof *shape);
  for (int32_t i = 0; i < axes->count; ++i) {
    if (axes->integers[i] < 0) return rt_reject(call, "attribute `axes` counts from the end");
    if (sizes->integers[i] < 1 || sizes->integers[i] > INT32_MAX)
      return rt_reject(call, "attribute `sizes` has a value out of range; got %lld", (long long)sizes->integers[i]);
    if (!scales->is_none && !(scales->reals[i] > 0))
      return rt_reject(call, "attribute `scales` has a value out of range");
    shape[axes->integers[i]] = sizes->integers[i];
  }
  return 0;
}

static int32_t resize(rt_call *call, int64_t method, int64_t rounding, int is_antialias) {
  const rt_array *operand = rt_operand(call, 0);
  const rt_attr *axes = rt_attribute(call, "axes"), *sizes = rt_attribute(call, "sizes");
  const rt_attr *scales = rt_attribute(call, "scales");
  int64_t shape[RT_MAX_RANK];
  if (method != NEAREST && !rt_type_in(operand->type, RT_FLOATS))
    return rt_reject(call, "interpolates elements of type %s", rt_type_name(operand->type));
  int32_t status = resized_shape(call, operand, shape);
  if (status) return status;
  rt_array *result = rt_result(call, 0, operand->rank, shape);
  if (!result) return BYOC_RT_EXECUTION;
  if (!operand->count) {
    if (result->count) memset(result->data, 0, (size_t)(result->count * rt_type_nbytes(result->type)));
    return 0;
  }
  const rt_array *source = method == NEAREST ? rt_compact(call, 0) : rt_converted(call, 0, RT_T_F64);
  if (!source) return BYOC_RT_EXECUTION;
  rt_array x = *source;
  for (int32_t i = 0; i < axes->count && !status; ++i) {
    const int32_t axis = (int32_t)axes->integers[i];
    axis_resize r = {.size = sizes->integers[i],
                     .length = operand->shape[axis],
                     .coordinates = rt_integer(call, "coordinates"),
                     .method = method,
                     .rounding = rounding,
                     .coefficient = rt_real(call, "cubic_coefficient"),
                     .excludes_outside = method == CUBIC || is_antialias ? (int)rt_integer(call, "exclude_outside") : 0,
                     .is_antialias = is_antialias};
    r.scale = scales->is_none ? (double)r.size / (double)r.length : scales->reals[i];
    if (r.size == r.length && r.scale == 1) continue;
    status = method == NEAREST ? pick_axis(call, &x, axis, &r) : weigh_axis(call, &x, axis, &r);
  }
  if (!status) rt_copy_array(result, &x);
  return status;
}

int32_t rt_run_resize(rt_call *call, const void *context) {
  (void)context;
  return resize(call, rt_integer(call, "method"), rt_integer(call, "rounding"), 0);
}

int32_t rt_run_antialias_resize(rt_call *call, const void *context) {
  (void)context;
  return resize(call, rt_integer(call, "method") + LINEAR, 0, 1);
}
