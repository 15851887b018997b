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
from byoc_ccompiler.kernels.copies import BYTE_PS, MOVE_PS, copy_axes, copy_block, copy_run, loops_around, offset_along
from byoc_ccompiler.kernels.index_checks import range_check
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]


def _edge(at: c.Expression, size: Dim) -> c.Expression:
    return c.index_min(c.index_max(at, 0), size - 1)


def _reflect(at: c.Expression, size: Dim) -> c.Expression:
    period = c.Size(dim_max(2 * size - 2, 1))
    return c.index_min(c.index_mod(at, period), c.index_mod(c.Unary("-", at), period))


_BORDERS = {"edge": _edge, "wrap": c.index_mod, "reflect": _reflect}
"""The place on an axis that stands for a place beyond its borders, by mode."""


def _indices(step: Step) -> list[c.Variable]:
    return [c.Variable(f"i{axis}") for axis in range(len(shape_of(step.operands[0])))]


def _roll(kernel: Kernel, step: Step) -> c.Block:
    indices, shape = _indices(step), shape_of(step.operands[0])
    shifts = zip(ints_of(step.binding, "axis"), ints_of(step.binding, "shift"), strict=True)
    places = {axis % len(shape): c.index_mod(indices[axis] - shift, shape[axis]) for axis, shift in shifts}
    return _mapped(kernel, step, indices, places)


def _border_pad(kernel: Kernel, step: Step) -> c.Block:
    indices, rule = _indices(step), _BORDERS[str(step.binding.attrs["mode"])]
    places = {
        axis: rule(indices[axis] - before, size)
        for axis, ((before, after), size) in enumerate(zip(_widths(step), shape_of(step.operands[0]), strict=True))
        if before or after
    }
    return _mapped(kernel, step, indices, places)


def _widths(step: Step) -> list[tuple[int, int]]:
    """Return the elements before and behind each axis that ``nn.border_pad`` adds."""
    widths = ints_of(step.binding, "pad_width")
    return list(zip(widths[::2], widths[1::2], strict=True))


def _reverse_sequence(kernel: Kernel, step: Step) -> c.Block:
    x, lengths = step.operands
    indices, shape, ends = _indices(step), shape_of(x), kernel.source(lengths, "lengths")
    batch, sequence = (axis_of(step.binding, len(shape), name) for name in ("batch_axis", "seq_axis"))
    problem, count = f"a length does not fit axis {sequence}", product(shape_of(lengths))
    checks = range_check(kernel, step.op, problem, ends, count, c.Size(0), c.Size(shape[sequence]))
    turn, end = indices[sequence], c.Cast(ends[indices[batch]], c.INDEX)
    place = c.Select(turn.compare("<", end), end - 1 - turn, turn)
    return (*checks, *_mapped(kernel, step, indices, {sequence: place}))


def _mapped(kernel: Kernel, step: Step, indices: Sequence[c.Variable], places: Mapping[int, c.Expression]) -> c.Block:
    """Return the statements that copy, along some axes from a place that follows from the indices of the result.

    What lies behind the last of these axes is copied as a whole.
    """
    source, out, result = kernel.source(step.operands[0]), kernel.target(step.result), shape_of(step.result)
    if not places:
        return copy_block(copy_axes([product(result)], [1], [1]), out, source)
    # A place is found in the innermost of the loops whose indices it follows from.
    loop_of = {axis: max(map(indices.index, c.variables_in(place))) for axis, place in places.items()}
    depth = max(loop_of.values()) + 1
    run = product(result[depth:])
    along = [c.Variable(f"at{axis}") if axis in places else index for axis, index in enumerate(indices[:depth])]
    target = offset_along(indices[:depth], compact_strides(result)[:depth])
    origin = offset_along(along, compact_strides(shape_of(step.operands[0]))[:depth])
    body = copy_run(out, target, source, origin, run)
    run_ps = MOVE_PS if run == 1 else run * (dtype_info(out.dtype).itemsize * BYTE_PS)
    for axis in reversed(range(depth)):
        lets = (c.Let(along[at], place) for at, place in places.items() if loop_of[at] == axis)
        part, round_ps = None if axis else 0, product(result[1:depth]) * run_ps
        body = loops_around((*lets, *body), [indices[axis]], [result[axis]], part=part, round_ps=round_ps)
    return body


def _trilu(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    *outer, rows, columns = shape_of(x)
    source, out, row, edge = kernel.source(x), kernel.target(step.result), c.Variable("row"), c.Variable("edge")
    is_upper, diagonal = flag_of(step.binding, "upper"), dim_of(step.binding, "k")
    first, last = row * columns, c.Size(columns) - edge
    crossing = row % rows + (diagonal if is_upper else diagonal + 1)
    moves: c.Block = (c.Copy(out, first, source, first, edge), c.Clear(out, first + edge, last))
    if is_upper:
        moves = (c.Copy(out, first + edge, source, first + edge, last), c.Clear(out, first, edge))
    body = (c.Let(edge, c.index_min(c.index_max(crossing, 0), columns)), *moves)
    row_ps = columns * (dtype_info(out.dtype).itemsize * BYTE_PS)
    return loops_around(body, [row], [product([*outer, rows])], part=0, round_ps=row_ps)


_WRITERS: dict[str, Callable[[Kernel, Step], c.Block]] = {
    "roll": _roll,
    "nn.border_pad": _border_pad,
    "reverse_sequence": _reverse_sequence,
    "trilu": _trilu,
}


def _write(kernel: Kernel) -> None:
    """Write the kernel of an op that moves elements by a rule."""
    (step,) = kernel.group.steps
    kernel.finish_block(_WRITERS[step.op](kernel, step))


def _require(scope: FunctionScope, step: Step) -> None:
    """Have sizes checked that symbols hide from the type rules."""
    shape = shape_of(step.operands[0])
    if step.op == "reverse_sequence":
        batch = axis_of(step.binding, len(shape), "batch_axis")
        require_equal_sizes(scope, step, 1, shape_of(step.operands[1]), shape[batch : batch + 1])
    elif step.op == "nn.border_pad":
        scope.require_at_least(step.op, "operand `x`", shape, [int(any(widths)) for widths in _widths(step)])


FAMILY = KernelFamily(frozenset(_WRITERS), reject_nothing, _write, takes_halves=True, require=_require)
"""Ops that move elements by a rule along an axis."""
