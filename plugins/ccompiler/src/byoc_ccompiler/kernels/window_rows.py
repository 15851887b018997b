"""Where the factors of a convolution's rows lie: the run of channels that each tap of a pixel's window reads."""

from __future__ import annotations

from byoc_core.authoring.csource import c_suffix, c_type

from byoc_ccompiler.kernel import Kernel

__all__ = ["rows_function", "window_type", "zeros"]

_TYPE = """\
/* A window that moves over images: `stride_*` from one position to the next, taps `apart_*`; the result has
 * `out_height` by `out_width` pixels an image, the last of all images is number `last`. */
struct {name} {
  int64_t last, out_height, out_width, height, width, top, left, stride_down, stride_right;
  int64_t taps_down, taps_right, apart_down, apart_right, image_step, row_step, pixel_step;
};
"""


def window_type(kernel: Kernel) -> str:
    """Gives the tag of the C struct of a window's sizes."""
    return kernel.helper("window", _TYPE)


def zeros(kernel: Kernel, dtype: str, count: int) -> str:
    """Gives the C name of an array of zeros, of so many elements or more."""
    size = max(64, 1 << (count - 1).bit_length())
    return kernel.helper(f"zeros_{c_suffix(dtype)}_{size}", f"static const {c_type(dtype)} {{name}}[{size}];\n")


def rows_function(kernel: Kernel, dtype: str, count: int) -> str:
    """Gives the C name of a function that finds where the windows of some neighbouring pixels begin.

    C signature: ``(rows, x, zeros, window, m0)``; ``rows[t * count + j]`` becomes the address of tap ``t`` of pixel
    ``m0 + j`` (of the last pixel, where that is behind it), or ``zeros`` where the tap lies outside the image.

    Args:
        kernel: the kernel that calls it.
        dtype: of the image.
        count: how many pixels.
    """
    ctype = c_type(dtype)
    text = f"""\
static void {{name}}(const {ctype} **rows, const {ctype} *x, const {ctype} *zeros,
    const struct {window_type(kernel)} *window, int64_t m0) {{
  int64_t top[{count}], left[{count}], first[{count}];
  int64_t col = m0 % window->out_width, y = m0 / window->out_width, n = y / window->out_height;
  y %= window->out_height;
  for (int64_t j = 0; j < {count}; ++j) {{
    top[j] = y * window->stride_down - window->top;
    left[j] = col * window->stride_right - window->left;
    first[j] = n * window->image_step + top[j] * window->row_step + left[j] * window->pixel_step;
    if (m0 + j >= window->last || ++col < window->out_width) continue;
    col = 0;
    if (++y < window->out_height) continue;
    y = 0;
    ++n;
  }}
  for (int64_t tap_down = 0; tap_down < window->taps_down; ++tap_down) {{
    for (int64_t tap_right = 0; tap_right < window->taps_right; ++tap_right, rows += {count}) {{
      const int64_t down = tap_down * window->apart_down, right = tap_right * window->apart_right;
      const int64_t step = down * window->row_step + right * window->pixel_step;
      const uint64_t height = (uint64_t)window->height, width = (uint64_t)window->width;
      for (int64_t j = 0; j < {count}; ++j) {{
        const int is_inside = ((uint64_t)(top[j] + down) < height) & ((uint64_t)(left[j] + right) < width);
        rows[j] = is_inside ? x + (first[j] + step) : zeros;
      }}
    }}
  }}
}}
"""
    return kernel.helper(f"windows_{c_suffix(dtype)}_{count}", text)
