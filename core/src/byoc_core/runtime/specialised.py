"""Modules of functions with symbolic sizes, made of modules for given sizes.

A backend of static shapes compiles a function once for each set of sizes. The machine sees a single function with
symbolic sizes; a call finds the module for the call's sizes. New sizes are compiled by a callable from the compile
side, if available. Sizes without a compiled module run on the host, with a message in the log. Without a host form, a
call with such sizes is an error listing the compiled sizes.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from byoc_core.errors import ByocError, CallError, ExecutionError
from byoc_core.printable import to_printable
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule, Signature
from byoc_core.runtime.sets_of_sizes import (
    Sizes,
    check_signature,
    determined_symbols,
    output_shapes,
    sets_text,
    sizes_text,
    specialised_signature,
)
from byoc_core.runtime.threads.fork_lock import ForkLock

__all__ = [
    "MAX_FIRST_USES",
    "MAX_HOST_SIZES",
    "Compile",
    "Recipe",
    "SizesRefused",
    "SpecialisedModule",
    "Variant",
]

_LOGGER = logging.getLogger("byoc_core")


@dataclass(frozen=True, slots=True)
class SizesRefused:
    """Sizes refused by a backend; the text gives the reason."""

    text: str


Compile = Callable[[str, Mapping[str, int]], RuntimeModule | SizesRefused]
"""Returns the module with the function of a name, compiled for sizes, or the backend's refusal."""

MAX_FIRST_USES = 16
"""The number of sets of sizes from calls kept by a module for each function; the least recently used set is dropped."""

MAX_HOST_SIZES = 1024
"""The number of sets of sizes on the host remembered by a module for each function.

A forgotten set is compiled, and refused, once more.
"""


@dataclass(frozen=True, slots=True)
class Variant:
    """One function, compiled for one set of sizes."""

    function: str
    sizes: Sizes
    module: RuntimeModule


@dataclass(frozen=True, slots=True)
class Recipe:
    """The data for compiling the functions for other sizes.

    Attributes:
        backend: the backend of the functions.
        options: the backend's options, as given by the user.
        text: the functions as script text with constants cited by digest.
        constants: the cited arrays, by digest.
    """

    backend: str
    options: Mapping[str, Any]
    text: str
    constants: Mapping[str, NDArray]


@dataclass(frozen=True, slots=True)
class _ReadyFunction:
    """A function for one set of sizes, its module, and the shapes of the results."""

    function: PackedFunction
    module: RuntimeModule
    output_shapes: tuple[tuple[int, ...], ...]


class SpecialisedModule(RuntimeModule):
    """Functions with symbolic sizes, each compiled for some sets of sizes.

    Threads may call at once. A set of sizes is compiled once, one set after another; calls with already compiled sizes
    do not wait.

    Args:
        backend: the backend of the functions, for messages.
        signatures: the signature of each function. The inputs determine all sizes.
        variants: the functions compiled for sizes; these are kept for good.
        compile_sizes: compiles a function for other sizes; ``None`` if not possible.
        recipe: the artifact's data for other sizes; ``None`` if the artifact holds the given sizes only.
        host: the same functions for any sizes, run by the host; functions absent from this module have no host form.
        is_strict: whether an exception during compilation is an error of the call despite a host form.
        max_first_uses: see :data:`MAX_FIRST_USES`.

    Raises:
        CallError: the inputs of a function do not determine all sizes; a variant is present twice, names other sizes
            than the function's, or has another signature than the function for these sizes; a host form has another
            signature than the function.
    """

    def __init__(
        self,
        backend: str,
        signatures: Mapping[str, Signature],
        variants: Sequence[Variant],
        compile_sizes: Compile | None = None,
        recipe: Recipe | None = None,
        *,
        host: RuntimeModule | None = None,
        is_strict: bool = False,
        max_first_uses: int = MAX_FIRST_USES,
    ) -> None:
        self.backend = backend
        self.variants = tuple(variants)
        self.recipe = recipe
        self.host = host
        self._signatures = dict(signatures)
        self._compile = compile_sizes
        self._is_strict = is_strict
        self._max_first_uses = max_first_uses
        self._symbols = {name: determined_symbols(name, signature) for name, signature in self._signatures.items()}
        self._variant_functions: dict[tuple[str, Sizes], _ReadyFunction] = {}
        for variant in self.variants:
            self._add_variant(variant)
        names = () if host is None else host.function_names
        self._host_forms = {name: self._open_host_form(name) for name in self._signatures if name in names}
        self._first_uses: dict[str, OrderedDict[Sizes, _ReadyFunction]] = {name: OrderedDict() for name in signatures}
        self._host_uses: dict[str, OrderedDict[Sizes, _ReadyFunction]] = {name: OrderedDict() for name in signatures}
        self._cache_lock = ForkLock()
        self._compile_lock = ForkLock()  # taken before the other, never after it
        self._reports_parts = False

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
        """The signature of each function."""
        return MappingProxyType(self._signatures)

    def find_signature(self, name: str) -> Signature:
        """Return the signature of a function, with symbolic sizes."""
        return self._signatures[name]

    def find_function(self, name: str) -> PackedFunction:
        """Return a function that finds the variant for the sizes of each call."""
        signature = self._signatures[name]
        num_inputs = len(signature.inputs)

        def call(*arrays: NDArray) -> None:
            sizes = tuple(sorted(bind_symbols(signature.inputs, arrays[:num_inputs]).items()))
            ready = self._find(name, sizes)
            for spec, array, shape in zip(signature.outputs, arrays[num_inputs:], ready.output_shapes, strict=True):
                if array.shape != shape:  # machine code may rely on the sizes of the inputs
                    where = f"function `{name}`, output `{spec.name}`"
                    raise CallError(where, "has the wrong shape", got=list(array.shape), expected=list(shape))
            ready.function.impl(*arrays)

        return PackedFunction(name, call, signature)

    def compiled_sizes(self, name: str) -> tuple[Sizes, ...]:
        """Return the sets of sizes of the compiled variants of a function: the given sets, then the sets from calls."""
        with self._cache_lock.lock:
            return (*self.given_sizes(name), *self._first_uses[name])

    def given_sizes(self, name: str) -> tuple[Sizes, ...]:
        """Return the given sets of sizes of a function, compiled in every process with this module."""
        return tuple(v.sizes for v in self.variants if v.function == name)

    def symbols_of(self, name: str) -> frozenset[str]:
        """Return the symbols of a function whose sizes are fixed by compilation."""
        return self._symbols[name]

    def has_host_form(self, name: str) -> bool:
        """Return whether sizes without a compiled module run on the host."""
        return name in self._host_forms

    def saved_with_recipe(self, *, keep: bool) -> SpecialisedModule:
        """Return the module as held by an artifact: with or without the recipe."""
        return SpecialisedModule(
            self.backend,
            self._signatures,
            self.variants,
            self._compile,
            self.recipe if keep else None,
            host=self.host,
            is_strict=self._is_strict,
            max_first_uses=self._max_first_uses,
        )

    @property
    def constants(self) -> Mapping[str, NDArray]:
        """The constants of all variants, of the host form and of the recipe."""
        found: dict[str, NDArray] = dict(self.recipe.constants) if self.recipe else {}
        for module in self._inner_modules:
            found.update(module.constants)
        return MappingProxyType(found)

    @property
    def is_native(self) -> bool:
        """Whether a variant, or the host form, holds native code."""
        return any(module.is_native for module in self._inner_modules)

    @property
    def uses_threads(self) -> bool:
        """Whether a variant or the host form may use threads; ``True`` if more variants may be compiled."""
        return self._compile is not None or any(module.uses_threads for module in self._inner_modules)

    @property
    def needed_runtimes(self) -> tuple[str, ...]:
        """The runtimes of the variants and the host form, and the runtimes of code called by these modules."""
        modules = self._inner_modules
        needed = {module.type_key for module in modules}
        return tuple(sorted(needed.union(*(module.needed_runtimes for module in modules))))

    def prepare(self) -> None:
        """Prepare the variants and the host form."""
        for module in self._inner_modules:
            module.prepare()

    def report_parts(self) -> None:
        """Report the parts of calls of all modules, including modules compiled by later calls."""
        with self._compile_lock.lock:
            self._reports_parts = True
            first_uses = [ready.module for cache in self._first_uses.values() for ready in cache.values()]
            for module in (*self._inner_modules, *first_uses):
                module.report_parts()

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the interface's keyword
        """Return the sources of the variants, one after the other."""
        return "\n\n".join(filter(None, (variant.module.get_source(format) for variant in self.variants)))

    @property
    def _inner_modules(self) -> list[RuntimeModule]:
        return [*(variant.module for variant in self.variants), *([] if self.host is None else [self.host])]

    def _find(self, name: str, sizes: Sizes) -> _ReadyFunction:
        """Return a function for sizes: compiled (now if needed), or the host form."""
        found = self._variant_functions.get((name, sizes)) or self._find_cached(name, sizes)
        if found is not None:
            return found
        with self._compile_lock.lock:
            found = self._find_cached(name, sizes)  # perhaps stored by an earlier thread
            if found is not None:
                return found
            compiled = self._compile_for(name, sizes)
            is_compiled = isinstance(compiled, _ReadyFunction)
            ready = compiled if isinstance(compiled, _ReadyFunction) else self._fall_back(name, sizes, compiled)
            cache = (self._first_uses if is_compiled else self._host_uses)[name]
            with self._cache_lock.lock:
                cache[sizes] = ready
                if len(cache) > (self._max_first_uses if is_compiled else MAX_HOST_SIZES):
                    cache.popitem(last=False)
        return ready

    def _find_cached(self, name: str, sizes: Sizes) -> _ReadyFunction | None:
        with self._cache_lock.lock:
            for cache in (self._first_uses[name], self._host_uses[name]):
                found = cache.get(sizes)
                if found is not None:
                    cache.move_to_end(sizes)
                    return found
        return None

    def _compile_for(self, name: str, sizes: Sizes) -> _ReadyFunction | ByocError:
        """Return a function compiled for sizes, or the error for a call without a host form."""
        where = f"function `{name}` of backend `{self.backend}`"
        if self._compile is None:
            return self._missing_sizes_error(f"{where} (static shapes only)", name, sizes)
        where = f"{where} for {sizes_text(sizes)}"
        try:
            module = self._compile(name, dict(sizes))
            if isinstance(module, SizesRefused):
                return ExecutionError(where, f"cannot be compiled: {module.text}")
            module.prepare()
            if self._reports_parts:
                module.report_parts()
            return self._open(name, sizes, module)
        except ByocError as error:
            failure = ExecutionError(where, f"cannot be compiled: {error}")
            failure.__cause__ = error
            if self._is_strict:
                raise failure from error
            return failure

    def _missing_sizes_error(self, where: str, name: str, sizes: Sizes) -> CallError:
        hint = "Pass these sizes to `build(specialize=...)`."
        if self.recipe is not None:
            hint = "Load the artifact with `load(path, compiler=byoc_core.compiler())`."
        return CallError(
            where,
            "is not compiled for these sizes",
            got=sizes_text(sizes),
            expected=f"one of: {sets_text(self.compiled_sizes(name))}",
            hint=hint,
        )

    def _fall_back(self, name: str, sizes: Sizes, error: ByocError) -> _ReadyFunction:
        """Return the host form for sizes without a compiled module, with a message in the log.

        Raises:
            ByocError: ``error``, without a host form.
        """
        form = self._host_forms.get(name)
        if form is None:
            raise error
        assert self.host is not None  # the host form is its function
        ready = _ReadyFunction(form, self.host, output_shapes(self._signatures[name], sizes, f"function `{name}`"))
        text = f"function `{name}` of backend `{self.backend}` runs on the host for {sizes_text(sizes)}: {error}"
        _LOGGER.warning("%s", to_printable(text))
        if error.__cause__ is not None:
            _LOGGER.debug("cause of the failed compilation", exc_info=error.__cause__)
        return ready

    def _add_variant(self, variant: Variant) -> None:
        name, sizes = variant.function, variant.sizes
        where = f"function `{name}` for {sizes_text(sizes) or 'no sizes'}"
        symbols = self._symbols.get(name)
        if symbols is None or {symbol for symbol, _ in sizes} != symbols or (name, sizes) in self._variant_functions:
            problem = (
                "occurs twice" if (name, sizes) in self._variant_functions else "has other symbols than the function"
            )
            raise CallError(where, problem, expected=", ".join(sorted(symbols or ())) or "none")
        self._variant_functions[name, sizes] = self._open(name, sizes, variant.module)

    def _open(self, name: str, sizes: Sizes, module: RuntimeModule) -> _ReadyFunction:
        """Return a function of a module for given sizes, checked against the signature for these sizes."""
        function = module.get_function(name)
        where = f"function `{name}` for {sizes_text(sizes) or 'no sizes'}"
        expected = specialised_signature(self._signatures[name], sizes, where)
        check_signature(where, "the function for these sizes", function, expected)
        return _ReadyFunction(function, module, output_shapes(expected, sizes, where))

    def _open_host_form(self, name: str) -> PackedFunction:
        assert self.host is not None
        function = self.host.get_function(name)
        check_signature(f"host form of function `{name}`", "the function", function, self._signatures[name])
        return function
