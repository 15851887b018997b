"""Unique Python identifiers for freely named ONNX entities: dynamic sizes and parameters."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from byoc_core.dims import Dim, is_name, read_dim, substitute, symbol, symbols_of
from byoc_core.errors import IRTypeError

__all__ = ["NameTable", "SymbolTable"]


class NameTable:
    """Identifiers for arbitrary names; different names never get the same identifier."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def fresh(self, name: str, fallback: str) -> str:
        """Return an unused identifier like ``name``; like ``fallback`` if nothing is left of the name."""
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or fallback
        if base[0].isdigit():
            base = f"{fallback}_{base}"
        if keyword.iskeyword(base):
            base += "_"
        candidate, number = base, 1
        while candidate in self._used:
            candidate = f"{base}_{number}"
            number += 1
        self._used.add(candidate)
        return candidate


class SymbolTable:
    """The symbols of a model's dynamic sizes: one for each ``dim_param``, a fresh symbol for each unnamed size.

    PyTorch's exporters write sums into ``dim_param`` (``"past_sequence_length + sequence_length"``, ``"s0 + 1"``). Such
    a text is an expression if all its names are ``dim_params`` by themselves; at run time, the sizes of inputs are
    checked against the expression. Any other text is the name of a size.

    Args:
        parameters: the texts of all sizes of the model's inputs.
    """

    def __init__(self, parameters: Iterable[str] = ()) -> None:
        self._names = NameTable()
        self._by_parameter: dict[str, Dim] = {}
        self._plain = frozenset(filter(is_name, parameters))

    def named(self, parameter: str) -> Dim:
        """Return the symbol of a ``dim_param``, or the expression in its text."""
        if parameter not in self._by_parameter:
            expression = None if is_name(parameter) else self._expression(parameter)
            self._by_parameter[parameter] = self.fresh(parameter) if expression is None else expression
        return self._by_parameter[parameter]

    def fresh(self, name: str) -> Dim:
        """Return a new, unused symbol with a name like ``name``."""
        identifier = self._names.fresh(name, "dim")
        try:
            return symbol(identifier)
        except IRTypeError:  # the name of a function of the dimension algebra
            return self.fresh(f"{identifier}_dim")

    def _expression(self, text: str) -> Dim | None:
        try:
            read = read_dim(text)
        except IRTypeError:
            return None
        names = symbols_of(read)
        if not names or not names <= self._plain:
            return None
        return substitute(read, {name: self.named(name) for name in sorted(names)})
