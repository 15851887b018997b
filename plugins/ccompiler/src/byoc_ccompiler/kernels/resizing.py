"""Resizing by interpolation: one pass over the tensor along each axis, by a table of neighbours and weights.

Tables are filled in float64 when the kernel runs, so that one library serves all sizes; a pass reads and writes whole
rows where the axis is not the last.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import numpy as np
from byoc_core.authoring.c import (
    INDEX,
    Alias,
    Assign,
    Binary,
    Block,
    Buffer,
    Call,
    Callee,
    Cast,
    Clear,
    Copy,
    CType,
    Declare,
    Expression,
    For,
    If,
    Let,
    Literal,
    LoopKind,
    MemoryAccess,
    Return,
    Select,
    Size,
    Statement,
    Store,
    Variable,
    as_copy,
    index_max,
    index_min,
)
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import dims_of, flag_of, float_of, ints_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import AxisView, view_along
from byoc_ccompiler.kernels.copies import BYTE_PS, copy_axes, copy_block
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_WIDTHS = {"nearest": 1, "linear": 2, "cubic": 5}
"""Numbers in the table for each index of the result: a neighbour; and a part; or the weights of four."""

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}

_REAL = CType("float64")

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


def _real(value: Expression | Dim) -> Expression:
    """Return an index as a float64."""
    return Cast(value if isinstance(value, Expression) else Size(value), _REAL)


def _floor(value: Expression) -> Expression:
    return Call(Callee("floor", np.floor, flops=1), (value,), _REAL)


def _ceil(value: Expression) -> Expression:
    return Call(Callee("ceil", np.ceil, flops=1), (value,), _REAL)


def _place(step: Step, of: _Pass, k: Variable) -> Expression:
    """Return the place in the operand that an index of the result samples."""
    size, length, number = of.size, of.view.size, _real(k)
    scale = _real(size) / _real(length) if of.scale is None else Literal(of.scale, _REAL)
    coordinates = step.binding.attrs["coordinates"]
    if coordinates == "asymmetric":
        return number / scale
    if coordinates == "align_corners":
        return number * _real(length - 1) / _real(index_max(Size(size - 1), 1))
    if coordinates == "half_pixel_for_nearest":
        return (number + 0.5) / scale
    place = (number + 0.5) / scale - 0.5
    if coordinates == "half_pixel_or_first":
        return Select(Size(size).compare("==", 1), Literal(0.0, _REAL), place)
    if coordinates == "half_pixel_symmetric":
        return place + (_real(length) - _real(size) / scale) / 2.0
    return place


def _fill(step: Step, of: _Pass, table: Buffer) -> Statement:
    """Return the loop that fills the table of a pass."""
    method, k = str(step.binding.attrs["method"]), Variable("k")
    place, found, inside = (Variable(name, _REAL) for name in ("place", "found", "inside"))
    body: list[Statement] = [Let(place, _place(step, of, k))]
    if method == "cubic":
        return For(k, Size(0), Size(of.size), (*body, *_cubic_entry(step, of, table, k, place)))
    nearest = {
        "floor": _floor(place),
        "ceil": _ceil(place),
        "half_down": _ceil(place - 0.5),
        "half_up": _floor(place + 0.5),
    }
    last = _real(of.view.size - 1)
    upper = Select(found.compare(">", last), last, found)
    body += [
        Let(found, nearest[str(step.binding.attrs["rounding"])] if method == "nearest" else place),
        Let(inside, Select(found.compare("<", 0.0), Literal(0.0, _REAL), upper)),
    ]
    if method == "nearest":
        body.append(Store(table, k, inside))
    else:
        body += [Store(table, k * 2, _floor(inside)), Store(table, k * 2 + 1, inside - _floor(inside))]
    return For(k, Size(0), Size(of.size), tuple(body))


def _cubic_entry(step: Step, of: _Pass, table: Buffer, k: Variable, place: Variable) -> Block:
    """Return the statements that weigh four neighbours.

    Source: R. G. Keys, Cubic convolution interpolation (1981).
    """
    slope, is_exclusive = float_of(step.binding, "cubic_coefficient"), flag_of(step.binding, "exclude_outside")
    entry, tap, again = Buffer("entry", "float64", MemoryAccess.WRITE), Variable("tap"), Variable("tap")
    at, far, weight, total = (Variable(name, _REAL) for name in ("at", "far", "weight", "total"))
    near = (far * (slope + 2) - (slope + 3)) * (far * far) + 1.0
    distant = ((far - 5.0) * far + 8.0) * far * slope - 4 * slope
    weighed: Expression = Select(far.compare("<=", 1.0), near, distant)
    if is_exclusive:
        is_outside = Binary("||", at.compare("<", 0.0), at.compare(">=", _real(of.view.size)))
        weighed = Select(is_outside, Literal(0.0, _REAL), weighed)
    weigh: Block = (
        Let(at, entry[0] + _real(tap)),
        Let(far, Call(Callee("fabs", np.abs, flops=1), (place - at,), _REAL)),
        Let(weight, weighed),
        Store(entry, tap + 1, weight),
    )
    begin: Block = (Alias(entry, table, k * 5), Store(entry, Size(0), _floor(place) - 1.0))
    if not is_exclusive:
        return (*begin, For(tap, Size(0), Size(4), weigh))
    return (
        *begin,
        Declare(total, Literal(0.0, _REAL)),
        For(tap, Size(0), Size(4), (*weigh, Assign(total, total + weight))),
        For(again, Size(0), Size(4), (Store(entry, again + 1, entry[again + 1] / total),)),
    )


def _sampled(
    method: str, of: _Pass, table: Buffer, index: Expression, line: Buffer, k: Expression, type_: CType
) -> tuple[Block, Expression]:
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
    entry = Buffer("entry", "float64")
    neighbour = Cast(entry[0], INDEX)
    taps: list[Expression] = [neighbour]
    shares: list[Expression] = []
    if method != "nearest":
        taps = [index_min(index_max(neighbour + tap, 0), of.view.size - 1) for tap in range(_TAPS[method])]
        shares = [1.0 - entry[1], entry[1]] if method == "linear" else [entry[tap + 1] for tap in range(4)]
    offsets = [Variable(f"tap{number}") for number in range(len(taps))]
    weights = [Variable(f"weight{number}", type_) for number in range(len(shares))]
    statements: Block = (
        Alias(entry, table, index * _WIDTHS[method]),
        *(Let(offset, tap * of.view.inner) for offset, tap in zip(offsets, taps, strict=True)),
        *(Let(weight, Cast(share, type_)) for weight, share in zip(weights, shares, strict=True)),
    )
    elements: list[Expression] = [line[offset + k] for offset in offsets]
    products = [element * weight for element, weight in zip(elements, weights, strict=True)] if weights else elements
    return statements, functools.reduce(operator.add, products)


def _loop(step: Step, of: _Pass, table: Buffer, source: Buffer, target: Buffer) -> Statement:
    """Return the loop of a pass from one tensor to another."""
    method, type_ = str(step.binding.attrs["method"]), CType(target.dtype)
    (outer, length, inner), size = of.view, of.size
    is_along = inner == 1  # the axis is the last: its places are the columns of a row
    count, run = (outer, size) if is_along else (outer * size, inner)
    row, k = Variable("row"), Variable("k")
    block, index = (row, k) if is_along else (row // size, row % size)
    line, to = Buffer("from", source.dtype), Buffer("to", target.dtype, MemoryAccess.WRITE)
    found, value = _sampled(method, of, table, index, line, Size(0) if is_along else k, type_)
    body: Block
    if is_along:
        body = (For(k, Size(0), Size(run), (*found, Store(to, k, value))),)
    else:
        moves = For(k, Size(0), Size(run), (Store(to, k, value),))
        body = (*found, as_copy(moves) or moves)
    if of.scale in (None, 1.0):
        copied = Copy(to, Size(0), line, Size(0) if is_along else index * inner, Size(run))
        body = (If(Size(size).compare("==", Size(length)), (copied,), body),)
    pointers = (Alias(line, source, block * (length * inner)), Alias(to, target, row * run))
    element_ps = dtype_info(target.dtype).itemsize * BYTE_PS * (_TAPS[method] + (10 if is_along else 0))
    return For(row, Size(0), Size(count), (*pointers, *body), kind=LoopKind.PARALLEL, round_ps=run * element_ps)


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
    nothing = Clear(out, Size(0), Size(product(shape_of(step.result))))
    if count == 0:
        kernel.finish_block((nothing,))
        return
    width, nbytes = _WIDTHS[str(step.binding.attrs["method"])], dtype_info(dtype_of(x)).itemsize
    tables = [Buffer(f"table{of.number}", "float64", MemoryAccess.WRITE) for of in passes]
    between = [Buffer(f"between{of.number}", source.dtype, MemoryAccess.WRITE) for of in passes[:-1]]
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
            If(Size(count).compare("==", 0), (nothing, Return())),
            *(Alias(buffer, scratch, Size(at)) for (buffer, _), at in zip(parts, offsets[:-1], strict=True)),
            *(_fill(step, of, table) for of, table in zip(passes, tables, strict=True)),
            *(_loop(step, *pass_) for pass_ in zip(passes, tables, [source, *between], [*between, out], strict=True)),
        )
    )


FAMILY = KernelFamily(frozenset({"nn.resize"}), reject_nothing, _write)
"""Resizing."""
