"""The sets of sizes requested by users for regions of static shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.backend.sized_functions import MAX_SIZE
from byoc_core.errors import OptionsError, near_names
from byoc_core.ir import IRModule, TensorType
from byoc_core.transform.specialise import has_symbols

__all__ = ["Specialize", "parameter_symbols", "sizes_to_compile"]

Specialize = Sequence[Mapping[str, int]] | bool
"""Sets of sizes to compile for in advance; ``True`` for none, ``False`` to leave symbolic sizes to other backends."""


def sizes_to_compile(specialize: Specialize, module: IRModule) -> Sequence[Mapping[str, int]] | None:
    """Return the sets of sizes compiled in advance by backends of static shapes for a module.

    ``None`` if these backends take no symbolic sizes: by the user's choice, or because the module has none.

    Raises:
        OptionsError: a set is no mapping, a name is no symbol of the module, or a size is no integer from 0 to
            ``MAX_SIZE``.
    """
    if specialize is False:
        return None
    sizes = () if specialize is True else specialize
    _check_sizes(sizes, module)
    return sizes if has_symbols(module.functions.values()) else None


def parameter_symbols(module: IRModule) -> frozenset[str]:
    """Return the symbols in the types of the parameters of a module's functions."""
    params = (param.type for function in module.functions.values() for param in function.params)
    return frozenset[str]().union(*(type_.symbols for type_ in params if isinstance(type_, TensorType)))


def _check_sizes(sizes: Sequence[Mapping[str, int]], module: IRModule) -> None:
    symbols = parameter_symbols(module)
    if isinstance(sizes, Mapping | str) or not isinstance(sizes, Sequence):
        raise OptionsError(
            "specialize", "is not a list of sets of sizes", got=repr(sizes), expected='[{"n": 1}, {"n": 8}]'
        )
    for item in sizes:
        if not isinstance(item, Mapping):
            raise OptionsError("specialize", "a set of sizes is not a mapping", got=repr(item), expected='{"n": 8}')
        for name, size in item.items():
            if name not in symbols:
                raise OptionsError(
                    "specialize",
                    f"the model has no symbolic size `{name}`",
                    expected=", ".join(sorted(symbols)) or "no name: all sizes are known",
                    hint=near_names(str(name), symbols) or None,
                )
            if type(size) is not int or not 0 <= size <= MAX_SIZE:
                raise OptionsError(
                    f"specialize, size `{name}`",
                    "is not a valid size",
                    got=_shown(size),
                    expected=f"an integer from 0 to {MAX_SIZE}",
                )


def _shown(size: object) -> str:
    """Return a size as text for messages; Python refuses to print integers of many digits."""
    return f"an integer of {size.bit_length()} bits" if type(size) is int and size > MAX_SIZE else repr(size)
