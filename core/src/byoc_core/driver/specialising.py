"""Sets of sizes that users ask regions of static shapes for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.errors import OptionsError, near_names
from byoc_core.ir import IRModule, TensorType

__all__ = ["check_sizes"]


def check_sizes(sizes: Sequence[Mapping[str, int]], module: IRModule) -> None:
    """Check sets of sizes against the symbols of a module's parameters.

    Raises:
        OptionsError: a set is no mapping, a name is no symbol of the module, or a size is no integer from 0.
    """
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
