"""Sets of sizes that users ask regions of static shapes for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.errors import OptionsError, near_names
from byoc_core.ir import IRModule, TensorType
from byoc_core.transform.specialise import has_symbols

__all__ = ["Specialize", "sizes_to_compile"]

Specialize = Sequence[Mapping[str, int]] | bool
"""Sets of sizes to compile for in advance; ``True`` for none, ``False`` to leave symbolic sizes to other backends."""


def sizes_to_compile(specialize: Specialize, module: IRModule) -> Sequence[Mapping[str, int]] | None:
    """Return the sets of sizes that backends of static shapes compile a module for in advance.

    ``None`` where they take no symbolic sizes: the user wants it so, or the module has none.

    Raises:
        OptionsError: a set is no mapping, a name is no symbol of the module, or a size is no integer from 0.
    """
    if specialize is False:
        return None
    sizes = () if specialize is True else specialize
    _check_sizes(sizes, module)
    return sizes if has_symbols(module.functions.values()) else None


def _check_sizes(sizes: Sequence[Mapping[str, int]], module: IRModule) -> None:
    symbols: set[str] = set()
    for function in module.functions.values():
        for param in function.params:
            symbols |= param.type.symbols if isinstance(param.type, TensorType) else frozenset()
    if isinstance(sizes, Mapping | str) or not isinstance(sizes, Sequence):
        raise OptionsError(
            "specialize", "is no list of sets of sizes", got=repr(sizes), expected='[{"n": 1}, {"n": 8}]'
        )
    for item in sizes:
        if not isinstance(item, Mapping):
            raise OptionsError("specialize", "a set of sizes is no mapping", got=repr(item), expected='{"n": 8}')
        for name, size in item.items():
            if name not in symbols:
                raise OptionsError(
                    "specialize",
                    f"the model has no size `{name}`",
                    expected=", ".join(sorted(symbols)) or "none: all sizes are known",
                    hint=near_names(str(name), symbols) or None,
                )
            if type(size) is not int or size < 0:
                raise OptionsError(
                    f"specialize, size `{name}`", "is no size", got=repr(size), expected="an integer from 0"
                )
