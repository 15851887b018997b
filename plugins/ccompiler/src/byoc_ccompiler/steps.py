"""The ops of a region as a flat list, composites taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.dims import Dim
from byoc_core.ir import Binding, Function, TensorType, Value, Var

__all__ = ["Step", "dtype_of", "flatten", "shape_of"]


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """An op with operands traced through composites to their definitions.

    Attributes:
        binding: the op.
        operands: the operands, traced.
        axes: for each operand, the axes of the result along the operand's axes, if different from the op's own mapping.
        origin: the op containing this op as a part, if any.
        is_nonpositive: whether the operand is known to be no larger than 0.
    """

    binding: Binding
    operands: tuple[Value, ...]
    axes: tuple[tuple[int, ...], ...] | None = None
    origin: Binding | None = None
    is_nonpositive: bool = False

    @property
    def op(self) -> str:
        """The op's name."""
        return self.binding.op.name

    @property
    def result(self) -> Var:
        """The op's only result."""
        return self.binding.result


def shape_of(value: Value) -> tuple[Dim, ...]:
    """Return the shape of a tensor of known rank (anything else was rejected before)."""
    assert isinstance(value.type, TensorType)
    assert value.type.shape is not None
    return value.type.shape


def dtype_of(value: Value) -> str:
    """Return the dtype of a tensor."""
    assert isinstance(value.type, TensorType)
    return value.type.dtype


def flatten(function: Function) -> tuple[list[Step], list[Value]]:
    """Return the live ops with composites taken apart, and the function's results, both in order."""
    steps: list[Step] = []
    definitions: dict[Value, Value] = {}

    def visit(bindings: Sequence[Binding]) -> None:
        for binding in bindings:
            operands = tuple(definitions.get(operand, operand) for operand in binding.operands)
            if binding.op.name != "composite":
                steps.append(Step(binding, operands))
                continue
            (body,) = binding.regions
            definitions.update(zip(body.params, operands, strict=True))
            visit(body.bindings)
            for outer, inner in zip(binding.results, body.results, strict=True):
                definitions[outer] = definitions.get(inner, inner)

    visit(function.bindings)
    results = [definitions.get(result, result) for result in function.results]
    return _without_dead(steps, results), results


def _without_dead(steps: Sequence[Step], results: Sequence[Value]) -> list[Step]:
    """Return the steps needed by a result."""
    needed = set(results)
    alive: list[Step] = []
    for step in reversed(steps):
        if any(result in needed for result in step.binding.results):
            alive.append(step)
            needed.update(step.operands)
    return alive[::-1]
