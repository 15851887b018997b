"""Pooling, channels last: the inner loops run along the channels.

Sums over small windows of known size are unrolled: each tap has an address, that of a pixel of zeros where the tap lies
outside the image. Other windows are gone through pixel by pixel, the totals of a chunk of channels waiting in a small
array (maxima too: a chain of them waits for itself longer than for memory); sums are added up row by row first, so that
errors grow with the height and the width of a window, not with its area.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type
from byoc_core.dims import Dim, product

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.epilogue import unravel
from byoc_ccompiler.kernels.pooling_windows import Pooling, needed_lines

__all__ = ["write"]

_MAX_UNROLLED = 32
_CHUNK = 256
"""Channels whose totals wait together."""

_TAP_PS = 100
"""Estimated picoseconds of one tap of one window."""

_LOCALS = (
    *("item", "n", "o", "c", "c0", "c_count", "line", "total", "part", "to"),
    *(f"at{k}" for k in range(_MAX_UNROLLED)),
)


def write(kernel: Kernel) -> None:
    """Writes the kernel of a pooling op whose layout has the channels last."""
    (step,) = kernel.group.steps
    pooling = Pooling.of_step(step)
    kernel.names.reserve([*_LOCALS, *pooling.locals])
    image, out = kernel.input(step.operands[0], "x"), kernel.output(step.result)
    num_taps = math.prod(axis.window for axis in pooling.axes)
    if pooling.is_sum and 0 < num_taps <= _MAX_UNROLLED:
        _write_unrolled(kernel, pooling, image, out, num_taps)
    else:
        _write_chunks(kernel, pooling, image, out)


def _place(steps: tuple[Dim, ...], indices: list[str]) -> str:
    """Gives a C expression of an offset from an index along each axis but the last."""
    terms = [f"{index} * {c_dim(step)}" for index, step in zip(indices, steps[:-1], strict=True) if index != "0"]
    return " + ".join(terms) or "0"


def _index_lines(pooling: Pooling, item: str) -> tuple[list[str], list[str]]:
    """Gives the C expressions of image and window, by axis, and the declarations that they need."""
    sizes = [pooling.batch, *(axis.out_size for axis in pooling.axes)]
    names = ["n", *(f"o_{name}" for name in pooling.names)]
    lines = []
    indices = []
    for name, size, text in zip(names, sizes, unravel(item, sizes), strict=True):
        indices.append("0" if size == 1 else name)
        if size != 1:
            lines.append(f"const int64_t {name} = {text};")
    return indices, lines


def _with_head(declarations: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Gives a loop over items from its body, with the declarations that it needs."""
    head = f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{"
    return [head, *(f"    {line}" for line in needed_lines(declarations, lines)), *lines]


def _write_unrolled(kernel: Kernel, pooling: Pooling, image: str, out: str, num_taps: int) -> None:
    """Writes the kernel of sums over small windows of known size."""
    (step,) = kernel.group.steps
    ctype, channels = c_type(pooling.dtype), c_dim(pooling.channels)
    out_steps = kernel.strides(step.result)
    (batch, *indices), declarations = _index_lines(pooling, "item")
    is_inside = all(axis.is_inside for axis in pooling.axes)
    for axis, name, index in zip(pooling.axes, pooling.names, indices, strict=True):
        declarations.append(f"const int64_t from_{name} = {index} * {axis.stride} - {axis.begin};")
    counts = pooling.axis_lines(indices) if pooling.kind == "avg" else []
    # Pointers by name, not in an array: then compilers know that the loop does not change them.
    lines = [
        *_tap_lines(kernel, pooling, image, batch),
        f"    {ctype} *restrict to = {out} + {_place(out_steps, [batch, *indices])};",
        f"    for (int64_t c = 0; c < {channels}; ++c) {{",
        f"      {ctype} total = 0;",
        *(f"      total = {pooling.combine('total', f'at{k}[c]')};" for k in range(num_taps)),
        f"      to[c] = {pooling.finish('total')};",
        "    }",
        "  }",
    ]
    lines = _with_head([*declarations, *counts], lines)
    count = product([pooling.batch, *(axis.out_size for axis in pooling.axes)])
    body: list[str | ParallelLoop] = []
    if not is_inside:
        kernel.scratch = pooling.channels
        body.append(f"  memset(scratch, 0, {channels} * sizeof(*scratch));")
    body.append(ParallelLoop(tuple(lines), count, pooling.channels * num_taps * _TAP_PS))
    kernel.finish(body)


def _tap_lines(kernel: Kernel, pooling: Pooling, image: str, batch: str) -> list[str]:
    """Gives the address of each tap's pixel: that of a pixel of zeros, where it lies outside the image."""
    steps = kernel.strides(kernel.group.steps[0].operands[0])
    lines = []
    for number, taps in enumerate(itertools.product(*(range(axis.window) for axis in pooling.axes))):
        positions, conditions = [], []
        for axis, name, tap in zip(pooling.axes, pooling.names, taps, strict=True):
            at = f"(from_{name} + {tap * axis.dilation})"
            positions.append(at)
            if not axis.is_inside:
                conditions.append(f"{at} >= 0 && {at} < {c_dim(axis.size)}")
        place = f"{image} + {_place(steps, [batch, *positions])}"
        chosen = f"{' && '.join(conditions)} ? {place} : scratch" if conditions else place
        lines.append(f"    const {c_type(pooling.dtype)} *const at{number} = {chosen};")
    return lines


def _write_chunks(kernel: Kernel, pooling: Pooling, image: str, out: str) -> None:
    """Writes the kernel of windows of any size."""
    (step,) = kernel.group.steps
    ctype, channels = c_type(pooling.dtype), c_dim(pooling.channels)
    steps, out_steps = kernel.strides(step.operands[0]), kernel.strides(step.result)
    num_chunks = (pooling.channels + (_CHUNK - 1)) // _CHUNK
    (batch, *indices), declarations = _index_lines(pooling, "o" if num_chunks != 1 else "item")
    *outer, last = pooling.names
    positions = [
        f"(first_{name} + k_{name} * {axis.dilation})" for name, axis in zip(pooling.names, pooling.axes, strict=True)
    ]
    each = "for (int64_t c = 0; c < c_count; ++c)"
    target = "part[c]" if pooling.is_sum else "total[c]"
    if num_chunks == 1:
        chunk = ["const int64_t c0 = 0;"]
    else:
        chunk = [f"const int64_t o = item / {c_dim(num_chunks)};"]
        chunk.append(f"const int64_t c0 = item % {c_dim(num_chunks)} * {_CHUNK};")
    lines = [
        f"    const int64_t c_count = byoc_min({_CHUNK}, {channels} - c0);",
        f"    {ctype} total[{_CHUNK}];",
        f"    {each} total[c] = {pooling.start};",
        *(f"    for (int64_t k_{name} = 0; k_{name} < count_{name}; ++k_{name}) {{" for name in outer),
        *([f"      {ctype} part[{_CHUNK}] = {{0}};"] if pooling.is_sum else []),
        *(["      {"] if not outer else []),
        f"      for (int64_t k_{last} = 0; k_{last} < count_{last}; ++k_{last}) {{",
        f"        const {ctype} *line = {image} + {_place(steps, [batch, *positions])} + c0;",
        f"        {each} {target} = {pooling.combine(target, 'line[c]')};",
        "      }",
        *(["      }"] if not outer else []),
        *([f"      {each} total[c] += part[c];"] if pooling.is_sum else []),
        *("    }" for _ in outer),
        f"    {ctype} *restrict to = {out} + {_place(out_steps, [batch, *indices])} + c0;",
        f"    {each} to[c] = {pooling.finish('total[c]')};",
        "  }",
    ]
    lines = _with_head([*chunk, *declarations, *pooling.axis_lines(indices)], lines)
    num_windows = product([pooling.batch, *(axis.out_size for axis in pooling.axes)])
    # Windows of adaptive pooling share the image out.
    taps = product([axis.window or (axis.size + (axis.out_size - 1)) // axis.out_size for axis in pooling.axes])
    kernel.finish([ParallelLoop(tuple(lines), num_windows * num_chunks, taps * _CHUNK * _TAP_PS)])
