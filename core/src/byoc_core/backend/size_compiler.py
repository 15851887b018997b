"""The compiler that a loaded artifact calls for sizes that it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from byoc_core.backend.first_use import FirstUse
from byoc_core.backend.handle import BackendHandle
from byoc_core.backend.info import CompileContext
from byoc_core.backend.own_ops import ops_with
from byoc_core.backend.registry import Backends, find_registry
from byoc_core.errors import ArtifactError
from byoc_core.ir import Function, is_pure, verify
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.specialised import Recipe, SizesRefused, SpecialisedModule
from byoc_core.script import parse

__all__ = ["compiler", "held_sizes"]


def held_sizes(modules: Iterable[RuntimeModule]) -> list[dict[str, Any]]:
    """Return for each function of a backend of static shapes the sizes it is compiled for, as plain data.

    ``others`` says what becomes of other sizes: ``"first-use"`` (compiled when a call brings them). Of an artifact:
    ``"host"`` or ``"error"``, and ``"compiler-or-host"`` or ``"compiler-or-error"`` where a compiler may be given.
    """
    return [
        {
            "region": name,
            "backend": module.backend,
            "sizes": [dict(sizes) for sizes in module.held_sizes(name)],
            "others": "first-use",
        }
        for module in modules
        if isinstance(module, SpecialisedModule)
        for name in module.function_names
        if module.symbols_of(name)
    ]


def compiler(registry: Backends | None = None) -> Callable[..., RuntimeModule | SizesRefused]:
    """Return what compiles regions of a loaded artifact for sizes that the artifact does not hold.

    Give it to :func:`byoc_core.load`. It needs the backends of these regions, and their tools.

    Args:
        registry: has the backends; by default those installed for this process.
    """

    def compile_sizes(recipe: Recipe, name: str, sizes: Mapping[str, int]) -> RuntimeModule | SizesRefused:
        handle = find_registry(registry).get(recipe.backend)
        function, context = _prepared(handle, recipe, name)
        return FirstUse(handle, {name: function}, context)(name, sizes)

    return compile_sizes


def _prepared(handle: BackendHandle, recipe: Recipe, name: str) -> tuple[Function, CompileContext]:
    module = parse(recipe.text, constants=recipe.constants, ops=ops_with([handle]))
    # A stranger wrote this: what `build` would not hand to a backend, a recipe does not either.
    verify(module)
    where = f"recipe of backend `{recipe.backend}`"
    found = next((f for f in module.functions.values() if f.attrs.get("global_symbol") == name), None)
    if found is None:
        raise ArtifactError(where, f"has no function `{name}`")
    if not name.isidentifier() or not name.isascii():
        raise ArtifactError(where, "has a function whose symbol is no C identifier", got=repr(name))
    impure = next((binding for binding in found.bindings if not is_pure(binding, module.functions)), None)
    if impure is not None:
        raise ArtifactError(f"{where}, function `{name}`", f"holds `{impure.op.name}`, which has effects")
    return found, handle.context(module, recipe.options)
