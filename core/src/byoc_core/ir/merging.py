"""Merging of several modules into a single program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from byoc_core.dims import is_name
from byoc_core.dtypes import dtype_name
from byoc_core.errors import IRError
from byoc_core.ir.cloning import clone_function
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.module import DEFAULT_NAME, Binding, Function, IRModule
from byoc_core.ir.printer import EXTERNAL_FUNCTIONS, EXTERNAL_MODULES
from byoc_core.ir.structural import CALL
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.registry import OpRegistry
from byoc_core.opset.types import TensorType

__all__ = ["merge_modules"]


def merge_modules(
    modules: Mapping[str, IRModule], *, entries: Mapping[str, str] | None = None, name: str = DEFAULT_NAME
) -> IRModule:
    """Merge several modules into a program with an entry function for each module.

    ::

        both = merge_modules({"encoder": encoder, "decoder": decoder})
        executable = byoc_core.build(both)
        state = byoc_core.VirtualMachine(executable)["encoder"](x)

    An entry function is renamed to the key of the module. Other functions keep their names; on a conflict the key is
    prefixed (``decoder_norm``). Calls are renamed accordingly, and so are global symbols of functions annotated for a
    backend. Equal constants are stored once. All values are copies, so a module may be given under several keys.

    Args:
        modules: by the name of the entry function.
        entries: for some keys the name of the module's entry function; by default ``main``, or the only function not
            called by others.
        name: of the module.

    Raises:
        IRError: a key is not a valid function name, or a key of ``entries`` names no module; a module has no entry
            function, or several and none called ``main``; modules have different values of an attribute, different ops
            with the same name, or compiled functions with the same symbol.

    Cost: linear in the ops of the modules; no array is copied.
    """
    merger = _Merger(modules)
    for key, module in modules.items():
        merger.add(key, module, _find_entry(key, module, (entries or {}).get(key)))
    for key in entries or {}:
        if key not in modules:
            raise IRError(f"entry of `{key}`", "no module has this key", expected=", ".join(modules) or "none")
    return IRModule(merger.functions, merger.constants, merger.attrs, name, merger.ops())


def _find_entry(key: str, module: IRModule, entry: str | None) -> str:
    if not is_name(key):
        raise IRError(f"module {key!r}", "has a key invalid as a function name", expected="a Python identifier")
    if entry is not None:
        return module[entry].name
    called = {str(b.attrs["callee"]) for function in module.functions.values() for b in function.walk() if b.op is CALL}
    roots = [name for name in module.functions if name not in called]
    if "main" in module.functions:
        return "main"
    if len(roots) != 1:
        problem = f"has {'several' if roots else 'no'} possible entry functions"
        hint = f'Name the entry function: merge_modules(..., entries={{"{key}": ...}}).'
        raise IRError(f"module `{key}`", problem, got=", ".join(roots) or None, hint=hint if roots else None)
    return roots[0]


class _Merger:
    """The result of merging so far."""

    def __init__(self, modules: Mapping[str, IRModule]) -> None:
        self.functions: dict[str, Function] = {}
        self.constants = ConstantStore()
        self.attrs: dict[str, Any] = {}
        self._modules = modules
        self._used_names = set(modules)
        self._symbols: set[str] = set()
        self._owners: dict[str, str] = {}

    def add(self, key: str, module: IRModule, entry: str) -> None:
        """Add a module's functions, constants and attributes."""
        for digest, array in module.constants.items():
            self.constants.adopt(Constant(digest, TensorType(tuple(array.shape), dtype_name(array.dtype))), array)
        self._add_attrs(key, module)
        names = {name: key if name == entry else self._fresh(name, key, self._used_names) for name in module.functions}
        for name, function in module.functions.items():
            renamed = replace(_with_callees(clone_function(function), names), name=names[name])
            self.functions[names[name]] = renamed.with_attrs(**self._own_attrs(key, function, names))

    def _own_attrs(self, key: str, function: Function, names: Mapping[str, str]) -> dict[str, str]:
        """Return the function attributes holding names of functions or symbols, with the new names."""
        attrs = {}
        if (source := function.attrs.get("source")) in names:
            attrs["source"] = names[str(source)]
        if "global_symbol" in function.attrs:
            attrs["global_symbol"] = self._fresh(str(function.attrs["global_symbol"]), key, self._symbols)
        return attrs

    @staticmethod
    def _fresh(name: str, key: str, used_names: set[str]) -> str:
        candidate, number = name, 0
        while candidate in used_names:
            candidate = f"{key}_{name}_{number}" if number else f"{key}_{name}"
            number += 1
        used_names.add(candidate)
        return candidate

    def _add_attrs(self, key: str, module: IRModule) -> None:
        compiled = [symbol for external in module.attrs.get(EXTERNAL_MODULES, ()) for symbol in external.function_names]
        for symbol in compiled:
            if symbol in self._symbols:
                raise IRError(
                    f"module `{key}`", f"has a compiled function with the symbol `{symbol}` of another module"
                )
        self._symbols.update(compiled)
        for name, value in module.attrs.items():
            if name == EXTERNAL_MODULES:
                self.attrs[name] = (*self.attrs.get(name, ()), *value)
            elif name == EXTERNAL_FUNCTIONS:
                self.attrs[name] = {**self.attrs.get(name, {}), **value}
            elif self.attrs.setdefault(name, value) != value:
                where = f"modules `{self._owners[name]}` and `{key}`"
                problem = f"have different values of the attribute `{name}`"
                raise IRError(where, problem, got=f"{self.attrs[name]!r} and {value!r}")
            self._owners.setdefault(name, key)

    def ops(self) -> OpRegistry:
        """Return the ops of all modules."""
        registries = [module.ops for module in self._modules.values()]
        if all(registry is registries[0] for registry in registries):
            return registries[0] if registries else IRModule().ops
        definitions: dict[str, tuple[OpDef, str]] = {}
        for key, module in self._modules.items():
            for name, op in module.ops.items():
                other, owner = definitions.setdefault(name, (op, key))
                if other is not op:
                    raise IRError(f"op `{name}`", f"has different definitions in the modules `{owner}` and `{key}`")
        return OpRegistry(op for op, _ in definitions.values())


def _with_callees(function: Function, names: Mapping[str, str]) -> Function:
    return replace(function, bindings=tuple(_renamed(function.bindings, names)))


def _renamed(bindings: tuple[Binding, ...], names: Mapping[str, str]) -> Iterator[Binding]:
    for binding in bindings:
        regions = tuple(_with_callees(region, names) for region in binding.regions)
        attrs = binding.attrs
        if binding.op is CALL:
            callee = str(attrs["callee"])
            attrs = {**attrs, "callee": names.get(callee, callee)}
        yield replace(binding, regions=regions, attrs=attrs)
