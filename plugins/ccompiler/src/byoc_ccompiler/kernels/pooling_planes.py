"""Pooling, NCHW: one pass per tap of the window over each row of outputs, so that the inner loop runs along a row.

In short rows whose windows all lie inside the image, each window is taken by itself.
"""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.pooling_windows import Pooling, needed_lines

__all__ = ["write"]

# Rows shorter than this are not worth a pass per tap.
_NARROW = 16
_TAP_PS = 200
"""Estimated picoseconds of one tap of one window."""

_LOCALS = ("plane", "y", "col", "ky", "kx", "row", "line", "to", "begin", "last", "end", "right", "value", "total")


def write(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.max_pool2d`` or ``nn.avg_pool2d``, channels first."""
    (step,) = kernel.group.steps
    pooling = Pooling.of_step(step)
    kernel.names.reserve([*_LOCALS, *pooling.locals])
    x, out = kernel.input(step.operands[0]), kernel.output(step.result)
    ctype, start, combine = c_type(pooling.dtype), pooling.start, pooling.combine("to[col]", "value")
    down, right = pooling.axes
    sizes, strides = (down.window, right.window), (down.stride, right.stride)
    dilation, padding = (down.dilation, right.dilation), (down.begin, right.begin)
    height, width, out_height, out_width = down.size, right.size, down.out_size, right.out_size
    body = [
        f"  for (int64_t plane = {FIRST_ITEM}; plane < {END_ITEM}; ++plane) {{",
        f"    for (int64_t y = 0; y < {c_dim(out_height)}; ++y) {{",
        f"      {ctype} *restrict to = {out} + (plane * {c_dim(out_height)} + y) * {c_dim(out_width)};",
    ]
    inside = down.is_inside and right.is_inside
    if inside and isinstance(out_width, int) and out_width < _NARROW:
        body += [
            f"      for (int64_t col = 0; col < {out_width}; ++col) {{",
            f"        {ctype} total = {start};",
            f"        for (int64_t ky = 0; ky < {sizes[0]}; ++ky) {{",
            f"          const int64_t row = plane * {c_dim(height)} + y * {strides[0]} + ky * {dilation[0]};",
            f"          const {ctype} *line = {x} + row * {c_dim(width)} + col * {strides[1]};",
            f"          for (int64_t kx = 0; kx < {sizes[1]}; ++kx) {{",
            f"            const {ctype} value = line[kx * {dilation[1]}];",
            f"            total = {combine.replace('to[col]', 'total')};",
            "          }",
            "        }",
            "        to[col] = total;",
            "      }",
        ]
    else:
        body += [
            f"      for (int64_t col = 0; col < {c_dim(out_width)}; ++col) to[col] = {start};",
            f"      for (int64_t ky = 0; ky < {sizes[0]}; ++ky) {{",
            f"        const int64_t row = y * {strides[0]} + ky * {dilation[0]} - {padding[0]};",
            f"        if (row < 0 || row >= {c_dim(height)}) continue;",
            f"        for (int64_t kx = 0; kx < {sizes[1]}; ++kx) {{",
            f"          const int64_t right = kx * {dilation[1]} - {padding[1]};",
            f"          const {ctype} *line = {x} + (plane * {c_dim(height)} + row) * {c_dim(width)} + right;",
            "          /* the windows [begin, end) have this tap inside the image */",
            f"          const int64_t begin = byoc_max(0, -byoc_floordiv(right, {strides[1]}));",
            f"          const int64_t last = byoc_floordiv({c_dim(width)} - 1 - right, {strides[1]});",
            f"          const int64_t end = byoc_min({c_dim(out_width)}, last + 1);",
            "          for (int64_t col = begin; col < end; ++col) {",
            f"            const {ctype} value = line[col * {strides[1]}];",
            f"            to[col] = {combine};",
            "          }",
            "        }",
            "      }",
        ]
    if not pooling.is_sum:
        body += ["    }", "  }"]
    else:
        divide = f"to[col] = {pooling.finish('to[col]')};"
        lines = needed_lines(pooling.axis_lines(["y", "col"]), [divide])
        body += [
            f"      for (int64_t col = 0; col < {c_dim(out_width)}; ++col) {{",
            *(f"        {line}" for line in (*lines, divide)),
            "      }",
            "    }",
            "  }",
        ]
    item_ps = out_height * out_width * sizes[0] * sizes[1] * _TAP_PS
    kernel.finish([ParallelLoop(tuple(body), pooling.batch * pooling.channels, item_ps)])
