"""Steps turned into loads of their only reader: gathers, rolls, windows, cheap steps of another shape.

A gather, or a chain of movements with a result not described by strides, would copy its elements for elementwise steps
or reductions. If no other step reads the result, each element is computed at its use. The same holds for cheap
elementwise steps behind a reshape, otherwise a separate kernel.

The decision is about time only, but every chosen step needs an expression in :mod:`byoc_ccompiler.kernels.loads`: an op
of ``LOADS``, or an elementwise op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from byoc_core.authoring.layouts import Layout, compact_layout, result_layouts
from byoc_core.dims import Dim, product
from byoc_core.ir import Value, Var

from byoc_ccompiler.kernel import Group
from byoc_ccompiler.kernels.loads import LOADS, keeps_rows, rejoins_slices
from byoc_ccompiler.kernels.pointwise import operand_dims
from byoc_ccompiler.kernels.row_reducers import REDUCTIONS
from byoc_ccompiler.kernels.row_writer import CHEAP
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["form_loads", "move_before_norms"]

_LEAST_ROW = 8
"""Minimum elements of a row for which locating each row anew pays."""

_NORMS = frozenset({"nn.layer_norm", "nn.rms_norm"})

_MAX_LOADS = 16

_VECTOR, _LONG_ROW = 16, 256
"""Elements of the widest vector, and of a long row."""


def form_loads(groups: Sequence[Group], results: Sequence[Value]) -> list[Group]:
    """Return the groups, taking in as loads the groups read by a single other group, if a kernel is saved.

    Args:
        groups: in an order with every value written before another group reads it; the result has the same order.
        results: the results of the function.

    Cost: linear in the steps and their operands.
    """
    former = _Former(groups, results)
    for group in groups:
        if group.space is not None and not group.anchored and 0 not in group.space:
            former.add_loads(group, group.space)
    return [group for group in groups if group not in former.absorbed]


def move_before_norms(steps: Sequence[Step], results: Sequence[Value]) -> list[Step]:
    """Return the steps with rows moved before a norm instead of after, if the later move would be a copy.

    The operand of such a norm is in memory for other readers too; the movement becomes a load of the norm.

    Args:
        steps: in an order with every value made before all uses.
        results: the results of the function.

    Cost: linear in the steps and their operands, except for sorting the steps behind a norm.
    """
    readers, outputs = _readers_of(steps), set(results)
    order = {step: number for number, step in enumerate(steps)}
    changed: dict[Step, list[Step]] = {}
    for norm in steps:
        if norm.op not in _NORMS or len(readers[norm.operands[0]]) < 2:
            continue
        moves = _moves_behind(norm, order, readers)
        inside = {norm, *moves.values()}
        values = [norm.result, *moves]
        ends = [value for value in values if value in outputs or not inside.issuperset(readers.get(value, ()))]
        if len(ends) == 1 and ends[0] in moves and _layout(ends[0], moves) is None:
            changed |= _moved_before(norm, moves, ends[0])
    return [new for step in steps for new in changed.get(step, (step,))]


def _readers_of(steps: Iterable[Step]) -> dict[Value, list[Step]]:
    readers: dict[Value, list[Step]] = {}
    for step in steps:
        for operand in dict.fromkeys(step.operands):
            readers.setdefault(operand, []).append(step)
    return readers


def _moves_behind(norm: Step, order: Mapping[Step, int], readers: Mapping[Value, Sequence[Step]]) -> dict[Value, Step]:
    """Return the steps moving whole rows of the result of a norm, by their results and in order."""
    axes = norm.binding.attrs["axes"]
    rank = len(shape_of(norm.result))
    if axes not in ((-1,), (rank - 1,)):
        return {}
    waiting: list[Value] = [norm.result]
    moves: set[Step] = set()
    while waiting:
        for step in readers.get(waiting.pop(), ()):
            if step not in moves and step.op in LOADS and step.op != "take" and keeps_rows(step) and _is_long(step):
                moves.add(step)
                waiting.append(step.result)
    found: dict[Value, Step] = {step.result: step for step in sorted(moves, key=order.__getitem__)}
    joins = [step for step in moves if step.op == "concat"]
    return found if all(rejoins_slices(step, found) for step in joins) else {}


def _moved_before(norm: Step, moves: Mapping[Value, Step], end: Value) -> dict[Step, list[Step]]:
    """Return the replacements of steps for a norm behind the moves of the norm's rows.

    Args:
        norm: the norm.
        moves: the steps moving the norm's rows, by their results and in order.
        end: the rows as read by other steps.
    """
    x, *parameters = norm.operands
    values: dict[Value, Value] = {norm.result: x}
    changed: dict[Step, list[Step]] = {norm: []}
    for step in moves.values():
        values[step.result] = Var(step.result.name, step.result.type)
        changed[step] = [_rebound(step, [values[operand] for operand in step.operands], values[step.result])]
    moved = _rebound(norm, [values[end], *parameters], end)
    attrs = {**norm.binding.attrs, "axes": (-1,)}
    changed[moves[end]].append(replace(moved, binding=replace(moved.binding, attrs=attrs)))
    return changed


def _rebound(step: Step, operands: Sequence[Value], result: Value) -> Step:
    """Return a step with other operands and another result."""
    assert isinstance(result, Var)
    binding = replace(step.binding, operands=tuple(operands), results=(result,))
    return replace(step, binding=binding, operands=tuple(operands))


class _Former:
    """The groups absorbed so far into other groups as loads."""

    def __init__(self, groups: Sequence[Group], results: Sequence[Value]) -> None:
        self.absorbed: set[Group] = set()
        self._results = set(results)
        self._maker = {value: group for group in groups for value in group.results}
        self._readers = _readers_of(step for group in groups for step in group.steps)

    def add_loads(self, group: Group, space: tuple[Dim, ...]) -> None:
        """Add loads to a group of elementwise steps or reductions over a space."""
        for value in dict.fromkeys(operand for step in group.steps for operand in step.operands):
            readers = self._readers[value]
            is_at_hand = value in group.results or shape_of(value) != space
            if is_at_hand or not all(step in group.steps and _reads_along(group, step, value) for step in readers):
                continue
            loads = self._loads_of(group, value)
            if 0 < len(loads) <= _MAX_LOADS - len(group.loads) and _saves_kernel(group, value, loads):
                group.loads.update(reversed(loads.items()))
                group.results.update(loads)
                self.absorbed.update(self._maker[load] for load in loads)

    def _loads_of(self, group: Group, value: Value) -> dict[Value, Step]:
        """Return the steps used for a single value only, by their results; none if an element has no expression."""
        found: dict[Value, Step] = {}
        readers = set(group.steps)
        waiting = {value: None}
        while accepted := [item for item in waiting if self._is_load(item, readers, product(shape_of(value)))]:
            for item in accepted:
                del waiting[item]
                steps = self._maker[item].steps
                found.update((step.result, step) for step in steps)
                readers.update(steps)
                waiting.update((operand, None) for step in steps for operand in step.operands if operand not in found)
        joins = (step for step in found.values() if step.op == "concat")
        return found if all(rejoins_slices(step, found) for step in joins) else {}

    def _is_load(self, value: Value, readers: set[Step], count: Dim) -> bool:
        """Return whether a value's maker can be computed at its uses: ``count`` elements, read by ``readers`` alone."""
        maker = self._maker.get(value)
        if maker is None or maker.anchored or maker.reduced is not None or maker.loads or maker in self.absorbed:
            return False
        inside = readers | set(maker.steps)
        if any(
            result in self._results or not inside.issuperset(self._readers.get(result, ())) for result in maker.results
        ):
            return False
        if maker.space is not None:
            return product(maker.space) == count and all(step.op in CHEAP for step in maker.steps)
        (step, *further_steps) = maker.steps
        return not further_steps and step.op in LOADS and keeps_rows(step) and _is_long(step)


def _reads_along(group: Group, step: Step, value: Value) -> bool:
    """Return whether a step of a group reads a value at the position in the group's space."""
    if step.op in REDUCTIONS:
        return True
    dims = zip(step.operands, operand_dims(step), strict=True)
    return step.result not in group.row_axes and all(own == group.space for operand, own in dims if operand is value)


def _is_long(step: Step) -> bool:
    shape = shape_of(step.result)
    return 0 not in shape and (not isinstance(shape[-1], int) or shape[-1] >= _LEAST_ROW)


def _saves_kernel(group: Group, value: Value, loads: Mapping[Value, Step]) -> bool:
    """Return whether a value would take a separate kernel, being more than a view of memory."""
    if all(step.op in LOADS for step in loads.values()):
        return _layout(value, loads) is None
    # A reduction first computes into a short array; a short last part is slow to read.
    last = shape_of(value)[-1]
    return group.reduced is None or not isinstance(last, int) or last % _VECTOR == 0 or last >= _LONG_ROW


def _layout(value: Value, loads: Mapping[Value, Step]) -> Layout | None:
    """Return the layout of a value in the memory of the operands of loads; ``None`` if not described by strides."""
    step = loads.get(value)
    if step is None:
        return compact_layout(shape_of(value))
    source = None if step.op in ("take", "concat") else _layout(step.operands[0], loads)
    return None if source is None else result_layouts(step.binding, source)[0]
