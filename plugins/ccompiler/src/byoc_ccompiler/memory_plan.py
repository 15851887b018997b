"""The memory locations of a function's values: views of other values, and values written inside another value.

View ops (reshape, permute_dims, split, concat, ...) move nothing if the surrounding kernels can read or write strided
tensors. A value is *placed* if the producer writes straight into a larger value (an operand of a concat, the result of
a transpose). A value is a *view* if the consumers read the elements out of another value. If neither is possible, a
separate kernel copies the elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from byoc_core.authoring.layouts import (
    Layout,
    compact_layout,
    is_view_op,
    joins_operands,
    operand_layouts,
    result_layouts,
)
from byoc_core.ir import FunctionBuilder, TensorType, Value, Var

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Group
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["Location", "MemoryPlan", "plan_memory"]


@dataclass(frozen=True, slots=True)
class Location:
    """The memory location of a value: the value owning the memory (itself, unless a view or placed), and the layout."""

    base: Value
    layout: Layout


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory locations of a function's values.

    Attributes:
        groups: the remaining kernels and the copying kernels (``permute_dims`` with the identity order), in order.
        locations: the locations of values without separate row-major memory.
    """

    groups: list[Group]
    locations: Mapping[Value, Location]

    def find(self, value: Value) -> Location:
        """Return the location of a value."""
        return self.locations.get(value) or _own_location(value)


def _own_location(value: Value) -> Location:
    return Location(value, compact_layout(shape_of(value)).canonical)


def access_of(layout: Layout) -> Access:
    """Return the access needed by a kernel for a tensor of this layout."""
    if layout.is_compact:
        return Access.COMPACT
    return Access.ROWS if not layout.shape or layout.shape[-1] == 1 or layout.strides[-1] == 1 else Access.ANY


def plan_memory(groups: Sequence[Group], results: Sequence[Value], families: Mapping[str, KernelFamily]) -> MemoryPlan:
    """Return the location of each value.

    Args:
        groups: the function's kernels, in order.
        results: the function's results, compact in memory of the caller.
        families: the family of each op, with the access to operands and results.

    Cost: linear in the steps and their operands.
    """
    return _Planner(groups, results, families).plan()


class _Planner:
    def __init__(self, groups: Sequence[Group], results: Sequence[Value], families: Mapping[str, KernelFamily]) -> None:
        self._groups = groups
        self._families = families
        self._results = set(results)
        self._locations: dict[Value, Location] = {}
        self._maker: dict[Value, tuple[Group, Step, int]] = {}
        self._readers: dict[Value, list[tuple[Group, Step, int]]] = {}
        for group in groups:
            for step in group.all_steps:
                for index, result in enumerate(step.binding.results):
                    self._maker[result] = (group, step, index)
                for index, operand in enumerate(step.operands):
                    self._readers.setdefault(operand, []).append((group, step, index))

    def plan(self) -> MemoryPlan:
        # A result is located before its parts: consumers first.
        for group in reversed(self._groups):
            if _is_view(group):
                self._place_operands(group.steps[0])
        planned: list[Group] = []
        for group in self._groups:
            planned += self._resolve(group.steps[0]) if _is_view(group) else [group]
        return MemoryPlan(planned, self._locations)

    def _find(self, value: Value) -> Location:
        return self._locations.get(value) or _own_location(value)

    def _parts(self, step: Step) -> list[tuple[Value, Location | None]]:
        """Return each operand of a view op with the location needed for a result without a copy, or with ``None``."""
        target = self._find(step.result)
        layouts = operand_layouts(step.binding, target.layout)
        locations = [None if layout is None else Location(target.base, layout.canonical) for layout in layouts]
        return list(zip(step.operands, locations, strict=True))

    def _place_operands(self, step: Step) -> None:
        """Place the operands of a view op in the result, if the location of the result is fixed."""
        if len(step.binding.results) > 1:
            return
        if not joins_operands(step.binding) and step.result not in self._results and step.result not in self._locations:
            return
        for operand, location in self._parts(step):
            if location is not None and self._can_be_placed(operand, location):
                self._locations[operand] = location

    def _can_be_placed(self, value: Value, location: Location) -> bool:
        if value in self._locations or value in self._results or value not in self._maker:
            return False
        group, step, index = self._maker[value]
        access = access_of(location.layout)
        if not _is_view(group):
            is_written = access <= self._write_access(group, step, index)
        else:
            # A view op copies the value, unless the op's own operands can be placed in turn.
            is_written = joins_operands(step.binding) or operand_layouts(step.binding, location.layout)[0] is not None
        return is_written and self._can_be_read(value, access)

    def _can_be_read(self, value: Value, access: Access) -> bool:
        """Return whether all kernels reading a value accept the access; view ops do, or copy."""
        return all(
            _is_view(group) or access <= self._read_access(group, step, index)
            for group, step, index in self._readers.get(value, ())
        )

    def _read_access(self, group: Group, step: Step, index: int) -> Access:
        if any(result in group.loads for result in step.binding.results):
            return min(self._families[step.op].reads(step, index), Access.ROWS)
        if group.anchored and step is not group.steps[0]:
            return self._write_access(group, step, 0)
        return self._families[group.steps[0].op].reads(step, index)

    def _write_access(self, group: Group, step: Step, index: int) -> Access:
        family = self._families[group.steps[0].op]
        return family.writes(group.steps[0], 0) if group.anchored else family.writes(step, index)

    def _resolve(self, step: Step) -> list[Group]:
        """Make the results of a view op views if possible; return the copies of the others."""
        if step.op == "concat":
            return [
                _copy(operand, self._name_part(operand, location))
                for operand, location in self._parts(step)
                if location is not None and self._locations.get(operand) != location
            ]
        source = self._find(step.operands[0])
        copies = []
        for result, layout in zip(step.binding.results, result_layouts(step.binding, source.layout), strict=True):
            location = None if layout is None else Location(source.base, layout.canonical)
            if location is not None and self._find(result) == location:
                continue  # the operand was written into the result
            is_free = result not in self._locations and result not in self._results
            if location is not None and is_free and self._can_be_read(result, access_of(location.layout)):
                self._locations[result] = location
                continue
            copies.append(self._copy_result(step, result, location))
        return copies

    def _copy_result(self, step: Step, result: Var, location: Location | None) -> Group:
        if location is not None:
            return _copy(self._name_part(result, location), result)
        # A reshape not described by strides in the new shape: copied in the old shape.
        ((operand, target),) = self._parts(step)
        assert target is not None
        return _copy(operand, self._name_part(operand, target))

    def _name_part(self, like: Value, location: Location) -> Var:
        """Return a variable for elements at a location, with the shape of another value."""
        name = like.name if isinstance(like, Var) else "constant"
        part = Var(name, TensorType(shape_of(like), dtype_of(like)))
        self._locations[part] = location
        return part


def _is_view(group: Group) -> bool:
    step = group.steps[0]
    if len(group.steps) > 1 or not is_view_op(step.binding):
        return False
    if joins_operands(step.binding):
        return None not in operand_layouts(step.binding, compact_layout(shape_of(step.result)))
    layouts = result_layouts(step.binding, compact_layout(shape_of(step.operands[0])))
    return all(layout is not None and layout.is_injective() for layout in layouts)


def _copy(source: Value, target: Var) -> Group:
    """Return the kernel copying a tensor, each side with a separate layout."""
    copy = FunctionBuilder("copy").bind("permute_dims", (source,), {"axes": tuple(range(len(shape_of(source))))})
    step = Step(replace(copy, results=(target,)), (source,))
    return Group([step], None, results={target})
