"""A function written anew, binding by binding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from byoc_core.ir import Binding, Constant, Function, OpRegistry, Value, Var, infer_results
from byoc_core.ops import default_ops

__all__ = ["RegionWriter"]


class RegionWriter:
    """Copies a function while ops are replaced by others.

    Args:
        function: what is copied; its parameters stay the same values.
        ops: those that are known; the core's by default.
    """

    def __init__(self, function: Function, ops: OpRegistry | None = None) -> None:
        self._function = function
        self._ops = ops or default_ops()
        self._bindings: list[Binding] = []
        self._known: dict[Value, Value] = {}

    def value(self, value: Value) -> Value:
        """Gives what stands for a value of the function."""
        return value if isinstance(value, Constant) else self._known.get(value, value)

    def copy(self, binding: Binding) -> None:
        """Takes an op over as it is."""
        operands = tuple(self.value(operand) for operand in binding.operands)
        results = tuple(Var(result.name, result.type) for result in binding.results)
        self._bindings.append(replace(binding, operands=operands, results=results))
        self.replace(binding, results)

    def emit(self, binding: Binding, op: str, operands: Sequence[Value], attrs: Mapping[str, object]) -> list[Value]:
        """Adds an op and gives its results, named after those of the binding that it is made for.

        Args:
            binding: what it stands for, or is a part of.
            op: its name.
            operands: values of the new function.
            attrs: its attributes.
        """
        opdef = self._ops.find(op)
        normal = opdef.normalise_attrs(attrs)
        types = infer_results(opdef, operands, normal)
        names = [result.name for result in binding.results]
        results = tuple(Var(names[min(k, len(names) - 1)], type_) for k, type_ in enumerate(types))
        self._bindings.append(Binding(results, opdef, tuple(operands), normal, location=binding.location))
        return list(results)

    def replace(self, binding: Binding, values: Sequence[Value]) -> None:
        """Says what stands for the results of a binding from now on."""
        self._known.update(zip(binding.results, values, strict=True))

    def finish(self) -> Function:
        """Gives the new function."""
        results = tuple(self.value(result) for result in self._function.results)
        return replace(self._function, bindings=tuple(self._bindings), results=results)
