"""Who makes and who reads each value of a function."""

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
    """Who makes and who reads each value of a function.

    Cost: linear in the size of the function, once.
    """

    def __init__(self, function: Function, constants: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        """Indexes a function.

        Args:
            function: what is matched against.
            constants: the module's store; patterns that ask for the values of constants need it.
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
        """Adds a binding that stands after all others; it reads nothing that is yet to come."""
        self.position[id(binding)] = len(self.order)
        self.order.append(binding)
        for index, result in enumerate(binding.results):
            self._producer[id(result)] = (binding, index)
        for operand in {id(o): o for o in binding.operands if isinstance(o, Var)}.values():
            self._users.setdefault(id(operand), []).append(binding)

    def producer(self, value: Value) -> tuple[Binding, int] | None:
        """Gives the binding that makes a value and which of its results it is; ``None`` for params and constants."""
        return self._producer.get(id(value))

    def users(self, value: Value) -> list[Binding]:
        """Gives the bindings that read a value, each once, in order."""
        return self._users.get(id(value), [])

    def is_param(self, value: Value) -> bool:
        """Tells whether a value is a parameter."""
        return id(value) in self._params

    def is_result(self, value: Value) -> bool:
        """Tells whether the function returns the value."""
        return id(value) in self._results

    def array(self, value: Value) -> npt.NDArray[Any] | None:
        """Gives the array of a constant; ``None`` for other values.

        Raises:
            PatternError: the index was made without the module's constants.
        """
        if not isinstance(value, Constant):
            return None
        if self._constants is None:
            raise PatternError(
                f"function `{self.function.name}`",
                "is indexed without the constants' arrays",
                hint="Make the index as FunctionIndex(function, module.constants).",
            )
        return self._constants[value.digest]

    def ancestry(self) -> Ancestry:
        """Gives which bindings depend on which. Cost: linear in the bindings added since it was last asked for."""
        if self._ancestry is None:
            self._ancestry = Ancestry(self)
        self._ancestry.extend()
        return self._ancestry

    def identity(self, value: Value) -> Binding | None:
        """Gives the binding that makes a value if it gives its operand back and no backend claims it."""
        found = self.producer(value)
        return found[0] if found is not None and found[0].codegen is None and is_identity(found[0]) else None

    def identities(self, value: Value) -> Iterator[Binding]:
        """Yields the identities that a value has come through, the last one first."""
        while (binding := self.identity(value)) is not None:
            yield binding
            value = binding.operands[0]

    def source(self, value: Value) -> Value:
        """Gives the value as it was before the identities that it came through."""
        for binding in self.identities(value):
            value = binding.operands[0]
        return value

    def readers(self, value: Value) -> tuple[list[Binding], bool]:
        """Gives the bindings that read a value, be it through identities, and whether the function returns it."""
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
