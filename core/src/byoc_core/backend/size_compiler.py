"""The compiler called by a loaded artifact for sizes not held by the artifact.

The recipe may come from a stranger: everything ensured by a build for a backend's functions is checked again.
"""

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
    """Return the compiled sizes of each function of a backend of static shapes, as plain data.

    ``others`` states the fate of other sizes: ``"first-use"`` (compiled in the first call). For an artifact: ``"host"``
    or ``"error"``, or, if loading may be given a compiler, ``"compiler-or-host"`` or ``"compiler-or-error"``.
    """
    return [
        {
            "region": name,
            "backend": module.backend,
            "sizes": [dict(sizes) for sizes in module.compiled_sizes(name)],
            "others": "first-use",
        }
        for module in modules
        if isinstance(module, SpecialisedModule)
        for name in module.function_names
        if module.symbols_of(name)
    ]


def compiler(registry: Backends | None = None) -> Callable[..., RuntimeModule | SizesRefused]:
    """Return a compiler of a loaded artifact's regions for sizes not held by the artifact.

    Pass the compiler to :func:`byoc_core.load`. The compiler needs the backends of these regions, and their tools.

    Args:
        registry: has the backends; by default the backends installed for this process.
    """

    def compile_sizes(recipe: Recipe, name: str, sizes: Mapping[str, int]) -> RuntimeModule | SizesRefused:
        handle = find_registry(registry).get(recipe.backend)
        function, context = _prepared(handle, recipe, name)
        return FirstUse(handle, {name: function}, context)(name, sizes)

    return compile_sizes


def _prepared(handle: BackendHandle, recipe: Recipe, name: str) -> tuple[Function, CompileContext]:
    module = parse(recipe.text, constants=recipe.constants, ops=ops_with([handle]))
    # The recipe may come from a stranger: check everything that `build` ensures for a backend.
    verify(module)
    where = f"recipe of backend `{recipe.backend}`"
    found = next((f for f in module.functions.values() if f.attrs.get("global_symbol") == name), None)
    if found is None:
        raise ArtifactError(where, f"has no function `{name}`")
    if not name.isidentifier() or not name.isascii():
        raise ArtifactError(where, "has a function symbol other than a C identifier", got=repr(name))
    impure = next((binding for binding in found.bindings if not is_pure(binding, module.functions)), None)
    if impure is not None:
        raise ArtifactError(f"{where}, function `{name}`", f"holds `{impure.op.name}`, an op with effects")
    return found, handle.context(module, recipe.options)
