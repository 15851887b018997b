"""Pooling, NCHW: one pass per tap of the window over each row of outputs, so that the inner loop runs along a row.

In short rows whose windows all lie inside the image, each window is taken by itself.
"""

from __future__ import annotations

from byoc_core.authoring.csource import FunctionScope
from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim, c_literal, c_suffix
from byoc_core.backend.info import Rejection
from byoc_core.ir import Binding, TensorType

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.rejections import reject_non_floats
from byoc_ccompiler.size_checks import require_window
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

# Rows shorter than this are not worth a pass per tap.
_NARROW = 16
_TAP_PS = 200
"""Estimated picoseconds of one tap of one window."""

_LOCALS = (
    "plane",
    "y",
    "col",
    "ky",
    "kx",
    "row",
    "line",
    "to",
    "begin",
    "last",
    "end",
    "right",
    "high",
    "wide",
    "value",
)

_COUNT = """\
/* How many taps of window `index` lie in [first, last): what its mean is taken of. */
static inline int64_t {name}_taps(int64_t index, int64_t stride, int64_t size, int64_t dilation, int64_t first,
    int64_t last) {
  int64_t count = 0;
  for (int64_t tap = 0; tap < size; ++tap) {
    const int64_t at = index * stride + tap * dilation;
    count += at >= first && at < last;
  }
  return count;
}
"""


def _numbers(value: object) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return tuple(int(item) for item in value)


def _write(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.max_pool2d`` or ``nn.avg_pool2d``."""
    (step,) = kernel.group.steps
    kernel.names.reserve(_LOCALS)
    x, out = kernel.input(step.operands[0]), kernel.output(step.result)
    assert isinstance(step.result.type, TensorType)
    dtype, ctype = step.result.type.dtype, kernel.ctype(step.result)
    batch, channels, height, width = shape_of(step.operands[0])
    out_height, out_width = shape_of(step.result)[2:]
    attrs = step.binding.attrs
    sizes, strides = _numbers(attrs["pool_size"]), _numbers(attrs["strides"])
    dilation, padding = _numbers(attrs["dilation"]), _numbers(attrs["padding"])
    is_max = step.op == "nn.max_pool2d"
    start = c_literal(_lowest(dtype), dtype) if is_max else "0"
    combine = f"byoc_maximum_{c_suffix(dtype)}(to[col], value)" if is_max else "to[col] + value"
    body = [
        f"  for (int64_t plane = {FIRST_ITEM}; plane < {END_ITEM}; ++plane) {{",
        f"    for (int64_t y = 0; y < {c_dim(out_height)}; ++y) {{",
        f"      {ctype} *restrict to = {out} + (plane * {c_dim(out_height)} + y) * {c_dim(out_width)};",
    ]
    inside = not any(padding) and not attrs["ceil_mode"]
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
    helpers = ""
    if not is_max:
        helpers = _COUNT
        padded = bool(attrs["count_include_pad"])
        bounds = []
        for axis, size in ((0, height), (1, width)):
            first = 0 if padded else padding[axis]
            last = size + padding[axis] + (padding[axis + 2] if padded else 0)
            bounds.append(f"{strides[axis]}, {sizes[axis]}, {dilation[axis]}, {first}, {c_dim(last)}")
        body += [
            f"      const int64_t high = {{name}}_taps(y, {bounds[0]});",
            f"      for (int64_t col = 0; col < {c_dim(out_width)}; ++col) {{",
            f"        const int64_t wide = {{name}}_taps(col, {bounds[1]});",
            f"        to[col] /= ({ctype})byoc_max(1, high * wide);",
            "      }",
        ]
    item_ps = out_height * out_width * sizes[0] * sizes[1] * _TAP_PS
    kernel.finish([ParallelLoop((*body, "    }", "  }"), batch * channels, item_ps)], helpers)


def _lowest(dtype: str) -> float | int:
    if dtype.startswith("float"):
        return float("-inf")
    bits = int(dtype.lstrip("uint"))
    return 0 if dtype.startswith("uint") else -(2 ** (bits - 1))


def _reject(binding: Binding) -> Rejection | None:
    if binding.attrs["layout"] != "NCHW":
        layout = binding.attrs["layout"]
        return Rejection("layout", f"{binding.op.name} is compiled for the layout NCHW, not for {layout}")
    return None if binding.op.name == "nn.max_pool2d" else reject_non_floats(binding)


def _require(scope: FunctionScope, step: Step) -> None:
    attrs = step.binding.attrs
    dilation, padding = _numbers(attrs["dilation"]), _numbers(attrs["padding"])
    image = shape_of(step.operands[0])
    padded = [*image[:2], *(image[2 + axis] + padding[axis] + padding[axis + 2] for axis in range(2))]
    reach = [(size - 1) * apart + 1 for size, apart in zip(_numbers(attrs["pool_size"]), dilation, strict=True)]
    require_window(scope, step, padded, [0, 0, *reach])


FAMILY = KernelFamily(frozenset({"nn.max_pool2d", "nn.avg_pool2d"}), _reject, _write, require=_require)
"""Pooling over two axes."""
