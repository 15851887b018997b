#include "kernel_pool.h"

#include <math.h>

#include "kernel_windows.h"

enum { MAX, AVG, LP };
const int rt_max_pool = MAX, rt_avg_pool = AVG, rt_lp_pool = LP;

/* The default layouts, by rank, for ops without the attribute. */
static const char *const LAYOUTS[] = {"NCW", "NWC", "NCHW", "NHWC", "NCDHW", "NDHWC"};

static int32_t spatial_rank(const rt_call *call) { return rt_operand(call, 0)->rank - 2; }

/* Return the layout named by the attribute: the first or the second of the rank. */
static const char *layout_of(const rt_call *call, int has_layout) {
  const int32_t rank = spatial_rank(call);
  if (rank < 1 || rank > RT_SPATIAL) {
    rt_reject(call, "the operand has rank %d, expected 3 to 5", (int)rank + 2);
    return NULL;
  }
  return LAYOUTS[2 * (rank - 1) + (has_layout && rt_integer(call, "layout") == 1)];
}

/* The state of pooling the images of a call. */
typedef struct {
  rt_array image; /* in the order N, C, D, H, W */
  rt_windows windows[RT_SPATIAL];
  rt_type wide;
  const char *elements; /* of type `wide` */
  int kind;
  double exponent;         /* of LP */
  int64_t *counts[RT_SPATIAL]; /* of AVG: the taps of each window that count */
} pooling;

/* Combine the elements of a window; `at` are the numbers of the window along the axes. */
static double pool_reals(const pooling *p, const double *image, const int64_t *at) {
  const rt_windows *d = &p->windows[0], *h = &p->windows[1], *w = &p->windows[2];
  double total = p->kind == MAX ? -rt_greatest_real(p->image.type) : 0;
  for (int64_t i = 0, z = d->first[at[0]]; i < d->taps[at[0]]; ++i, z += d->dilation) {
    if (z < 0 || z >= d->size) continue;
    for (int64_t j = 0, y = h->first[at[1]]; j < h->taps[at[1]]; ++j, y += h->dilation) {
      if (y < 0 || y >= h->size) continue;
      const double *row = image + (z * h->size + y) * w->size;
      for (int64_t k = 0, x = w->first[at[2]]; k < w->taps[at[2]]; ++k, x += w->dilation) {
        if (x < 0 || x >= w->size) continue;
        if (p->kind == MAX)
          total = total >= row[x] || total != total ? total : row[x];
        else
          total += p->kind == LP ? pow(fabs(row[x]), p->exponent) : row[x];
      }
    }
  }
  if (p->kind == LP) return p->exponent == 2 ? sqrt(total) : pow(total, 1 / p->exponent);
  if (p->kind == MAX) return total;
  const double count = (double)(p->counts[0][at[0]] * p->counts[1][at[1]] * p->counts[2][at[2]]);
  return count > 1 ? total / count : total;
}

/* Return the largest integer of a window. uint64 is compared without a sign. */
static int64_t pool_integers(const pooling *p, const int64_t *image, const int64_t *at) {
  const rt_windows *d = &p->windows[0], *h = &p->windows[1], *w = &p->windows[2];
  int64_t best = rt_least_integer(p->image.type);
  for (int64_t i = 0, z = d->first[at[0]]; i < d->taps[at[0]]; ++i, z += d->dilation) {
    for (int64_t j = 0, y = h->first[at[1]]; j < h->taps[at[1]]; ++j, y += h->dilation) {
      if (z < 0 || z >= d->size || y < 0 || y >= h->size) continue;
      const int64_t *row = image + (z * h->size + y) * w->size;
      for (int64_t k = 0, x = w->first[at[2]]; k < w->taps[at[2]]; ++k, x += w->dilation) {
        if (x < 0 || x >= w->size) continue;
        if (p->wide == RT_T_U64 ? (uint64_t)row[x] > (uint64_t)best : row[x] > best) best = row[x];
      }
    }
  }
  return best;
}

static int32_t pool_images(rt_call *call, pooling *p, const char *layout) {
  const int64_t shape[] = {p->image.shape[0], p->image.shape[1], p->windows[0].count, p->windows[1].count,
                           p->windows[2].count};
  rt_array result;
  const int32_t status = rt_make_image(call, layout, shape, &result);
  if (status) return status;
  p->elements = rt_read_image(call, &p->image, p->wide);
  char *totals = rt_scratch(call, result.count, 8);
  if (!p->elements || !totals) return BYOC_RT_EXECUTION;
  const int64_t pixels = rt_num_elements(RT_SPATIAL, &p->image.shape[2]);
  int64_t number = 0;
  for (int64_t channel = 0; result.count && channel < shape[0] * shape[1]; ++channel) {
    const size_t first = (size_t)(channel * pixels) * 8;
    int64_t at[RT_SPATIAL];
    for (at[0] = 0; at[0] < shape[2]; ++at[0])
      for (at[1] = 0; at[1] < shape[3]; ++at[1])
        for (at[2] = 0; at[2] < shape[4]; ++at[2], ++number) {
          if (p->wide == RT_T_F64)
            ((double *)totals)[number] = pool_reals(p, (const double *)(p->elements + first), at);
          else
            ((int64_t *)totals)[number] = pool_integers(p, (const int64_t *)(p->elements + first), at);
        }
  }
  rt_write_image(&result, p->wide, totals);
  return 0;
}

/* Count the taps of each window: elements of the image, and with `counts_padding` of the padding; elements added by
 * `ceil_mode` beyond the padding never count. */
static int32_t count_taps(rt_call *call, pooling *p, int32_t axis, int64_t before, int64_t after, int counts_padding) {
  const rt_windows *windows = &p->windows[axis];
  p->counts[axis] = rt_scratch(call, windows->count, sizeof(int64_t));
  if (!p->counts[axis]) return BYOC_RT_MEMORY;
  const int64_t low = counts_padding ? -before : 0, high = windows->size + (counts_padding ? after : 0);
  for (int64_t i = 0; i < windows->count; ++i) {
    int64_t count = 0;
    for (int64_t t = 0; t < windows->taps[i]; ++t) {
      const int64_t at = windows->first[i] + t * windows->dilation;
      count += at >= low && at < high;
    }
    p->counts[axis][i] = count;
  }
  return 0;
}

/* Describe a single window of a missing axis. */
static int32_t slide_nowhere(rt_call *call, rt_windows *windows) {
  *windows = (rt_windows){1, 1, 1, rt_scratch(call, 1, 8), rt_scratch(call, 1, 8)};
  if (!windows->first || !windows->taps) return BYOC_RT_MEMORY;
  windows->first[0] = 0;
  windows->taps[0] = 1;
  return 0;
}

int32_t rt_run_pool(rt_call *call, const void *context) {
  pooling p = {.kind = *(const int *)context, .wide = rt_wide_type(rt_operand(call, 0)->type)};
  const char *layout = layout_of(call, 1);
  if (!layout) return BYOC_RT_EXECUTION;
  int32_t status = rt_order_image(call, rt_operand(call, 0), layout, "NC", &p.image);
  const int32_t rank = spatial_rank(call), missing = RT_SPATIAL - rank;
  const int counts_padding = p.kind == AVG && rt_integer(call, "count_include_pad");
  if (p.kind == LP) p.exponent = (double)rt_integer(call, "p");
  if (p.kind == LP && p.exponent < 1) return rt_reject(call, "attribute `p` is too small");
  for (int32_t axis = 0; axis < RT_SPATIAL && !status; ++axis) {
    int64_t before = 0, after = 0;
    if (axis < missing) {
      status = slide_nowhere(call, &p.windows[axis]);
    } else {
      const int64_t window = rt_axis_value(call, "pool_size", axis - missing, rank, 1, 1);
      if (window < 0) return BYOC_RT_EXECUTION;
      status = rt_slide(call, axis - missing, rank, p.image.shape[2 + axis], window,
                        rt_integer(call, "ceil_mode") != 0, &p.windows[axis]);
      if (!status) status = rt_padding(call, axis - missing, rank, &before, &after);
    }
    if (!status && p.kind == AVG) status = count_taps(call, &p, axis, before, after, counts_padding);
  }
  return status ? status : pool_images(call, &p, layout);
}

int32_t rt_run_adaptive_pool(rt_call *call, const void *context) {
  pooling p = {.kind = *(const int *)context, .wide = rt_wide_type(rt_operand(call, 0)->type)};
  const char *layout = layout_of(call, 1);
  if (!layout) return BYOC_RT_EXECUTION;
  int32_t status = rt_order_image(call, rt_operand(call, 0), layout, "NC", &p.image);
  const int32_t rank = spatial_rank(call), missing = RT_SPATIAL - rank;
  for (int32_t axis = 0; axis < RT_SPATIAL && !status; ++axis) {
    rt_windows *windows = &p.windows[axis];
    const int64_t size = p.image.shape[2 + axis];
    const int64_t count = axis < missing ? 1 : rt_axis_value(call, "output_size", axis - missing, rank, 1, 1);
    if (count < 0) return BYOC_RT_EXECUTION;
    if (!size || size > INT32_MAX)
      return rt_reject(call, "spatial axis %d is empty or too large", (int)(axis - missing));
    *windows = (rt_windows){size, count, 1, rt_scratch(call, count, 8), rt_scratch(call, count, 8)};
    if (!windows->first || !windows->taps) return BYOC_RT_MEMORY;
    for (int64_t i = 0; i < count; ++i) {
      windows->first[i] = i * size / count;
      windows->taps[i] = ((i + 1) * size + count - 1) / count - windows->first[i];
    }
    if (p.kind == AVG) status = count_taps(call, &p, axis, 0, 0, 0);
  }
  return status ? status : pool_images(call, &p, layout);
}

/* ---- Indices ----------------------------------------------------------------------------------------------------- */

/* Return whether an element is larger than the best so far; NaN is the largest. */
static int is_larger(const pooling *p, const char *image, int64_t element, int64_t best) {
  if (best < 0) return 1;
  if (p->wide == RT_T_F64) {
    const double value = ((const double *)image)[element], top = ((const double *)image)[best];
    return value > top || (value != value && top == top);
  }
  const int64_t value = ((const int64_t *)image)[element], top = ((const int64_t *)image)[best];
  return p->wide == RT_T_U64 ? (uint64_t)value > (uint64_t)top : value > top;
}

/* Return the index of the first largest element of a window in row-major order; -1 for a window without elements. */
static int64_t find_largest(const pooling *p, const char *image, const int64_t *at) {
  const rt_windows *d = &p->windows[0], *h = &p->windows[1], *w = &p->windows[2];
  int64_t best = -1;
  for (int64_t i = 0, z = d->first[at[0]]; i < d->taps[at[0]]; ++i, z += d->dilation)
    for (int64_t j = 0, y = h->first[at[1]]; j < h->taps[at[1]]; ++j, y += h->dilation)
      for (int64_t k = 0, x = w->first[at[2]]; k < w->taps[at[2]]; ++k, x += w->dilation) {
        if (z < 0 || z >= d->size || y < 0 || y >= h->size || x < 0 || x >= w->size) continue;
        const int64_t element = (z * h->size + y) * w->size + x;
        if (is_larger(p, image, element, best)) best = element;
      }
  return best;
}

/* Return the number of an element of a channel in column-major order. */
static int64_t column_major(const pooling *p, int64_t element) {
  const int64_t height = p->windows[1].size, width = p->windows[2].size, depth = p->windows[0].size;
  const int64_t x = element % width, y = element / width % height, z = element / width / height;
  return z + depth * (y + height * x);
}

int32_t rt_run_argmax_pool(rt_call *call, const void *context) {
  (void)context;
  pooling p = {.wide = rt_wide_type(rt_operand(call, 0)->type)};
  const char *layout = layout_of(call, 0);
  if (!layout) return BYOC_RT_EXECUTION;
  int32_t status = rt_order_image(call, rt_operand(call, 0), layout, "NC", &p.image);
  const int32_t rank = spatial_rank(call), missing = RT_SPATIAL - rank;
  for (int32_t axis = 0; axis < RT_SPATIAL && !status; ++axis) {
    const int64_t window = axis < missing ? 1 : rt_axis_value(call, "pool_size", axis - missing, rank, 1, 1);
    if (window < 0) return BYOC_RT_EXECUTION;
    status = axis < missing ? slide_nowhere(call, &p.windows[axis])
                            : rt_slide(call, axis - missing, rank, p.image.shape[2 + axis], window,
                                       rt_integer(call, "ceil_mode") != 0, &p.windows[axis]);
  }
  if (status) return status;
  const int64_t shape[] = {p.image.shape[0], p.image.shape[1], p.windows[0].count, p.windows[1].count,
                           p.windows[2].count};
  rt_array result;
  status = rt_make_image(call, layout, shape, &result);
  p.elements = status ? NULL : rt_read_image(call, &p.image, p.wide);
  if (!p.elements) return BYOC_RT_EXECUTION;
  const int by_columns = rt_integer(call, "column_major") != 0;
  const int64_t pixels = rt_num_elements(RT_SPATIAL, &p.image.shape[2]);
  int64_t *number = (int64_t *)result.data, at[RT_SPATIAL];
  for (int64_t channel = 0; result.count && channel < shape[0] * shape[1]; ++channel)
    for (at[0] = 0; at[0] < shape[2]; ++at[0])
      for (at[1] = 0; at[1] < shape[3]; ++at[1])
        for (at[2] = 0; at[2] < shape[4]; ++at[2]) {
          const int64_t found = find_largest(&p, p.elements + (size_t)(channel * pixels) * 8, at);
          *number++ = found < 0 ? -1 : channel * pixels + (by_columns ? column_major(&p, found) : found);
        }
  return 0;
}
