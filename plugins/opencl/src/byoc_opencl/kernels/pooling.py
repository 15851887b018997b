"""Kernels of pooling over one to three axes: a thread computes an element of the result."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce

from byoc_core.authoring import c
from byoc_core.backend.hooks import Rejection
from byoc_core.ir import Binding
from byoc_core.ops import RANKS, axis_letters

from byoc_opencl.kernels.attributes import flag_of, ints_of
from byoc_opencl.kernels.family import KernelFamily, reject_other_than_floats
from byoc_opencl.kernels.rows import lowest, parallel
from byoc_opencl.kernels.step import DOUBLE, Step, Tensor, all_of, cast, literal

__all__ = ["FAMILIES"]


def _write(step: Step) -> c.Nest:
    """Return the nest of windows with steps: taps outside of the image do not count, except in a mean with padding."""
    binding, (x,), (out,) = step.binding, step.inputs, step.outputs
    layout = str(binding.attrs["layout"])
    letters = axis_letters(len(layout) - 2)
    pool, strides, dilation = (ints_of(binding, name) for name in ("pool_size", "strides", "dilation"))
    padding = ints_of(binding, "padding")
    index = {letter: c.Variable(letter.lower()) for letter in layout}
    taps = [
        c.Axis(c.Variable(f"tap_{letter.lower()}"), step.sizes(size))
        for letter, size in zip(letters, pool, strict=True)
    ]
    position: dict[str, c.Expression] = dict(index)
    inside: list[c.Expression] = []
    padded: list[c.Expression] = []
    for axis, letter in enumerate(letters):
        before, after, size = padding[axis], padding[axis + len(letters)], x.shape[layout.index(letter)]
        position[letter] = index[letter] * strides[axis] + taps[axis].index * dilation[axis] - step.sizes(before)
        inside += [position[letter].compare(">=", 0), position[letter].compare("<", size)]
        padded.append(position[letter].compare("<", size + step.sizes(after)))
    is_inside, is_padded = all_of(inside), all_of(padded)
    axes = tuple(c.Axis(index[letter], size) for letter, size in zip(layout, out.shape, strict=True))
    points = [axis.index for axis in axes]
    value: c.Expression = x[[position[letter] for letter in layout]]
    if binding.op.name.startswith("nn.max"):
        best, start = c.Variable("best", out.type), lowest(out.type)
        tap = c.Variable("tap", out.type)
        setup = (c.Let(tap, c.Select(is_inside, value, start)),)
        largest = c.Accumulator(best, start, c.Element("maximum", (best, tap), out.type))
        return c.Nest(axes, (out.store(points, best),), tuple(taps), setup, (largest,))
    total, count = c.Variable("total", DOUBLE), c.Variable("count")
    counted = is_padded if flag_of(binding, "count_include_pad") else is_inside
    sums = (
        c.Accumulator(total, literal(0, DOUBLE), total + c.Select(is_inside, cast(value, DOUBLE), literal(0, DOUBLE))),
        c.Accumulator(count, c.Size(0), count + c.Select(counted, c.Size(1), c.Size(0))),
    )
    mean = total / c.Cast(c.index_max(count, 1), DOUBLE)
    return c.Nest(axes, (out.store(points, cast(mean, out.type)),), tuple(taps), accumulators=sums)


def _write_adaptive(step: Step) -> c.Block:
    """Return the loops of windows dividing the image."""
    binding, (x,), (out,) = step.binding, step.inputs, step.outputs
    layout = str(binding.attrs["layout"])
    letters = axis_letters(len(layout) - 2)
    item = c.Variable("item")
    points = c.unravelled(item, out.shape)
    indices = dict(zip(layout, points, strict=True))
    bounds: c.Block = ()
    windows: dict[str, tuple[c.Variable, c.Variable]] = {}
    for letter in letters:
        size, count = x.shape[layout.index(letter)], out.shape[layout.index(letter)]
        first, end = c.Variable(f"first_{letter.lower()}"), c.Variable(f"end_{letter.lower()}")
        windows[letter] = (first, end)
        bounds += (c.Let(first, indices[letter] * size // count),)
        bounds += (c.Let(end, ((indices[letter] + 1) * size + (count - 1)) // count),)
    body, value = _reduce_windows(step, x, indices, windows)
    return parallel(item, out.shape, (*bounds, *body, out.store(points, value)))


def _reduce_windows(
    step: Step, x: Tensor, indices: Mapping[str, c.Expression], windows: Mapping[str, tuple[c.Variable, c.Variable]]
) -> tuple[c.Block, c.Expression]:
    """Return the loops over a window, and the reduced value."""
    layout, is_max = str(step.binding.attrs["layout"]), "max" in step.binding.op.name
    type_ = x.type if is_max else DOUBLE
    total, tap = c.Variable("total", type_), c.Variable("tap", type_)
    taps = {letter: c.Variable(letter.lower()) for letter in windows}
    value = cast(x[[{**indices, **taps}[letter] for letter in layout]], type_)
    update = c.Element("maximum", (total, tap), type_) if is_max else total + tap
    block: c.Block = (c.Let(tap, value), c.Assign(total, update))
    for letter, (first, end) in reversed(list(windows.items())):
        block = (c.For(taps[letter], first, end, block),)
    start = lowest(x.type) if is_max else literal(0, DOUBLE)
    result: c.Expression = total
    if not is_max:
        count = reduce(operator.mul, (end - first for first, end in windows.values()))
        result = cast(total / c.Cast(count, DOUBLE), x.type)
    return (c.Declare(total, start), *block), result


def _reject(binding: Binding) -> Rejection | None:
    if "max" not in binding.op.name:
        return reject_other_than_floats(binding)
    return None


def _ops(prefix: str, kinds: tuple[str, ...]) -> frozenset[str]:
    return frozenset(f"nn.{prefix}{kind}_pool{rank}d" for kind in kinds for rank in RANKS)


FAMILIES = (
    KernelFamily(_ops("", ("max", "avg")), _write, _reject, is_nest=True),
    KernelFamily(_ops("adaptive_", ("max", "avg")), _write_adaptive, _reject),
)
"""Maxima and means of windows: with steps, or dividing the image."""
