/* Windows over images of one to three spatial axes, for pooling and convolution. */
#ifndef BYOC_RT_KERNEL_WINDOWS_H_
#define BYOC_RT_KERNEL_WINDOWS_H_

#include "kernel.h"

enum { RT_SPATIAL = 3 };

/* The windows along one axis. Tap t of window i is at element first[i] + t * dilation; taps may lie outside. */
typedef struct {
  int64_t size;       /* of the image */
  int64_t count;      /* of windows */
  int64_t dilation;
  int64_t *first, *taps; /* by window */
} rt_windows;

/* Sliding windows by attributes `strides`, `padding`, `dilation` and perhaps `ceil_mode`. `axis` of `rank` spatial
 * axes; the attributes may hold one value for all axes, and `strides` may be none: then the window's size. */
int32_t rt_slide(rt_call *call, int32_t axis, int32_t rank, int64_t size, int64_t window, int ceil_mode,
                 rt_windows *windows);

/* Return value `axis` of an attribute with a value for each of `count` axes, one for all, or none (`fallback`); -1
 * after an error: another number of values, or a value below `least`. */
int64_t rt_axis_value(rt_call *call, const char *name, int32_t axis, int32_t count, int64_t fallback, int64_t least);

/* The padding before and after a spatial axis; the attribute has a value for each axis and side, for each axis, or
 * one. */
int32_t rt_padding(rt_call *call, int32_t axis, int32_t rank, int64_t *before, int64_t *after);

/* A description of an image with the axes of a layout (letters such as `NHWC`) in the order `NC` and spatial axes.
 * The sizes of missing spatial axes, in front, are 1: rank is always 2 + RT_SPATIAL. */
int32_t rt_order_image(rt_call *call, const rt_array *image, const char *layout, const char *channels, rt_array *view);

/* As rt_order_image, as a compact copy of a type. */
const char *rt_read_image(rt_call *call, const rt_array *view, rt_type type);

/* Make result 0 with the sizes (N, C, spatial) in a layout, and describe the result in that order. */
int32_t rt_make_image(rt_call *call, const char *layout, const int64_t *shape, rt_array *view);

/* Store compact elements of a type in an image. */
void rt_write_image(const rt_array *view, rt_type type, const char *elements);

#endif /* BYOC_RT_KERNEL_WINDOWS_H_ */
