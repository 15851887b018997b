"""Ops whose result has, along an axis, elements of the operand at places that a rule gives.

Rotation, continuation beyond borders, reversal of sequences, triangles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim, dim_max, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import axis_of, dim_of, flag_of, ints_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import (
    BYTE_PS,
    MOVE_PS,
    copy_axes,
    copy_block,
    copy_run,
    loops_around,
    offset_along,
)
from byoc_ccompiler.kernels.index_checks import range_check
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]


def _edge(at: c.Expression, size: Dim) -> c.Expression:
    return c.index_min(c.index_max(at, 0), size - 1)


def _reflect(at: c.Expression, size: Dim) -> c.Expression:
    period = c.Size(dim_max(2 * size - 2, 1))
    return c.index_min(c.index_mod(at, period), c.index_mod(c.Unary("-", at), period))


_BORDERS: Mapping[str, Callable[[c.Expression, Dim], c.Expression]] = {
    "edge": _edge,
    "wrap": c.index_mod,
    "reflect": _reflect,
}
"""The place on an axis that stands for a place beyond its borders, by mode."""


def _indices(shape: Sequence[Dim]) -> list[c.Variable]:
    return [c.Variable(f"i{axis}") for axis in range(len(shape))]


def _roll(kernel: Kernel, step: Step) -> c.Block:
    shape = shape_of(step.operands[0])
    indices, places = _indices(shape), dict[int, c.Expression]()
    for axis, shift in zip(ints_of(step.binding, "axis"), ints_of(step.binding, "shift"), strict=True):
        places[axis % len(shape)] = c.index_mod(indices[axis] - shift, shape[axis])
    return _mapped(kernel, step, indices, places)


def _border_pad(kernel: Kernel, step: Step) -> c.Block:
    shape, widths = shape_of(step.operands[0]), ints_of(step.binding, "pad_width")
    rule = _BORDERS[str(step.binding.attrs["mode"])]
    indices, places = _indices(shape), dict[int, c.Expression]()
    for axis, size in enumerate(shape):
        if any(widths[2 * axis : 2 * axis + 2]):
            places[axis] = rule(indices[axis] - widths[2 * axis], size)
    return _mapped(kernel, step, indices, places)


def _mapped(kernel: Kernel, step: Step, indices: Sequence[c.Variable], places: Mapping[int, c.Expression]) -> c.Block:
    """Return the statements that copy, along some axes from a place that the loop's index gives.

    What lies behind the last of these axes is copied as a whole.

    Args:
        kernel: the kernel that they stand in.
        step: the op.
        indices: the index of each axis of the result.
        places: the place on the operand's axis, by axis.
    """
    (x,) = step.operands
    source, out = kernel.source(x), kernel.target(step.result)
    result = shape_of(step.result)
    if not places:
        return copy_block(copy_axes([product(result)], [1], [1]), out, source)
    depth = max(places) + 1
    run = product(result[depth:])
    along = [c.Variable(f"at{axis}") if axis in places else index for axis, index in enumerate(indices[:depth])]
    target = offset_along(indices[:depth], compact_strides(result)[:depth])
    body = copy_run(out, target, source, offset_along(along, compact_strides(shape_of(x))[:depth]), run)
    run_ps = MOVE_PS if run == 1 else run * (dtype_info(out.dtype).itemsize * BYTE_PS)
    round_ps = product(result[1:depth]) * run_ps
    for axis in reversed(range(depth)):
        lets = (c.Let(along[axis], places[axis]),) if axis in places else ()
        body = loops_around(
            (*lets, *body),
            indices[axis : axis + 1],
            result[axis : axis + 1],
            part=None if axis else 0,
            round_ps=round_ps,
        )
    return body


def _reverse_sequence(kernel: Kernel, step: Step) -> c.Block:
    x, lengths = step.operands
    shape = shape_of(x)
    batch, sequence = (axis_of(step.binding, len(shape), name) for name in ("batch_axis", "seq_axis"))
    ends, source, out = kernel.source(lengths, "lengths"), kernel.source(x), kernel.target(step.result)
    problem = f"a length does not fit axis {sequence}"
    count = product(shape_of(lengths))
    checks = range_check(kernel, step.op, problem, ends, count, c.Size(0), c.Size(shape[sequence]))
    strides, depth = compact_strides(shape), max(batch, sequence) + 1
    run, indices = product(shape[depth:]), _indices(shape[:depth])
    here, turn = offset_along(indices, strides[:depth]), indices[sequence]
    end, moved = c.Variable("end"), c.Variable("moved")
    body = (
        c.Let(end, c.Cast(ends[indices[batch]], c.INDEX)),
        c.Let(moved, c.Select(turn.compare("<", end), end - 1 - turn * 2, c.Size(0))),
        *copy_run(out, here, source, here + moved * strides[sequence], run),
    )
    run_ps = run * (dtype_info(dtype_of(x)).itemsize * BYTE_PS) + MOVE_PS
    return (*checks, *loops_around(body, indices, shape[:depth], part=0, round_ps=product(shape[1:depth]) * run_ps))


def _trilu(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    shape = shape_of(x)
    rows, columns = shape[-2:]
    source, out = kernel.source(x), kernel.target(step.result)
    is_upper, diagonal = flag_of(step.binding, "upper"), dim_of(step.binding, "k")
    row, edge = c.Variable("row"), c.Variable("edge")
    first, last = row * columns, c.Size(columns) - edge
    crossing = row % rows + (diagonal if is_upper else diagonal + 1)
    moves: c.Block = (c.Copy(out, first, source, first, edge), c.Clear(out, first + edge, last))
    if is_upper:
        moves = (c.Copy(out, first + edge, source, first + edge, last), c.Clear(out, first, edge))
    body = (c.Let(edge, c.index_min(c.index_max(crossing, 0), columns)), *moves)
    row_ps = columns * (dtype_info(out.dtype).itemsize * BYTE_PS)
    return (c.For(row, c.Size(0), c.Size(product(shape[:-1])), body, kind=c.LoopKind.PARALLEL, round_ps=row_ps),)


_WRITERS: dict[str, Callable[[Kernel, Step], c.Block]] = {
    "roll": _roll,
    "nn.border_pad": _border_pad,
    "reverse_sequence": _reverse_sequence,
    "trilu": _trilu,
}


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op that moves elements by a rule."""
    (step,) = kernel.group.steps
    kernel.finish_block(_WRITERS[step.op](kernel, step))


def _require(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    shape = shape_of(step.operands[0])
    if step.op == "reverse_sequence":
        batch = axis_of(step.binding, len(shape), "batch_axis")
        require_equal_sizes(scope, step, 1, shape_of(step.operands[1]), shape[batch : batch + 1])
    elif step.op == "nn.border_pad":
        widths: Sequence[int] = ints_of(step.binding, "pad_width")
        least = [int(any(widths[2 * axis : 2 * axis + 2])) for axis in range(len(shape))]
        scope.require_at_least(step.op, "operand `x`", shape, least)


FAMILY = KernelFamily(frozenset(_WRITERS), reject_nothing, _write, takes_halves=True, require=_require)
"""Ops that move elements by a rule along an axis."""
