#include "kernel_conv.h"

#include <string.h>

#include "kernel_windows.h"

static const char *const DATA_LAYOUTS[][2] = {{"NCW", "NWC"}, {"NCHW", "NHWC"}, {"NCDHW", "NDHWC"}};
/* In the order of the choices of the attribute; the transposed ops begin with the second. */
static const char *const KERNEL_LAYOUTS[][3] = {
    {"OIW", "IOW", "WIO"}, {"OIHW", "IOHW", "HWIO"}, {"OIDHW", "IODHW", "DHWIO"}};

/* A convolution of an image (N, C, D, H, W) to an image (N, O, ...) by filters. The filters have the axes of the
 * output channels and input channels of a group, and D, H, W. A tap of the filter at element t of an axis joins
 * element i of the small image (the result of a convolution, the operand of a transposed convolution) with element
 * first[i] + t * dilation of the large image. */
typedef struct {
  rt_type type;
  int64_t batch, groups, in_channels, out_channels; /* channels of a group */
  int64_t window[RT_SPATIAL];
  rt_windows windows[RT_SPATIAL]; /* size: of the large image, count: of the small image */
  int is_transposed;
} convolution;

/* Add the products of a row of the small image with a tap: to the row (`is_sum`), or to the large image. */
#define ADD_ROW(T)                                                                                   \
  {                                                                                                  \
    T *small_row = (T *)small + small_offset, *large_row = (T *)large + large_offset;                \
    const T factor = ((const T *)filters)[tap];                                                      \
    if (c->is_transposed)                                                                            \
      for (int64_t i = first; i < last; ++i) large_row[i * step] = large_row[i * step] + factor * small_row[i]; \
    else                                                                                             \
      for (int64_t i = first; i < last; ++i) small_row[i] = small_row[i] + factor * large_row[i * step]; \
    return;                                                                                          \
  }

static void add_row(const convolution *c, char *small, int64_t small_offset, char *large, int64_t large_offset,
                    const char *filters, int64_t tap, int64_t first, int64_t last, int64_t step) {
  if (c->type == RT_T_F32) ADD_ROW(float)
  if (c->type == RT_T_F64) ADD_ROW(double)
  ADD_ROW(uint64_t)
}

/* Add the products of a plane of the filters with a pair of channels; offsets are in elements. */
static void add_plane(const convolution *c, char *small, int64_t small_offset, char *large, int64_t large_offset,
                      const char *filters, int64_t tap) {
  const rt_windows *d = &c->windows[0], *h = &c->windows[1], *w = &c->windows[2];
  const int64_t step = w->count > 1 ? w->first[1] - w->first[0] : 1;
  for (int64_t i = 0; i < c->window[0]; ++i)
    for (int64_t j = 0; j < c->window[1]; ++j)
      for (int64_t k = 0; k < c->window[2]; ++k, ++tap) {
        const int64_t shift = w->first[0] + k * w->dilation; /* of the first window's tap */
        /* The windows whose tap lies inside the row. */
        const int64_t first = shift < 0 ? (-shift + step - 1) / step : 0;
        int64_t last = shift < w->size ? (w->size - 1 - shift) / step + 1 : 0;
        if (last > w->count) last = w->count;
        for (int64_t z = 0; z < d->count; ++z) {
          const int64_t large_z = d->first[z] + i * d->dilation;
          if (large_z < 0 || large_z >= d->size) continue;
          for (int64_t y = 0; y < h->count; ++y) {
            const int64_t large_y = h->first[y] + j * h->dilation;
            if (large_y < 0 || large_y >= h->size || first >= last) continue;
            add_row(c, small, small_offset + (z * h->count + y) * w->count, large,
                    large_offset + (large_z * h->size + large_y) * w->size + shift, filters, tap, first, last, step);
          }
        }
      }
}

static void convolve(const convolution *c, char *small, char *large, const char *filters) {
  const int64_t taps = c->window[0] * c->window[1] * c->window[2];
  const int64_t small_size = c->windows[0].count * c->windows[1].count * c->windows[2].count;
  const int64_t large_size = c->windows[0].size * c->windows[1].size * c->windows[2].size;
  for (int64_t image = 0; image < c->batch; ++image)
    for (int64_t group = 0; group < c->groups; ++group)
      for (int64_t out = 0; out < c->out_channels; ++out)
        for (int64_t in = 0; in < c->in_channels; ++in) {
          const int64_t out_channel = (image * c->groups + group) * c->out_channels + out;
          const int64_t in_channel = (image * c->groups + group) * c->in_channels + in;
          const int64_t small_channel = c->is_transposed ? in_channel : out_channel;
          const int64_t large_channel = c->is_transposed ? out_channel : in_channel;
          /* Filters are ordered by group, output channel of the group, input channel of the group. */
          const int64_t tap = ((group * c->out_channels + out) * c->in_channels + in) * taps;
          add_plane(c, small, small_channel * small_size, large, large_channel * large_size, filters, tap);
        }
}

/* The image, the filters and the layouts of a call. */
typedef struct {
  rt_array image, filters;
  const char *layout;
  int32_t rank, missing; /* spatial axes, and missing spatial axes */
} operands;

static int32_t read_operands(rt_call *call, int is_transposed, operands *o) {
  o->rank = rt_operand(call, 0)->rank - 2;
  o->missing = RT_SPATIAL - o->rank;
  if (o->rank < 1 || o->rank > RT_SPATIAL)
    return rt_reject(call, "operand `x` has rank %d, expected 3 to 5", (int)o->rank + 2);
  static const int of_transposed[] = {1, 0, 2};
  const int64_t choice = rt_integer(call, "kernel_layout");
  const char *const *layouts = KERNEL_LAYOUTS[o->rank - 1];
  o->layout = DATA_LAYOUTS[o->rank - 1][rt_integer(call, "data_layout")];
  const char *layout = layouts[is_transposed ? of_transposed[choice] : choice];
  const int32_t status = rt_order_image(call, rt_operand(call, 0), o->layout, "NC", &o->image);
  return status ? status : rt_order_image(call, rt_operand(call, 1), layout, "OI", &o->filters);
}

static int32_t check_channels(const rt_call *call, const operands *o, int64_t filter_channels, int64_t channels,
                              int64_t out_channels, int64_t groups) {
  if (groups < 1 || o->image.shape[1] % groups || out_channels % groups)
    return rt_reject(call, "the channels are not divisible into %lld groups", (long long)groups);
  if (filter_channels != channels)
    return rt_reject(call, "the filters have another number of input channels; got %lld, expected %lld",
                     (long long)filter_channels, (long long)channels);
  return 0;
}

static int32_t single_window(rt_call *call, rt_windows *windows) {
  *windows = (rt_windows){1, 1, 1, rt_scratch(call, 1, 8), NULL};
  if (!windows->first) return BYOC_RT_MEMORY;
  windows->first[0] = 0;
  return 0;
}

int32_t rt_run_conv(rt_call *call, const void *context) {
  (void)context;
  operands o;
  int32_t status = read_operands(call, 0, &o);
  if (status) return status;
  const int64_t groups = rt_integer(call, "groups"), out_channels = o.filters.shape[0];
  status = check_channels(call, &o, o.filters.shape[1], groups ? o.image.shape[1] / groups : 0, out_channels, groups);
  convolution c = {.type = rt_working_type(o.image.type), .batch = o.image.shape[0], .groups = groups};
  for (int32_t axis = 0; axis < RT_SPATIAL && !status; ++axis) {
    c.window[axis] = o.filters.shape[2 + axis];
    status = axis < o.missing ? single_window(call, &c.windows[axis])
                              : rt_slide(call, axis - o.missing, o.rank, o.image.shape[2 + axis], c.window[axis], 0,
                                         &c.windows[axis]);
  }
  if (status) return status;
  c.in_channels = o.filters.shape[1];
  c.out_channels = out_channels / groups;
  const int64_t shape[] = {c.batch, out_channels, c.windows[0].count, c.windows[1].count, c.windows[2].count};
  rt_array result;
  status = rt_make_image(call, o.layout, shape, &result);
  if (status) return status;
  const char *image = rt_read_image(call, &o.image, c.type), *filters = rt_read_image(call, &o.filters, c.type);
  char *sums = rt_scratch(call, result.count, rt_type_nbytes(c.type));
  if (!image || !filters || !sums) return BYOC_RT_EXECUTION;
  memset(sums, 0, (size_t)(result.count * rt_type_nbytes(c.type)));
  if (result.count && o.image.count) convolve(&c, sums, (char *)(uintptr_t)image, filters);
  rt_write_image(&result, c.type, sums);
  return 0;
}

/* Describe the windows of a transposed convolution along an axis: the large image is the result. */
static int32_t spread(rt_call *call, const operands *o, int32_t axis, int64_t window, rt_windows *windows) {
  const int32_t own = axis - o->missing;
  int64_t before, after, total;
  const int64_t size = o->image.shape[2 + axis];
  const int64_t stride = rt_axis_value(call, "strides", own, o->rank, 1, 1);
  const int64_t dilation = rt_axis_value(call, "dilation", own, o->rank, 1, 1);
  const int64_t extra = rt_axis_value(call, "output_padding", own, o->rank, 0, 0);
  if (stride < 0 || dilation < 0 || extra < 0 || rt_padding(call, own, o->rank, &before, &after))
    return BYOC_RT_EXECUTION;
  if (window < 1 || window > INT32_MAX || size > INT64_MAX / 4 || __builtin_mul_overflow(size - 1, stride, &total) ||
      __builtin_add_overflow(total, dilation * (window - 1) + 1 + extra, &total) || total <= before + after)
    return rt_reject(call, "the padding leaves nothing of spatial axis %d, or a size is out of range", (int)own);
  *windows = (rt_windows){total - before - after, size, dilation, rt_scratch(call, size + 1, 8), NULL};
  if (!windows->first) return BYOC_RT_MEMORY;
  for (int64_t i = 0; i < size; ++i) windows->first[i] = i * stride - before;
  if (!size) windows->first[0] = 0;
  return 0;
}

int32_t rt_run_conv_transpose(rt_call *call, const void *context) {
  (void)context;
  operands o;
  int32_t status = read_operands(call, 1, &o);
  if (status) return status;
  const int64_t groups = rt_integer(call, "groups"), per_group = o.filters.shape[0];
  status = check_channels(call, &o, o.filters.shape[1], o.image.shape[1], 0, groups);
  convolution c = {.type = rt_working_type(o.image.type),
                   .batch = o.image.shape[0],
                   .groups = groups,
                   .out_channels = per_group,
                   .is_transposed = 1};
  for (int32_t axis = 0; axis < RT_SPATIAL && !status; ++axis) {
    c.window[axis] = o.filters.shape[2 + axis];
    status = axis < o.missing ? single_window(call, &c.windows[axis])
                              : spread(call, &o, axis, c.window[axis], &c.windows[axis]);
  }
  if (status) return status;
  c.in_channels = o.image.shape[1] / groups;
  const int64_t shape[] = {c.batch, rt_product(per_group, groups), c.windows[0].size, c.windows[1].size,
                           c.windows[2].size};
  rt_array result, filters = o.filters;
  status = rt_make_image(call, o.layout, shape, &result);
  if (status) return status;
  /* (O of a group, all I) to (group, O of a group, I of a group): a view with an additional axis in front. */
  filters.rank = 3 + RT_SPATIAL;
  filters.shape[0] = groups;
  filters.strides[0] = o.filters.strides[1] * c.in_channels;
  filters.shape[1] = per_group;
  filters.strides[1] = o.filters.strides[0];
  filters.shape[2] = c.in_channels;
  filters.strides[2] = o.filters.strides[1];
  for (int32_t axis = 0; axis < RT_SPATIAL; ++axis) {
    filters.shape[3 + axis] = o.filters.shape[2 + axis];
    filters.strides[3 + axis] = o.filters.strides[2 + axis];
  }
  const char *image = rt_read_image(call, &o.image, c.type), *taps = rt_read_image(call, &filters, c.type);
  char *sums = rt_scratch(call, result.count, rt_type_nbytes(c.type));
  if (!image || !taps || !sums) return BYOC_RT_EXECUTION;
  memset(sums, 0, (size_t)(result.count * rt_type_nbytes(c.type)));
  if (result.count && o.image.count) convolve(&c, (char *)(uintptr_t)image, sums, taps);
  rt_write_image(&result, c.type, sums);
  return 0;
}
