"""Resizing by interpolation: one pass over the tensor along each axis, by a table of neighbours and weights.

Tables are filled in float64 when the kernel runs; one library thus serves all sizes. A pass reads and writes whole rows
unless the axis is the last. Along the last axis, each element has its own neighbours and weights. Further tables hold
the nearest neighbours of a row as indices, and the neighbours and weights of a short row in the dtype of the tensor.
The rows of the result may lie at any distance, as in a part of a concatenation, if the last pass goes along one of the
last two axes.

The nearest neighbours are the same in any order of the passes. Along the last axis, they are found before rows grow
more, because whole rows are copied much faster.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Binding

from byoc_ccompiler.attributes import dims_of, flag_of, float_of, ints_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.axes import AxisView, view_along
from byoc_ccompiler.kernels.copies import copy_nest, loops_around, offset_along
from byoc_ccompiler.kernels.epilogue import collapsed_step
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_WIDTHS = {"nearest": 1, "linear": 3, "cubic": 5}
"""Numbers in the table for each index of the result: the first neighbour, and two or four weights."""

_LINE = 64

_SHORT = 112
"""Elements of a row with weighted neighbours: of a longer row, compilers take indices out of vectors, slowly."""

_UNROLLED = 8
"""Elements of a row found singly, one after another without a loop."""

_REAL = c.CType("float64")
_ZERO = c.Literal(0.0, _REAL)


@dataclass(frozen=True, slots=True)
class _Pass:
    """An axis with a new size; a ``scale`` of ``None`` means the new size over the old.

    ``neighbours`` and ``weights`` are the tables of a pass along rows, one for each neighbour of an element.
    """

    binding: Binding
    method: str
    axis: int
    view: AxisView
    size: Dim
    scale: float | None
    table: c.Buffer

    neighbours: Sequence[c.Buffer]
    weights: Sequence[c.Buffer]

    @property
    def is_along_rows(self) -> bool:
        """Whether the axis is the last: its indices are the columns of a row."""
        return self.view.inner == 1

    @property
    def has_columns(self) -> bool:
        """Whether elements of a row are found by the tables of neighbours and weights."""
        is_short = isinstance(self.size, int) and self.size <= _SHORT
        return self.is_along_rows and (self.method == "nearest" or is_short)


def _passes(step: Step) -> list[_Pass]:
    binding, shape, passes = step.binding, list(shape_of(step.operands[0])), list[_Pass]()
    scales, axes = binding.attrs["scales"], ints_of(binding, "axes")
    for position, axis, size in _in_order(shape, axes, dims_of(binding, "sizes"), str(binding.attrs["method"])):
        scale = float(str(scales[position])) if isinstance(scales, tuple) else None
        if size != shape[axis] or scale not in (None, 1.0):
            table = c.Buffer(f"table{len(passes)}", "float64", c.MemoryAccess.WRITE)
            view, method = view_along(shape, axis), str(binding.attrs["method"])
            columns = _columns(table.name, view, method, dtype_of(step.result))
            passes.append(_Pass(binding, method, axis, view, size, scale, table, *columns))
        shape[axis] = size
    return passes


def _columns(name: str, view: AxisView, method: str, dtype: str) -> tuple[list[c.Buffer], list[c.Buffer]]:
    """Return the tables of neighbours and of weights of a pass along rows."""
    index = "int32" if isinstance(view.size, int) and view.size < 1 << 31 else "int64"
    num_weights, access = _WIDTHS[method] - 1, c.MemoryAccess.WRITE
    neighbours = [c.Buffer(f"{name}_at{tap}", index, access) for tap in range(max(1, num_weights))]
    return neighbours, [c.Buffer(f"{name}_weight{tap}", dtype, access) for tap in range(num_weights)]


def _in_order(
    shape: Sequence[Dim], axes: Sequence[int], sizes: Sequence[Dim], method: str
) -> list[tuple[int, int, Dim]]:
    """Return positions, axes and new sizes in the order of the passes.

    The order is as given. But nearest neighbours are found along the last axis before rows are repeated: of known sizes
    that grow, the last axis comes first.
    """
    order = list(zip(range(len(axes)), axes, sizes, strict=True))
    lengths = [(shape[axis], size) for axis, size in zip(axes, sizes, strict=True)]
    if method != "nearest" or len(shape) - 1 not in axes:
        return order
    grows = [isinstance(old, int) and isinstance(new, int) and new > old for old, new in lengths]
    growing = sorted((item for item in order if grows[item[0]]), key=lambda item: item[1] != len(shape) - 1)
    return [item for item in order if not grows[item[0]]] + growing


def _real(value: c.Expression | Dim) -> c.Expression:
    """Return an index as a float64."""
    return c.Cast(value if isinstance(value, c.Expression) else c.Size(value), _REAL)


def _call(function: np.ufunc, value: c.Expression) -> c.Expression:
    return c.Call(c.Callee(function.__name__, function, flops=1), (value,), _REAL)


def _sample_position(of: _Pass, k: c.Variable) -> c.Expression:
    """Return the position in the operand sampled by an index of the result."""
    size, length, number = of.size, of.view.size, _real(k)
    scale = _real(size) / _real(length) if of.scale is None else c.Literal(of.scale, _REAL)
    centre = (number + 0.5) / scale - 0.5
    positions = {
        "asymmetric": number / scale,
        "align_corners": number * _real(length - 1) / _real(c.index_max(c.Size(size - 1), 1)),
        "half_pixel_for_nearest": (number + 0.5) / scale,
        "half_pixel_or_first": c.Select(c.Size(size).compare("==", 1), _ZERO, centre),
        "half_pixel_symmetric": centre + (_real(length) - _real(size) / scale) / 2.0,
    }
    return positions.get(str(of.binding.attrs["coordinates"]), centre)


def _fill(of: _Pass) -> c.Statement:
    """Return the loop filling the table of a pass."""
    k, table = c.Variable("k"), of.table
    position, found, inside = (c.Variable(name, _REAL) for name in ("position", "found", "inside"))
    rounded = {
        "floor": _call(np.floor, position),
        "ceil": _call(np.ceil, position),
        "half_down": _call(np.ceil, position - 0.5),
        "half_up": _call(np.floor, position + 0.5),
    }
    nearest, last = rounded[str(of.binding.attrs["rounding"])], _real(of.view.size - 1)
    clamped = c.Select(found.compare("<", 0.0), _ZERO, c.Select(found.compare(">", last), last, found))
    lower = _call(np.floor, inside)
    entry = {"nearest": (inside,), "linear": (lower, 1.0 - (inside - lower), inside - lower)}.get(of.method, ())
    body: c.Block = (
        c.Let(found, nearest if of.method == "nearest" else position),
        c.Let(inside, clamped),
        *(c.Store(table, k * len(entry) + number, value) for number, value in enumerate(entry)),
    )
    body = (
        c.Let(position, _sample_position(of, k)),
        *(_cubic_entry(of, k, position) if of.method == "cubic" else body),
    )
    return c.For(k, c.Size(0), c.Size(of.size), body)


def _cubic_entry(of: _Pass, k: c.Variable, position: c.Variable) -> c.Block:
    """Return the statements weighting four neighbours (R. G. Keys, Cubic convolution interpolation, 1981)."""
    binding, entry = of.binding, c.Buffer("entry", "float64", c.MemoryAccess.WRITE)
    slope, is_exclusive = float_of(binding, "cubic_coefficient"), flag_of(binding, "exclude_outside")
    tap, second_tap = c.Variable("tap"), c.Variable("tap")
    at, far, weight, total = (c.Variable(name, _REAL) for name in ("at", "far", "weight", "total"))
    near = (far * (slope + 2) - (slope + 3)) * (far * far) + 1.0
    distant = ((far - 5.0) * far + 8.0) * far * slope - 4 * slope
    weighed: c.Expression = c.Select(far.compare("<=", 1.0), near, distant)
    if is_exclusive:
        is_outside = c.Binary("||", at.compare("<", 0.0), at.compare(">=", _real(of.view.size)))
        weighed = c.Select(is_outside, _ZERO, weighed)
    weigh: c.Block = (
        c.Let(at, entry[0] + _real(tap)),
        c.Let(far, _call(np.fabs, position - at)),
        c.Let(weight, weighed),
        c.Store(entry, tap + 1, weight),
    )
    first = c.Store(entry, c.Size(0), _call(np.floor, position) - 1.0)
    block: c.Block = (c.Alias(entry, of.table, k * 5), first)
    if not is_exclusive:
        return (*block, *loops_around(weigh, [tap], [4]))
    weighs = loops_around((*weigh, c.Assign(total, total + weight)), [tap], [4])
    divides = loops_around((c.Store(entry, second_tap + 1, entry[second_tap + 1] / total),), [second_tap], [4])
    return (*block, c.Declare(total, _ZERO), *weighs, *divides)


def _neighbours(of: _Pass, index: c.Expression, dtype: str) -> tuple[c.Block, list[c.Expression], list[c.Expression]]:
    """Return the statements finding the neighbours of an index, the neighbours, and the weights, if any."""
    entry, type_ = c.Buffer("entry", "float64"), c.CType(dtype)
    neighbour, taps = c.Cast(entry[0], c.INDEX), range(_WIDTHS[of.method] - 1)
    clamped = [c.index_min(c.index_max(neighbour + tap, 0), of.view.size - 1) for tap in taps]
    found = [c.Let(c.Variable(f"tap{tap}"), at) for tap, at in enumerate(clamped or [neighbour])]
    weights = [c.Let(c.Variable(f"weight{tap}", type_), c.Cast(entry[tap + 1], type_)) for tap in taps]
    statements = (c.Alias(entry, of.table, index * _WIDTHS[of.method]), *found, *weights)
    return statements, [let.variable for let in found], [let.variable for let in weights]


def _fill_columns(of: _Pass, dtype: str) -> c.For:
    """Return the loop filling the tables of a pass along rows, from the table of the pass."""
    k = c.Variable("k")
    found, neighbours, weights = _neighbours(of, k, dtype)
    stores = [
        *(
            c.Store(to, k, c.Cast(value, c.CType(to.dtype)))
            for to, value in zip(of.neighbours, neighbours, strict=True)
        ),
        *(c.Store(to, k, value) for to, value in zip(of.weights, weights, strict=True)),
    ]
    return c.For(k, c.Size(0), c.Size(of.size), (*found, *stores))


def _weighted(elements: Sequence[c.Expression], weights: Sequence[c.Expression]) -> c.Expression:
    """Return the sum of elements, each with its weight, if any."""
    terms = [element * weight for element, weight in zip(elements, weights, strict=True)] if weights else elements
    return functools.reduce(operator.add, terms)


def _singly(count: c.Expression, move: Callable[[c.Expression], c.Statement]) -> c.Block:
    """Return the loops over ``count`` elements found singly.

    Compilers gather the elements of a loop with vector instructions, slower than single elements.
    """
    u, k, last, part = c.Variable("u"), c.Variable("k"), c.Variable("k"), c.Size(_UNROLLED)
    parts_end = count // _UNROLLED * _UNROLLED
    some = c.For(u, c.Size(0), part, (move(k + u),), kind=c.LoopKind.UNROLLED)
    return (
        c.For(k, c.Size(0), parts_end, (some,), step=_UNROLLED),
        c.For(last, parts_end, count, (move(last),)),
    )


def _loop(
    of: _Pass, source: c.Buffer, target: c.Buffer, offset_of: Callable[[c.Expression], c.Expression] | None
) -> c.Block:
    """Return the loop of a pass between two tensors.

    ``offset_of`` returns the offset of a row of the target; ``None``: the rows follow one another.
    """
    (outer, length, inner), size = of.view, of.size
    is_along = of.is_along_rows
    count, run = (outer, size) if is_along else (outer * size, inner)
    row, k = c.Variable("row"), c.Variable("k")
    block, index = (row, c.Size(0)) if is_along else (row // size, row % size)
    line, to = c.Buffer("from", source.dtype), c.Buffer("to", target.dtype, c.MemoryAccess.WRITE)
    if of.has_columns:

        def move(column: c.Expression) -> c.Store:
            found = [line[c.Cast(neighbour[column], c.INDEX)] for neighbour in of.neighbours]
            return c.Store(to, column, _weighted(found, [weight[column] for weight in of.weights]))

        body = _singly(c.Size(run), move)
    else:
        found, neighbours, weights = _neighbours(of, k if is_along else index, target.dtype)
        column = c.Size(0) if is_along else k
        moved = c.Store(to, k, _weighted([line[neighbour * inner + column] for neighbour in neighbours], weights))
        moves = c.For(k, c.Size(0), c.Size(run), (*found, moved) if is_along else (moved,))
        body = (moves,) if is_along else (*found, c.as_copy(moves) or moves)
    if of.scale in (None, 1.0):
        copied = c.Copy(to, c.Size(0), line, index * inner, c.Size(run))
        body = (c.If(c.Size(size).compare("==", c.Size(length)), (copied,), body),)
    pointers = (
        c.Alias(line, source, block * (length * inner)),
        c.Alias(to, target, row * run if offset_of is None else offset_of(row)),
    )
    return loops_around((*pointers, *body), [row], [count], part=0)


def _write(kernel: Kernel) -> None:
    """Write the kernel of ``nn.resize``: tables, then the passes in turn, with intermediate tensors in scratch."""
    (step,) = kernel.group.steps
    passes, (x,) = _passes(step), step.operands
    source, out, count = kernel.source(x), kernel.target(step.result), product(shape_of(x))
    if not passes:
        kernel.finish_block(kernel.lower(*copy_nest(out, source, [count], [1], [1])))
        return
    nothing = c.Clear(out, c.Size(0), c.Size(product(shape_of(step.result))))
    if count == 0:
        kernel.finish_block((nothing,))
        return
    nbytes, along = dtype_info(out.dtype).itemsize, [of for of in passes if of.has_columns]
    columns = [(of, buffer) for of in along for buffer in (*of.neighbours, *of.weights)]
    between = [c.Buffer(f"between{number}", source.dtype, c.MemoryAccess.WRITE) for number in range(len(passes) - 1)]
    parts = [
        *((of.table, of.size * (_WIDTHS[of.method] * 8)) for of in passes),
        *((buffer, of.size * dtype_info(buffer.dtype).itemsize) for of, buffer in columns),
        *(
            (buffer, of.view.outer * of.size * of.view.inner * nbytes)
            for buffer, of in zip(between, passes, strict=False)
        ),
    ]
    *offsets, total = itertools.accumulate(((size + _LINE - 1) // _LINE * _LINE for _, size in parts), initial=0)
    scratch = kernel.scratch_memory(total, "uint8")
    tensors = itertools.pairwise([source, *between, out])
    block = (
        c.If(c.Size(count).compare("==", 0), (nothing, c.Return())),
        *(c.Alias(buffer, scratch, c.Size(at)) for (buffer, _), at in zip(parts, offsets, strict=True)),
        *map(_fill, passes),
        *(_fill_columns(of, out.dtype) for of in along),
        *(
            loop
            for of, ends in zip(passes, tensors, strict=True)
            for loop in _loop(of, *ends, _row_offset(kernel, step) if of is passes[-1] else None)
        ),
    )
    kernel.finish_block(block)


def _row_offset(kernel: Kernel, step: Step) -> Callable[[c.Expression], c.Expression] | None:
    """Return the function from rows of the result to their offsets; ``None`` if the rows follow one another."""
    sizes, strides = shape_of(step.result)[:-1], kernel.strides(step.result)
    if strides == compact_strides(shape_of(step.result)):
        return None
    distance = collapsed_step(sizes, sizes, strides[:-1])
    if distance is not None:
        return lambda row: row * distance
    return lambda row: offset_along(c.unravelled(row, sizes), strides[:-1])


def _writes(step: Step, index: int) -> Access:
    """Return the access to the result: rows, if these are the rows of the last pass, and the tensor is not empty."""
    shape, passes = shape_of(step.operands[0]), _passes(step)
    if not passes or not all(isinstance(size, int) and size > 0 for size in shape):
        return Access.COMPACT
    axis, last = passes[-1].axis, len(shape) - 1
    has_rows = axis == last or (axis == last - 1 and shape_of(step.result)[last] != 1)
    return Access.ROWS if has_rows else Access.COMPACT


FAMILY = KernelFamily(frozenset({"nn.resize"}), reject_nothing, _write, writes=_writes)
"""Resizing."""
