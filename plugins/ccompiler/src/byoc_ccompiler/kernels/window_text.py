"""The text of what finds windows and copies images, for kernels that are text still."""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_suffix, c_type

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.implicit_gemm_plan import ImplicitGemm
from byoc_ccompiler.kernels.window_rows import window_sizes

__all__ = ["COPY_LOCALS", "copy_loop", "rows_function", "table_lines", "window_line", "zeros"]

_COPY_PS = 200

COPY_LOCALS = ("image", "n", "row", "to", "y", "from", "col", "pixel", "c", "j")
"""Names of the variables of :func:`copy_loop`, which a kernel that has one keeps from its pointers."""

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


def copy_loop(plan: ImplicitGemm, x: str) -> ParallelLoop:
    """Gives the loop that copies the image ``n`` into ``image``, line by line, padded with zeros."""
    shape, (batch, channel, row, pixel) = plan.shape, plan.steps
    height, width = plan.padded
    top, left, _, right = shape.padding
    channels, line = shape.channels, c_dim(shape.width * shape.channels)
    if channel == 1 and pixel == channels:
        copy = [f"    memcpy(to, from, {line} * sizeof(*to));", f"    to += {line};"]
    else:
        copy = [
            f"    for (int64_t col = 0; col < {c_dim(shape.width)}; ++col, to += {channels}) {{",
            f"      const {c_type(shape.dtype)} *pixel = from + col * {c_dim(pixel)};",
            f"      for (int64_t c = 0; c < {channels}; ++c) to[c] = pixel[c * {c_dim(channel)}];",
            "    }",
        ]
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    {c_type(shape.dtype)} *to = image + row * {c_dim(width * channels)};",
        f"    const int64_t y = row - {top};",
        f"    if (y < 0 || y >= {c_dim(shape.height)}) {{",
        f"      memset(to, 0, {c_dim(width * channels)} * sizeof(*to));",
        "      continue;",
        "    }",
        f"    const {c_type(shape.dtype)} *from = {x} + n * {c_dim(batch)} + y * {c_dim(row)};",
        f"    for (int64_t j = 0; j < {left * channels}; ++j) *to++ = 0;",
        *copy,
        f"    for (int64_t j = 0; j < {right * channels}; ++j) *to++ = 0;",
        "  }",
    )
    return ParallelLoop(lines, height, width * channels * _COPY_PS)


def table_lines(kernel: Kernel, plan: ImplicitGemm) -> list[str]:
    """Gives the sizes that the rows' pointers follow from, and the place for these pointers."""
    if not plan.has_pointers:
        return []
    return [
        window_line(kernel, plan),
        f"  const {c_type(plan.shape.dtype)} *rows[{plan.runs * plan.rows}];",
    ]


def window_line(kernel: Kernel, plan: ImplicitGemm) -> str:
    """Gives the declaration of ``window``, the sizes that the pointers to the runs of a row follow from."""
    values = ", ".join(f".{name} = {c_dim(size)}" for name, size in window_sizes(plan).items())
    return f"  const struct {window_type(kernel)} window = {{{values}}};"
