"""Resizing by interpolation: one pass over the tensor along each axis, by a table of neighbours and weights.

Tables are filled in float64 when the kernel runs, so that one library serves all sizes; a pass reads and writes whole
rows where the axis is not the last.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import dims_of, flag_of, float_of, ints_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axes import AxisView, view_along
from byoc_ccompiler.kernels.copies import BYTE_PS, copy_axes, copy_block
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_WIDTHS = {"nearest": 1, "linear": 2, "cubic": 5}
"""Numbers in the table for each index of the result: a neighbour; and a part; or the weights of four."""

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}

_REAL = c.CType("float64")

_LINE = 64


class _Pass(NamedTuple):
    """One axis that gets another size.

    Attributes:
        view: the sizes around the axis, as the pass finds them.
        size: the new size.
        scale: the factor by which places are computed; ``None``: the new size over the old one.
        number: which pass it is.
    """

    view: AxisView
    size: Dim
    scale: float | None
    number: int


def _passes(step: Step) -> list[_Pass]:
    shape = list(shape_of(step.operands[0]))
    scales = step.binding.attrs["scales"]
    passes: list[_Pass] = []
    for position, (axis, size) in enumerate(
        zip(ints_of(step.binding, "axes"), dims_of(step.binding, "sizes"), strict=True)
    ):
        scale = float(str(scales[position])) if isinstance(scales, tuple) else None
        if size != shape[axis] or scale not in (None, 1.0):
            passes.append(_Pass(view_along(shape, axis), size, scale, len(passes)))
        shape[axis] = size
    return passes


def _real(value: c.Expression | Dim) -> c.Expression:
    """Return an index as a float64."""
    return c.Cast(value if isinstance(value, c.Expression) else c.Size(value), _REAL)


def _floor(value: c.Expression) -> c.Expression:
    return c.Call(c.Callee("floor", np.floor, flops=1), (value,), _REAL)


def _ceil(value: c.Expression) -> c.Expression:
    return c.Call(c.Callee("ceil", np.ceil, flops=1), (value,), _REAL)


def _place(step: Step, of: _Pass, k: c.Variable) -> c.Expression:
    """Return the place in the operand that an index of the result samples."""
    size, length, number = of.size, of.view.size, _real(k)
    scale = _real(size) / _real(length) if of.scale is None else c.Literal(of.scale, _REAL)
    coordinates = step.binding.attrs["coordinates"]
    if coordinates == "asymmetric":
        return number / scale
    if coordinates == "align_corners":
        return number * _real(length - 1) / _real(c.index_max(c.Size(size - 1), 1))
    if coordinates == "half_pixel_for_nearest":
        return (number + 0.5) / scale
    place = (number + 0.5) / scale - 0.5
    if coordinates == "half_pixel_or_first":
        return c.Select(c.Size(size).compare("==", 1), c.Literal(0.0, _REAL), place)
    if coordinates == "half_pixel_symmetric":
        return place + (_real(length) - _real(size) / scale) / 2.0
    return place


def _fill(step: Step, of: _Pass, table: c.Buffer) -> c.Statement:
    """Return the loop that fills the table of a pass."""
    method, k = str(step.binding.attrs["method"]), c.Variable("k")
    place, found, inside = (c.Variable(name, _REAL) for name in ("place", "found", "inside"))
    body: list[c.Statement] = [c.Let(place, _place(step, of, k))]
    if method == "cubic":
        return c.For(k, c.Size(0), c.Size(of.size), (*body, *_cubic_entry(step, of, table, k, place)))
    nearest = {
        "floor": _floor(place),
        "ceil": _ceil(place),
        "half_down": _ceil(place - 0.5),
        "half_up": _floor(place + 0.5),
    }
    last = _real(of.view.size - 1)
    upper = c.Select(found.compare(">", last), last, found)
    body += [
        c.Let(found, nearest[str(step.binding.attrs["rounding"])] if method == "nearest" else place),
        c.Let(inside, c.Select(found.compare("<", 0.0), c.Literal(0.0, _REAL), upper)),
    ]
    if method == "nearest":
        body.append(c.Store(table, k, inside))
    else:
        body += [c.Store(table, k * 2, _floor(inside)), c.Store(table, k * 2 + 1, inside - _floor(inside))]
    return c.For(k, c.Size(0), c.Size(of.size), tuple(body))


def _cubic_entry(step: Step, of: _Pass, table: c.Buffer, k: c.Variable, place: c.Variable) -> c.Block:
    """Return the statements that weigh four neighbours.

    Source: R. G. Keys, Cubic convolution interpolation (1981).
    """
    slope, is_exclusive = float_of(step.binding, "cubic_coefficient"), flag_of(step.binding, "exclude_outside")
    entry, tap, again = c.Buffer("entry", "float64", c.MemoryAccess.WRITE), c.Variable("tap"), c.Variable("tap")
    at, far, weight, total = (c.Variable(name, _REAL) for name in ("at", "far", "weight", "total"))
    near = (far * (slope + 2) - (slope + 3)) * (far * far) + 1.0
    distant = ((far - 5.0) * far + 8.0) * far * slope - 4 * slope
    weighed: c.Expression = c.Select(far.compare("<=", 1.0), near, distant)
    if is_exclusive:
        is_outside = c.Binary("||", at.compare("<", 0.0), at.compare(">=", _real(of.view.size)))
        weighed = c.Select(is_outside, c.Literal(0.0, _REAL), weighed)
    weigh: c.Block = (
        c.Let(at, entry[0] + _real(tap)),
        c.Let(far, c.Call(c.Callee("fabs", np.abs, flops=1), (place - at,), _REAL)),
        c.Let(weight, weighed),
        c.Store(entry, tap + 1, weight),
    )
    begin: c.Block = (c.Alias(entry, table, k * 5), c.Store(entry, c.Size(0), _floor(place) - 1.0))
    if not is_exclusive:
        return (*begin, c.For(tap, c.Size(0), c.Size(4), weigh))
    return (
        *begin,
        c.Declare(total, c.Literal(0.0, _REAL)),
        c.For(tap, c.Size(0), c.Size(4), (*weigh, c.Assign(total, total + weight))),
        c.For(again, c.Size(0), c.Size(4), (c.Store(entry, again + 1, entry[again + 1] / total),)),
    )


def _sampled(
    method: str, of: _Pass, table: c.Buffer, index: c.Expression, line: c.Buffer, k: c.Expression, type_: c.CType
) -> tuple[c.Block, c.Expression]:
    """Return the statements that find the neighbours of an index of the result, and the value there.

    Args:
        method: the method of the op.
        of: the pass.
        table: its table.
        index: the index of the result along the axis.
        line: the operand from the first position of the axis on.
        k: the position behind the axis.
        type_: the type of the value.
    """
    entry = c.Buffer("entry", "float64")
    neighbour = c.Cast(entry[0], c.INDEX)
    taps: list[c.Expression] = [neighbour]
    shares: list[c.Expression] = []
    if method != "nearest":
        taps = [c.index_min(c.index_max(neighbour + tap, 0), of.view.size - 1) for tap in range(_TAPS[method])]
        shares = [1.0 - entry[1], entry[1]] if method == "linear" else [entry[tap + 1] for tap in range(4)]
    offsets = [c.Variable(f"tap{number}") for number in range(len(taps))]
    weights = [c.Variable(f"weight{number}", type_) for number in range(len(shares))]
    statements: c.Block = (
        c.Alias(entry, table, index * _WIDTHS[method]),
        *(c.Let(offset, tap * of.view.inner) for offset, tap in zip(offsets, taps, strict=True)),
        *(c.Let(weight, c.Cast(share, type_)) for weight, share in zip(weights, shares, strict=True)),
    )
    elements: list[c.Expression] = [line[offset + k] for offset in offsets]
    products = [element * weight for element, weight in zip(elements, weights, strict=True)] if weights else elements
    return statements, functools.reduce(operator.add, products)


def _loop(step: Step, of: _Pass, table: c.Buffer, source: c.Buffer, target: c.Buffer) -> c.Statement:
    """Return the loop of a pass from one tensor to another."""
    method, type_ = str(step.binding.attrs["method"]), c.CType(target.dtype)
    (outer, length, inner), size = of.view, of.size
    is_along = inner == 1  # the axis is the last: its places are the columns of a row
    count, run = (outer, size) if is_along else (outer * size, inner)
    row, k = c.Variable("row"), c.Variable("k")
    block, index = (row, k) if is_along else (row // size, row % size)
    line, to = c.Buffer("from", source.dtype), c.Buffer("to", target.dtype, c.MemoryAccess.WRITE)
    found, value = _sampled(method, of, table, index, line, c.Size(0) if is_along else k, type_)
    body: c.Block
    if is_along:
        body = (c.For(k, c.Size(0), c.Size(run), (*found, c.Store(to, k, value))),)
    else:
        moves = c.For(k, c.Size(0), c.Size(run), (c.Store(to, k, value),))
        body = (*found, c.as_copy(moves) or moves)
    if of.scale in (None, 1.0):
        copied = c.Copy(to, c.Size(0), line, c.Size(0) if is_along else index * inner, c.Size(run))
        body = (c.If(c.Size(size).compare("==", c.Size(length)), (copied,), body),)
    pointers = (c.Alias(line, source, block * (length * inner)), c.Alias(to, target, row * run))
    element_ps = dtype_info(target.dtype).itemsize * BYTE_PS * (_TAPS[method] + (10 if is_along else 0))
    return c.For(row, c.Size(0), c.Size(count), (*pointers, *body), kind=c.LoopKind.PARALLEL, round_ps=run * element_ps)


def _write(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.resize``: tables, then one pass after another, what lies between them in scratch."""
    (step,) = kernel.group.steps
    passes = _passes(step)
    (x,) = step.operands
    source, out = kernel.source(x), kernel.target(step.result)
    count = product(shape_of(x))
    if not passes:
        kernel.finish_block(copy_block(copy_axes([count], [1], [1]), out, source))
        return
    nothing = c.Clear(out, c.Size(0), c.Size(product(shape_of(step.result))))
    if count == 0:
        kernel.finish_block((nothing,))
        return
    width, nbytes = _WIDTHS[str(step.binding.attrs["method"])], dtype_info(dtype_of(x)).itemsize
    tables = [c.Buffer(f"table{of.number}", "float64", c.MemoryAccess.WRITE) for of in passes]
    between = [c.Buffer(f"between{of.number}", source.dtype, c.MemoryAccess.WRITE) for of in passes[:-1]]
    parts = [(table, of.size * width * 8) for table, of in zip(tables, passes, strict=True)]
    parts += [
        (buffer, of.view.outer * of.size * of.view.inner * nbytes)
        for buffer, of in zip(between, passes[:-1], strict=True)
    ]
    offsets: list[Dim] = [0]
    for _, size in parts:
        offsets.append(offsets[-1] + (size + _LINE - 1) // _LINE * _LINE)
    scratch = kernel.scratch_memory(offsets[-1], "uint8")
    kernel.finish_block(
        (
            c.If(c.Size(count).compare("==", 0), (nothing, c.Return())),
            *(c.Alias(buffer, scratch, c.Size(at)) for (buffer, _), at in zip(parts, offsets[:-1], strict=True)),
            *(_fill(step, of, table) for of, table in zip(passes, tables, strict=True)),
            *(_loop(step, *pass_) for pass_ in zip(passes, tables, [source, *between], [*between, out], strict=True)),
        )
    )


FAMILY = KernelFamily(frozenset({"nn.resize"}), reject_nothing, _write)
"""Resizing."""
