"""Cuts a function into kernels: what is computed in one loop nest.

Elementwise ops over one iteration space share a loop; ops that follow a convolution or a matrix product are computed
while its sums are still at hand. A value that only its own kernel reads never reaches memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.authoring.csource_scalars import SCALAR_OPS
from byoc_core.dims import Dim
from byoc_core.ir import Binding, Function, TensorType, Value, Var

__all__ = ["ANCHORS", "POINTWISE", "Group", "Step", "flatten", "form_groups", "shape_of"]

ANCHORS = frozenset({"nn.conv2d", "nn.dense", "matmul"})
"""Ops that compute what follows them elementwise on their sums."""

POINTWISE = frozenset(SCALAR_OPS) | {"nn.bias_add", "nn.batch_norm", "broadcast_to"}
"""Ops that depend on one element of each operand."""

_MAX_STEPS = 64


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One op, its operands traced through composites to where they are really defined."""

    binding: Binding
    operands: tuple[Value, ...]

    @property
    def op(self) -> str:
        """The op's name."""
        return self.binding.op.name

    @property
    def result(self) -> Var:
        """The op's only result."""
        return self.binding.result


@dataclass(eq=False, slots=True)
class Group:
    """The steps of one kernel, in order; the first is the anchor where it has one.

    Attributes:
        space: the shape of the iteration space, ``None`` for a kernel that nothing joins.
    """

    steps: list[Step]
    space: tuple[Dim, ...] | None
    anchored: bool = False
    results: set[Value] = field(default_factory=set)


def shape_of(value: Value) -> tuple[Dim, ...]:
    """Gives the shape of a tensor of known rank (anything else was refused before)."""
    assert isinstance(value.type, TensorType)
    assert value.type.shape is not None
    return value.type.shape


def flatten(function: Function) -> tuple[list[Step], list[Value]]:
    """Gives the ops that results depend on, composites taken apart, and the function's results, both in order."""
    steps: list[Step] = []
    known: dict[Value, Value] = {}

    def visit(bindings: Sequence[Binding]) -> None:
        for binding in bindings:
            operands = tuple(known.get(operand, operand) for operand in binding.operands)
            if binding.op.name != "composite":
                steps.append(Step(binding, operands))
                continue
            (body,) = binding.regions
            known.update(zip(body.params, operands, strict=True))
            visit(body.bindings)
            for outer, inner in zip(binding.results, body.results, strict=True):
                known[outer] = known.get(inner, inner)

    visit(function.bindings)
    results = [known.get(result, result) for result in function.results]
    return _without_dead(steps, results), results


def _without_dead(steps: Sequence[Step], results: Sequence[Value]) -> list[Step]:
    """Gives the steps on which a result depends."""
    needed = set(results)
    alive: list[Step] = []
    for step in reversed(steps):
        if any(result in needed for result in step.binding.results):
            alive.append(step)
            needed.update(step.operands)
    return alive[::-1]


def form_groups(steps: Sequence[Step]) -> list[Group]:
    """Gives the kernels in an order in which every value is written before another kernel reads it.

    A step joins a group of its space that is not before any group it reads from: one it reads from, else the latest.
    """
    groups: list[Group] = []
    made_by: dict[Value, int] = {}
    for step in steps:
        index = _find_group(step, groups, made_by) if step.op in POINTWISE else None
        if index is None:
            joinable = step.op in POINTWISE or step.op in ANCHORS
            groups.append(Group([], shape_of(step.result) if joinable else None, step.op in ANCHORS))
            index = len(groups) - 1
        groups[index].steps.append(step)
        for result in step.binding.results:
            made_by[result] = index
            groups[index].results.add(result)
    return groups


def _find_group(step: Step, groups: Sequence[Group], made_by: Mapping[Value, int]) -> int | None:
    earliest = max((made_by.get(operand, -1) for operand in step.operands), default=-1)
    space = shape_of(step.result)
    found = None
    for index in range(len(groups) - 1, max(earliest, 0) - 1, -1):
        group = groups[index]
        if group.space != space or len(group.steps) >= _MAX_STEPS:
            continue
        if any(operand in group.results for operand in step.operands):
            return index
        # An anchor computes what is made of its own sums, not whatever happens to have the same shape.
        if found is None and not group.anchored:
            found = index
    return found
