"""Matches, as seen by a backend's check and by the users of the match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy.typing as npt

from byoc_core.errors import MissingCaptureError, PatternError, near_names
from byoc_core.ir import AttrValue, Binding, TensorType, Value, Var
from byoc_core.pattern.index import FunctionIndex

__all__ = ["Match"]


def _nothing() -> Mapping[str, tuple[Value, ...]]:
    return MappingProxyType({})


@dataclass(frozen=True, eq=False, slots=True)
class Match:
    """A fit of a pattern.

    ``"name" in match`` returns whether a capture is present: captures in an unmatched alternative are absent.

    Attributes:
        root: the last binding.
        bindings: all matched bindings, in function order.
        inputs: outside values read by the matched bindings, in order of first use, each once.
        captures: values by capture name.
        index: the function of the bindings.
        repeated: the values of captures in ``any_number``, by name, in the operands' order.
    """

    root: Binding
    bindings: tuple[Binding, ...]
    inputs: tuple[Value, ...]
    captures: Mapping[str, Value]
    index: FunctionIndex
    repeated: Mapping[str, tuple[Value, ...]] = field(default_factory=_nothing)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a capture of this name."""
        return name in self.captures or name in self.repeated

    def __getitem__(self, name: str) -> Value:
        """Return the captured value.

        Raises:
            PatternError: the match has no such capture, or the capture is repeated.
        """
        if name in self.captures:
            return self.captures[name]
        if name in self.repeated:
            hint = f"Read all values with match.values({name!r})."
            raise PatternError("match", f"capture `{name}` is repeated", hint=hint)
        names = (*self.captures, *self.repeated)
        hint = near_names(name, names)
        expected = ", ".join(names) or "none"
        raise MissingCaptureError("match", f"has no capture `{name}`", expected=expected, hint=hint or None)

    def values(self, name: str) -> tuple[Value, ...]:
        """Return all values of a capture, repeated or not.

        Raises:
            PatternError: the match has no such capture.
        """
        return self.repeated[name] if name in self.repeated else (self[name],)

    def binding(self, name: str) -> Binding:
        """Return the binding making the captured value; the binding of a captured input may lie outside the match.

        Raises:
            PatternError: the captured value is made by no op.
        """
        found = self.index.producer(self[name])
        if found is None:
            raise PatternError("match", f"capture `{name}` is not made by an op")
        return found[0]

    def attrs(self, name: str) -> Mapping[str, AttrValue]:
        """Return the attributes of the binding making the captured value; raises like :meth:`binding`."""
        return self.binding(name).attrs

    def tensor(self, name: str) -> TensorType:
        """Return the type of the captured value.

        Raises:
            PatternError: the value is no tensor.
        """
        type_ = self[name].type
        if not isinstance(type_, TensorType):
            raise PatternError("match", f"capture `{name}` is not a tensor", got=type_)
        return type_

    def users(self, name: str) -> tuple[Binding, ...]:
        """Return the bindings reading the captured value, inside the match and outside, in function order."""
        return tuple(self.index.users(self[name]))

    def array(self, name: str) -> npt.NDArray[Any] | None:
        """Return the array of a captured constant, read-only; ``None`` if the value is no constant."""
        return self.index.array(self[name])

    @property
    def results(self) -> tuple[Var, ...]:
        """The results of the last op."""
        return self.root.results

    @property
    def leaked(self) -> tuple[Var, ...]:
        """Values made inside and read outside, except the root's results."""
        inside = {id(binding) for binding in self.bindings}
        return tuple(
            result
            for binding in self.bindings
            if binding is not self.root
            for result in binding.results
            if self.index.is_result(result) or any(id(user) not in inside for user in self.index.users(result))
        )
