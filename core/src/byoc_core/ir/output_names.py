"""Names of outputs: a function without names of its own for them takes those of the values that it returns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from byoc_core.ir.module import Function, IRModule, Var

__all__ = ["choose_output_names", "name_outputs"]

_GENERATED = re.compile(r"(?:lv|gv)\d*")
"""Names that say nothing: a builder gives them to values without names, and scripts by custom."""


def choose_output_names(names: Sequence[str | None]) -> tuple[str, ...]:
    """Return the names of outputs for the names of the values that a function returns.

    ``output0`` and so on stand where a value has no name, a generated one (``lv0``, ``gv``), or that of another output.
    """
    chosen = [None if name is None or _GENERATED.fullmatch(name) else name for name in names]
    unique = [name if name is not None and chosen.count(name) == 1 else None for name in chosen]
    taken = {f"output{index}" for index, name in enumerate(unique) if name is None}
    return tuple(f"output{index}" if name is None or name in taken else name for index, name in enumerate(unique))


def name_outputs(module: IRModule, written: IRModule) -> IRModule:
    """Return the module with the names of outputs that the module has as its user wrote it.

    Args:
        module: what passes made. They may have put other values in the place of those that a function returns.
        written: the module before all passes. A function that states no ``output_names`` and returns named values
            gives the names.
    """
    named = {name: _named(function, written.functions.get(name)) for name, function in module.functions.items()}
    is_changed = any(named[name] is not function for name, function in module.functions.items())
    return module.with_functions(named) if is_changed else module


def _named(function: Function, written: Function | None) -> Function:
    if "output_names" in function.attrs or written is None or len(written.results) != len(function.results):
        return function
    names = choose_output_names([result.name if isinstance(result, Var) else None for result in written.results])
    return function if names == function.output_names else function.with_attrs(output_names=names)
