#include "kernel_windows.h"

#include <string.h>

int64_t rt_axis_value(rt_call *call, const char *name, int32_t axis, int32_t count, int64_t fallback, int64_t least) {
  const rt_attr *attr = rt_attribute(call, name);
  if (attr->is_none) return fallback;
  if (attr->count != 1 && attr->count != count) {
    rt_reject(call, "attribute `%s` has %d values, expected %d", name, (int)attr->count, (int)count);
    return -1;
  }
  const int64_t value = attr->integers[attr->count == 1 ? 0 : axis];
  if (value >= least && value <= INT32_MAX) return value;
  rt_reject(call, "attribute `%s` has a value out of range; got %lld", name, (long long)value);
  return -1;
}

int32_t rt_padding(rt_call *call, int32_t axis, int32_t rank, int64_t *before, int64_t *after) {
  const int32_t given = rt_attribute(call, "padding")->count;
  *before = rt_axis_value(call, "padding", axis, given == rank ? rank : 2 * rank, 0, 0);
  *after = rt_axis_value(call, "padding", given == rank ? axis : rank + axis, given == rank ? rank : 2 * rank, 0, 0);
  return *before < 0 || *after < 0 ? BYOC_RT_EXECUTION : 0;
}

int32_t rt_slide(rt_call *call, int32_t axis, int32_t rank, int64_t size, int64_t window, int ceil_mode,
                 rt_windows *windows) {
  int64_t before, after;
  if (window < 1 || window > INT32_MAX || size > INT64_MAX / 4)
    return rt_reject(call, "the windows cannot be counted; got size %lld and window %lld", (long long)size,
                     (long long)window);
  const int has_window = !rt_attribute(call, "strides")->is_none;
  const int64_t stride = rt_axis_value(call, "strides", axis, rank, has_window ? 1 : window, 1);
  const int64_t dilation = rt_axis_value(call, "dilation", axis, rank, 1, 1);
  if (stride < 0 || dilation < 0 || rt_padding(call, axis, rank, &before, &after)) return BYOC_RT_EXECUTION;
  const int64_t reach = dilation * (window - 1) + 1, room = size + before + after - reach;
  if (room < 0)
    return rt_reject(call, "an axis of the padded image is smaller than the window; got %lld, expected %lld or more",
                     (long long)(size + before + after), (long long)reach);
  windows->size = size;
  windows->dilation = dilation;
  windows->count = room / stride + 1;
  if (ceil_mode) {
    const int64_t fitting = (room + stride - 1) / stride + 1, starting = (size + before + stride - 1) / stride;
    windows->count = fitting < starting ? fitting : starting;
  }
  windows->first = rt_scratch(call, windows->count, sizeof *windows->first);
  windows->taps = rt_scratch(call, windows->count, sizeof *windows->taps);
  if (!windows->first || !windows->taps) return BYOC_RT_MEMORY;
  for (int64_t i = 0; i < windows->count; ++i) {
    windows->first[i] = i * stride - before;
    windows->taps[i] = window;
  }
  return 0;
}

/* Store the positions of the two channel axes in a layout, then of the spatial axes D, H and W; -1 for a missing
 * axis. */
static int32_t find_axes(const char *layout, const char *channels, int32_t *axes) {
  static const char spatial[] = "DHW";
  int32_t found = 0;
  for (int32_t i = 0; i < 2 + RT_SPATIAL; ++i) {
    const char *at = strchr(layout, i < 2 ? channels[i] : spatial[i - 2]);
    axes[i] = at ? (int32_t)(at - layout) : -1;
    found += at != NULL;
  }
  return found;
}

static void order_axes(const rt_array *image, const int32_t *axes, rt_array *view) {
  *view = *image;
  view->rank = 2 + RT_SPATIAL;
  for (int32_t i = 0; i < view->rank; ++i) {
    view->shape[i] = axes[i] < 0 ? 1 : image->shape[axes[i]];
    view->strides[i] = axes[i] < 0 ? 0 : image->strides[axes[i]];
  }
}

int32_t rt_order_image(rt_call *call, const rt_array *image, const char *layout, const char *channels,
                       rt_array *view) {
  int32_t axes[2 + RT_SPATIAL];
  if (find_axes(layout, channels, axes) != image->rank)
    return rt_reject(call, "an operand has rank %d, expected the axes %s", (int)image->rank, layout);
  order_axes(image, axes, view);
  return 0;
}

const char *rt_read_image(rt_call *call, const rt_array *view, rt_type type) {
  if (view->type == type && rt_is_row_major(view)) return view->data;
  rt_array copy;
  if (!rt_describe(&copy, NULL, type, view->rank, view->shape)) {
    rt_reject(call, "an operand exceeds 64 bits");
    return NULL;
  }
  copy.data = rt_scratch(call, copy.count, rt_type_nbytes(type));
  if (copy.data) rt_copy_array(&copy, view);
  return copy.data;
}

int32_t rt_make_image(rt_call *call, const char *layout, const int64_t *shape, rt_array *view) {
  int32_t axes[2 + RT_SPATIAL];
  int64_t sizes[2 + RT_SPATIAL];
  const int32_t rank = find_axes(layout, "NC", axes);
  for (int32_t i = 0; i < 2 + RT_SPATIAL; ++i)
    if (axes[i] >= 0) sizes[axes[i]] = shape[i];
  const rt_array *result = rt_result(call, 0, rank, sizes);
  if (!result) return BYOC_RT_EXECUTION;
  order_axes(result, axes, view);
  return 0;
}

void rt_write_image(const rt_array *view, rt_type type, const char *elements) {
  rt_array source;
  (void)rt_describe(&source, (char *)(uintptr_t)elements, type, view->rank, view->shape);
  rt_copy_array(view, &source);
}
