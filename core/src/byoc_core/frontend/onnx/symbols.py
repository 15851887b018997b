"""Names for what ONNX names freely: dynamic sizes and parameters become Python identifiers, each one its own."""

from __future__ import annotations

import keyword
import re

from byoc_core.dims import Dim, symbol
from byoc_core.errors import IRTypeError

__all__ = ["NameTable", "SymbolTable"]


class NameTable:
    """Identifiers for arbitrary names; different names never get the same one."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def fresh(self, name: str, fallback: str) -> str:
        """Gives an unused identifier like ``name``; like ``fallback`` where nothing is left of the name."""
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
    """The symbols of a model's dynamic sizes: one for each ``dim_param``, a fresh one for each unnamed size."""

    def __init__(self) -> None:
        self._names = NameTable()
        self._by_parameter: dict[str, Dim] = {}

    def named(self, parameter: str) -> Dim:
        """Gives the symbol of a ``dim_param``."""
        if parameter not in self._by_parameter:
            self._by_parameter[parameter] = self.fresh(parameter)
        return self._by_parameter[parameter]

    def fresh(self, name: str) -> Dim:
        """Gives a symbol that nothing else uses, with a name like ``name``."""
        identifier = self._names.fresh(name, "dim")
        try:
            return symbol(identifier)
        except IRTypeError:  # a function of the dimension algebra has that name
            return self.fresh(f"{identifier}_dim")
