"""The compiler that a loaded artifact calls for sizes that it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from byoc_core.backend.handle import BackendHandle
from byoc_core.backend.info import CompileContext
from byoc_core.backend.registry import backends
from byoc_core.backend.specialised import compile_for_sizes
from byoc_core.errors import ArtifactError
from byoc_core.ir import Function
from byoc_core.ops import default_ops
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.specialised import Recipe, SpecialisedModule
from byoc_core.script import parse

__all__ = ["compiler", "held_sizes"]


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
