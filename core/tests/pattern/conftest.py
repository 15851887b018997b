"""Functions from a few lines of script, and the matches of patterns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from byoc_core import script as R
from byoc_core.dims import Dim
from byoc_core.ir import Binding, Function, IRModule, TensorType, Value, Var
from byoc_core.pattern import FunctionIndex, Match, Mismatch, Pattern, explain_mismatch, find_matches


@dataclass(frozen=True)
class Scene:
    """A function to match patterns against."""

    module: IRModule
    main: Function
    index: FunctionIndex

    def op(self, name: str) -> Binding:
        """Return the op by the name of a result."""
        return next(b for b in self.main.bindings if name in [result.name for result in b.results])

    def value(self, name: str) -> Value:
        """Return a value by name."""
        results = (result for binding in self.main.bindings for result in binding.results)
        return next(value for value in (*self.main.params, *results) if value.name == name)

    def shape(self, name: str) -> tuple[Dim, ...]:
        """Return the shape of a value."""
        type_ = self.value(name).type
        assert isinstance(type_, TensorType)
        return type_.shape or ()

    def matches(self, pattern: Pattern, root: str | None = None) -> list[Match]:
        """Return the matches at an op, the last op by default."""
        return list(find_matches(pattern, self.main.bindings[-1] if root is None else self.op(root), self.index))

    def matched(self, pattern: Pattern, root: str | None = None) -> list[str]:
        """Return the matches as the names of their ops' results."""
        return [
            " ".join(result.name for binding in match.bindings for result in binding.results)
            for match in self.matches(pattern, root)
        ]

    def mismatch(self, pattern: Pattern, name: str) -> Mismatch | None:
        """Return the reason why a pattern does not fit an op."""
        return explain_mismatch(pattern, self.op(name), self.index)


def names_of(values: tuple[Value, ...]) -> str:
    """Return values as their names."""
    return " ".join(value.name if isinstance(value, Var) else "const" for value in values)


@pytest.fixture
def scene() -> Callable[..., Scene]:
    """Return a function making a scene of the lines of a function; the params are tensors of the same type."""

    def make(body: str, params: str = "x y", type_: str = '(4, 4), "float32"') -> Scene:
        head = ", ".join(f"{name}: R.Tensor({type_})" for name in params.split())
        lines = [f"def main({head}):", *(f"    {line.strip()}" for line in body.strip().splitlines())]
        module = R.parse("\n".join(lines))
        return Scene(module, module["main"], FunctionIndex(module["main"], module.constants))

    return make


@pytest.fixture
def inputs() -> Callable[[Match], str]:
    """Return a function listing the inputs of a match by name."""
    return lambda match: names_of(match.inputs)
