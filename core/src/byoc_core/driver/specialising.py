"""Regions of static shapes for more sizes: what users may ask for, and the compiler of a loaded artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from byoc_core.backend import BackendHandle, CompileContext, backends
from byoc_core.backend.specialised import compile_for_sizes
from byoc_core.errors import ArtifactError, OptionsError, near_names
from byoc_core.ir import Function, IRModule, TensorType
from byoc_core.ops import default_ops
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.specialised import Recipe, SpecialisedModule
from byoc_core.script import parse

__all__ = ["check_sizes", "compiler", "held_sizes"]


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


def held_sizes(modules: Iterable[RuntimeModule]) -> list[dict[str, Any]]:
    """Return for each function of a backend of static shapes the sets of sizes it is compiled for, as plain data."""
    return [
        {"region": name, "backend": module.backend, "sizes": [dict(sizes) for sizes in module.held_sizes(name)]}
        for module in modules
        if isinstance(module, SpecialisedModule)
        for name in module.function_names
    ]


def compiler() -> Callable[..., RuntimeModule]:
    """Return what compiles regions of a loaded artifact for sizes that the artifact does not hold.

    Give it to :func:`byoc_core.load`. It needs the backends of these regions, and their tools.
    """
    return _compile


def _compile(recipe: Recipe, name: str, sizes: Mapping[str, int]) -> RuntimeModule:
    handle = backends().get(recipe.backend)
    function, context = _prepared(handle, recipe, name)
    return compile_for_sizes(handle, function, sizes, context)


def _prepared(handle: BackendHandle, recipe: Recipe, name: str) -> tuple[Function, CompileContext]:
    ops = default_ops().extended(handle.ops())
    module = parse(recipe.text, constants=recipe.constants, ops=ops)
    found = next((f for f in module.functions.values() if f.attrs.get("global_symbol") == name), None)
    if found is None:
        raise ArtifactError(f"recipe of backend `{recipe.backend}`", f"has no function `{name}`")
    return found, handle.context(module, recipe.options)
