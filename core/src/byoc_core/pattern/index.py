"""An index of the producer and the readers of each value of a function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt

from byoc_core.errors import PatternError
from byoc_core.ir import Binding, Constant, Function, Value, Var
from byoc_core.ops.identity import is_identity
from byoc_core.pattern.reachability import Ancestry

__all__ = ["FunctionIndex"]


class FunctionIndex:
    """The producer and the readers of each value of a function.

    Cost: linear in the size of the function, once.
    """

    def __init__(self, function: Function, constants: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        """Index a function.

        Args:
            function: the function to match against.
            constants: the module's store; needed by patterns with conditions on the values of constants.
        """
        self.function = function
        self.position: dict[int, int] = {}
        self.order: list[Binding] = []
        self._constants = constants
        self._ancestry: Ancestry | None = None
        self._producer: dict[int, tuple[Binding, int]] = {}
        self._users: dict[int, list[Binding]] = {}
        self._params = {id(param) for param in function.params}
        self._results = {id(value) for value in function.results}
        for binding in function.bindings:
            self.add(binding)

    def add(self, binding: Binding) -> None:
        """Add a binding positioned after all others; the binding reads only earlier values."""
        self.position[id(binding)] = len(self.order)
        self.order.append(binding)
        for index, result in enumerate(binding.results):
            self._producer[id(result)] = (binding, index)
        for operand in {id(o): o for o in binding.operands if isinstance(o, Var)}.values():
            self._users.setdefault(id(operand), []).append(binding)

    def producer(self, value: Value) -> tuple[Binding, int] | None:
        """Return the binding making a value and the index of the result; ``None`` for params and constants."""
        return self._producer.get(id(value))

    def users(self, value: Value) -> list[Binding]:
        """Return the bindings reading a value, each once, in order."""
        return self._users.get(id(value), [])

    def is_param(self, value: Value) -> bool:
        """Return whether a value is a parameter."""
        return id(value) in self._params

    def is_result(self, value: Value) -> bool:
        """Return whether the function returns the value."""
        return id(value) in self._results

    def array(self, value: Value) -> npt.NDArray[Any] | None:
        """Return the array of a constant; ``None`` for other values.

        Raises:
            PatternError: the index was made without the module's constants.
        """
        if not isinstance(value, Constant):
            return None
        if self._constants is None:
            raise PatternError(
                f"function `{self.function.name}`",
                "is indexed without the constants' arrays",
                hint="Create the index with FunctionIndex(function, module.constants).",
            )
        return self._constants[value.digest]

    def ancestry(self) -> Ancestry:
        """Return the dependences between bindings. Cost: linear in the bindings added since the last call."""
        if self._ancestry is None:
            self._ancestry = Ancestry(self)
        self._ancestry.extend()
        return self._ancestry

    def identity(self, value: Value) -> Binding | None:
        """Return the binding making a value, if the binding is an identity and no backend claims it."""
        found = self.producer(value)
        return found[0] if found is not None and found[0].codegen is None and is_identity(found[0]) else None

    def identities(self, value: Value) -> Iterator[Binding]:
        """Yield the chain of identities ending at a value, the last identity first."""
        while (binding := self.identity(value)) is not None:
            yield binding
            value = binding.operands[0]

    def source(self, value: Value) -> Value:
        """Return the value at the start of the chain of identities ending at a value."""
        for binding in self.identities(value):
            value = binding.operands[0]
        return value

    def readers(self, value: Value) -> tuple[list[Binding], bool]:
        """Return the bindings reading a value, also through identities, and whether the function returns the value."""
        found: dict[int, Binding] = {}
        returned, pending = False, [value]
        while pending:
            current = pending.pop()
            returned = returned or self.is_result(current)
            for user in self.users(current):
                if user.codegen is None and is_identity(user):
                    pending.append(user.results[0])
                else:
                    found[id(user)] = user
        return sorted(found.values(), key=lambda user: self.position[id(user)]), returned
