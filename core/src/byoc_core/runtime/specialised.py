"""Modules of functions with symbolic sizes, made of modules for given sizes.

A backend of static shapes compiles a function once for each set of sizes. To the machine the function is one function
with symbolic sizes; a call finds the module for its sizes. Sizes that are new are compiled by a callable that the
compile side hands in, where there is one; else a call with them is an error that lists the sizes held.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from byoc_core.dims import shape_symbols, substitute
from byoc_core.errors import ByocError, CallError, ExecutionError
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.fork_lock import ForkLock
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule, Signature, TensorSpec

__all__ = ["MAX_FIRST_USES", "Compile", "Recipe", "Sizes", "SpecialisedModule", "Variant", "sizes_text"]

Sizes = tuple[tuple[str, int], ...]
"""The sizes of all symbols of a function, in order of name."""
Compile = Callable[[str, Mapping[str, int]], RuntimeModule]
"""Gives the module that has the function of a name, compiled for sizes."""

MAX_FIRST_USES = 16
"""How many sets of sizes that came with calls a module keeps for each function; the set used least recently goes."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One function, compiled for one set of sizes."""

    function: str
    sizes: Sizes
    module: RuntimeModule


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a compiler needs to compile the functions for other sizes.

    Attributes:
        backend: whose functions they are.
        options: the backend's options, as the user gave them.
        text: the functions as script text; it cites constants by digest.
        constants: the cited arrays, by digest.
    """

    backend: str
    options: Mapping[str, Any]
    text: str
    constants: Mapping[str, NDArray]


class SpecialisedModule(RuntimeModule):
    """Functions with symbolic sizes, each compiled for some sets of sizes.

    Args:
        backend: whose functions they are, for messages.
        signatures: what each function takes and gives. The inputs determine all sizes.
        variants: the functions compiled for sizes; these are kept for good.
        compile_sizes: compiles a function for other sizes; ``None`` where that is not possible.
        recipe: what an artifact needs to hold for other sizes; ``None`` where it holds these only.
        max_first_uses: see :data:`MAX_FIRST_USES`.

    Raises:
        CallError: a variant has another signature than the function for these sizes.
    """

    def __init__(
        self,
        backend: str,
        signatures: Mapping[str, Signature],
        variants: Sequence[Variant],
        compile_sizes: Compile | None = None,
        recipe: Recipe | None = None,
        *,
        max_first_uses: int = MAX_FIRST_USES,
    ) -> None:
        self.backend = backend
        self.variants = tuple(variants)
        self.recipe = recipe
        self._signatures = dict(signatures)
        self._compile = compile_sizes
        self._max_first_uses = max_first_uses
        self._given = {(v.function, v.sizes): self._open(v.function, v.sizes, v.module) for v in self.variants}
        self._first_uses: dict[str, OrderedDict[Sizes, PackedFunction]] = {name: OrderedDict() for name in signatures}
        self._lock = ForkLock()

    @property
    def type_key(self) -> str:
        """``"specialised"``."""
        return "specialised"

    @property
    def function_names(self) -> tuple[str, ...]:
        """The names of all functions."""
        return tuple(self._signatures)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """What each function takes and gives."""
        return MappingProxyType(self._signatures)

    def find_signature(self, name: str) -> Signature:
        """Return what a function takes and gives, with symbolic sizes."""
        return self._signatures[name]

    def find_function(self, name: str) -> PackedFunction:
        """Return the function that finds the variant for the sizes of each call."""
        signature = self._signatures[name]
        num_inputs = len(signature.inputs)

        def call(*arrays: NDArray) -> None:
            sizes = tuple(sorted(bind_symbols(signature.inputs, arrays[:num_inputs]).items()))
            self._variant(name, sizes).impl(*arrays)

        return PackedFunction(name, call, signature)

    def held_sizes(self, name: str) -> tuple[Sizes, ...]:
        """Return the sets of sizes for which a function is compiled: those given, then those of calls."""
        with self._lock.lock:
            return (*(v.sizes for v in self.variants if v.function == name), *self._first_uses[name])

    def saved_with_recipe(self, *, keep: bool) -> SpecialisedModule:
        """Return the module as an artifact holds it: with its recipe, or without."""
        recipe = self.recipe if keep else None
        return SpecialisedModule(self.backend, self._signatures, self.variants, self._compile, recipe)

    @property
    def constants(self) -> Mapping[str, NDArray]:
        """The constants of all variants, and those of the recipe."""
        found: dict[str, NDArray] = dict(self.recipe.constants) if self.recipe else {}
        for variant in self.variants:
            found.update(variant.module.constants)
        return MappingProxyType(found)

    @property
    def is_native(self) -> bool:
        """Whether a variant holds native code."""
        return any(variant.module.is_native for variant in self.variants)

    @property
    def uses_threads(self) -> bool:
        """Whether a variant may use threads; where more may be compiled, they may."""
        return self._compile is not None or any(variant.module.uses_threads for variant in self.variants)

    @property
    def needed_runtimes(self) -> tuple[str, ...]:
        """The runtimes of the variants, and those whose code they call."""
        modules = [variant.module for variant in self.variants]
        needed = {module.type_key for module in modules}
        return tuple(sorted(needed.union(*(module.needed_runtimes for module in modules))))

    def prepare(self) -> None:
        """Prepare the variants."""
        for variant in self.variants:
            variant.module.prepare()

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the interface's keyword
        """Return the sources of the variants, one after the other."""
        return "\n\n".join(filter(None, (variant.module.get_source(format) for variant in self.variants)))

    def _variant(self, name: str, sizes: Sizes) -> PackedFunction:
        found = self._given.get((name, sizes))
        if found is not None:
            return found
        with self._lock.lock:
            used = self._first_uses[name]
            found = used.get(sizes)
            if found is None:
                found = used[sizes] = self._compile_for(name, sizes)
                if len(used) > self._max_first_uses:
                    used.popitem(last=False)
            used.move_to_end(sizes)
            return found

    def _compile_for(self, name: str, sizes: Sizes) -> PackedFunction:
        if self._compile is None:
            held = "; ".join(map(sizes_text, self.held_sizes(name))) or "none"
            hint = "Give these sizes to `build(specialize=...)`."
            if self.recipe is not None:
                hint = "Load the artifact with `load(path, compiler=byoc_core.compiler())`."
            raise CallError(
                f"function `{name}` of backend `{self.backend}`, which takes static shapes only",
                "is not compiled for these sizes",
                got=sizes_text(sizes),
                expected=f"one of: {held}",
                hint=hint,
            )
        try:
            module = self._compile(name, dict(sizes))
            module.prepare()
        except ByocError as error:
            where = f"function `{name}` of backend `{self.backend}` for {sizes_text(sizes)}"
            raise ExecutionError(where, f"cannot be compiled: {error}") from error
        return self._open(name, sizes, module)

    def _open(self, name: str, sizes: Sizes, module: RuntimeModule) -> PackedFunction:
        """Return a function of a module for given sizes, held against the signature that the sizes give."""
        function = module.get_function(name)
        expected = _specialised(self._signatures[name], dict(sizes))
        if function.returns_results or (function.signature is not None and not _is_same(function.signature, expected)):
            raise CallError(
                f"function `{name}` for {sizes_text(sizes)}",
                "has another signature than the function for these sizes",
                got=_signature_text(function.signature),
                expected=_signature_text(expected),
            )
        return function


def sizes_text(sizes: Sizes) -> str:
    """Return sizes as a person reads them: ``m = 2, n = 8``."""
    return ", ".join(f"{name} = {size}" for name, size in sizes)


def _specialised(signature: Signature, sizes: Mapping[str, int]) -> Signature:
    def at(spec: TensorSpec) -> TensorSpec:
        return TensorSpec(spec.name, spec.dtype, tuple(substitute(dim, sizes) for dim in spec.shape))

    return Signature(tuple(map(at, signature.inputs)), tuple(map(at, signature.outputs)))


def _is_same(found: Signature, expected: Signature) -> bool:
    def types(signature: Signature) -> list[list[tuple[str, object]]]:
        return [[(s.dtype, s.shape) for s in specs] for specs in (signature.inputs, signature.outputs)]

    return types(found) == types(expected) and not shape_symbols(d for s in expected.outputs for d in s.shape)


def _signature_text(signature: Signature | None) -> str:
    if signature is None:
        return "a function that returns its results"
    inputs, outputs = (
        ", ".join(f"{s.dtype}[{', '.join(map(str, s.shape))}]" for s in specs)
        for specs in (signature.inputs, signature.outputs)
    )
    return f"({inputs}) -> ({outputs})"
