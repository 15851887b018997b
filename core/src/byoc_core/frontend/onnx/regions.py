"""Functions under construction: the model's main function, and nested regions of control flow."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.frontend.onnx.symbols import NameTable
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.constants import ConstantStore
from byoc_core.ir.module import Function, Value, Var
from byoc_core.opset.registry import OpRegistry
from byoc_core.opset.types import Type

__all__ = ["Region"]


class Region:
    """A function under construction. Values read from the surrounding function enter as parameters.

    Args:
        name: the function's name.
        ops: the registry for op names; the core's own ops by default.
        constants: the store for constants, the same for all functions of a model.

    Attributes:
        builder: builds the function.
        own_symbols: the symbols of sizes determined only by ops of this function. Slices of a scan output must not have
            such a size: the memory for all slices is allocated before the first round.
    """

    def __init__(self, name: str, ops: OpRegistry | None, constants: ConstantStore) -> None:
        self.builder = FunctionBuilder(name, ops=ops, constants=constants)
        self.own_symbols: set[str] = set()
        self._names = NameTable()
        self._captured: dict[Var, Var] = {}

    def nest(self, name: str) -> Region:
        """Return a region for a binding of this function."""
        return Region(name, self.builder.ops, self.builder.constants)

    def param(self, name: str, type_: Type) -> Var:
        """Add a parameter with a name like ``name``."""
        return self.builder.param(self._names.fresh(name, "input"), type_)

    def capture(self, outer: Var) -> Var:
        """Return the parameter replacing a value of the surrounding function."""
        if outer not in self._captured:
            self._captured[outer] = self.param(outer.name, outer.type)
        return self._captured[outer]

    def finish(self, results: Sequence[Value]) -> tuple[Function, dict[Var, Var]]:
        """Return the function, and captured values read by the function with their parameters, in order of first use.

        A captured value is not read if only its type was used. The binder of the region decides on the order of
        parameters.
        """
        function = self.builder.finish(*results)
        read = {value for binding in function.bindings for value in binding.operands} | set(function.results)
        return function, {outer: param for outer, param in self._captured.items() if param in read}
