"""Modules of generated C: the text, its signatures and constants, and the library built from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from byoc_core.errors import InternalError, ToolchainError
from byoc_core.native.loader import ArgumentSpec, NativeLibrary
from byoc_core.native.toolchain import BuildOptions, CompiledLibrary, find_toolchain, has_parallel_loops
from byoc_core.runtime.csource.library_pool import CONSTANT_TABLE, library_pool
from byoc_core.runtime.module import CallTraits, NativeEntry, NDArray, PackedFunction, RuntimeModule, Signature
from byoc_core.runtime.threads import use_openmp
from byoc_core.runtime.threads.fork_lock import ForkLock

__all__ = ["CONSTANT_TABLE", "CSourceModule"]


class CSourceModule(RuntimeModule):
    """Functions in C, compiled when first needed and loaded when first called.

    The text exports ``__tvm_ffi_<symbol>`` for every function, over the declarations of ``byoc_ffi.h``. Where it needs
    constants it defines ``BYOC_EXPORT const void *byoc_constants[N];``, which is filled once after loading, in the
    order of ``constants``. Other variables of the text that outlive a call are the process's: modules of equal texts
    may share one loaded library.

    Args:
        source: one C translation unit.
        functions: what each exported symbol takes and gives.
        constants: arrays by digest, in the order of the table. They are kept, not copied, and must not change.
        options: how the text is compiled.
        library: the text compiled already; without it a C compiler is needed.
        traits: what functions permit beyond the plain contract, by symbol.
        not_held: files that the text was built with and that an artifact does not hold, by name: objects, and
            ``"headers"``. Such a module runs, and cannot be built again.
    """

    def __init__(
        self,
        source: str,
        functions: Mapping[str, Signature],
        *,
        constants: Mapping[str, NDArray] | None = None,
        options: BuildOptions | None = None,
        library: CompiledLibrary | None = None,
        traits: Mapping[str, CallTraits] | None = None,
        not_held: Sequence[str] = (),
    ) -> None:
        self._source = source
        self._signatures = MappingProxyType(dict(functions))
        self._constants = MappingProxyType({digest: _readable(array) for digest, array in (constants or {}).items()})
        self._options = options or BuildOptions()
        self._library = library
        self._traits = MappingProxyType(
            {symbol: found for symbol, found in (traits or {}).items() if found != CallTraits()}
        )
        self._not_held = tuple(not_held)
        self._loaded: NativeLibrary | None = None
        self._functions: dict[str, PackedFunction] = {}
        self._fork_lock = ForkLock()

    @property
    def type_key(self) -> str:
        """``"csource"``."""
        return "csource"

    @property
    def function_names(self) -> tuple[str, ...]:
        """The exported symbols, in the order of the text."""
        return tuple(self._signatures)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """What each function takes and gives."""
        return self._signatures

    @property
    def traits(self) -> Mapping[str, CallTraits]:
        """What functions permit their callers, by symbol; those that permit nothing are left out."""
        return self._traits

    @property
    def payload_format(self) -> int:
        """3 with a library or object of the author's, 2 with permissions for callers or another machine, else 1."""
        options = self._options
        if options.libraries or options.include_dirs or options.extra_objects or self._not_held:
            return 3
        return 2 if self._traits or options.target else 1

    @property
    def not_held(self) -> tuple[str, ...]:
        """What the text was built with that is not on this machine: names of objects, and ``"headers"``."""
        return self._not_held

    @property
    def constants(self) -> Mapping[str, NDArray]:
        """The constants by digest, in the order of the table ``byoc_constants``."""
        return self._constants

    @property
    def is_native(self) -> bool:
        """``True``: the saved payload holds the compiled library."""
        return True

    @property
    def uses_threads(self) -> bool:
        """Whether the text has parallel loops (it includes ``byoc_parallel.h``)."""
        return has_parallel_loops(self._source)

    @property
    def options(self) -> BuildOptions:
        """How the text is compiled."""
        return self._options

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the field's usual keyword
        """Gives the C text (format ``""`` or ``"c"``); empty for another format."""
        return self._source if format in ("", "c") else ""

    def build(self) -> CompiledLibrary:
        """Gives the compiled library; runs the C compiler the first time, unless it came with the module.

        Raises:
            ToolchainError: no C compiler, or it refuses the text.
        """
        with self._fork_lock.lock:
            if self._library is None:
                self.check_buildable()
                self._library = find_toolchain(self._options.target).compile(self._source, self._options)
            return self._library

    def check_buildable(self) -> None:
        """Check that the text can be built again from what the module has.

        Raises:
            ToolchainError: it was built with files that the artifact does not hold.
        """
        if self._not_held:
            raise ToolchainError(
                f"library `{', '.join(self.function_names)}`",
                f"was built with files that its artifact does not hold: {', '.join(self._not_held)}",
                hint="Build it again, or export it, where the model is compiled.",
            )

    def find_signature(self, name: str) -> Signature:
        """Gives what a function takes and gives; nothing is built."""
        return self._signatures[name]

    def call_traits(self, name: str) -> CallTraits:
        """Gives what a function permits its callers; nothing is built."""
        return self._traits.get(name, CallTraits())

    def find_function(self, name: str) -> PackedFunction:
        """Gives a function; builds and loads the library the first time.

        Raises:
            ToolchainError: the library must be built and cannot be.
            ArtifactError: the library does not fit this machine, or lacks the function.
        """
        with self._fork_lock.lock:
            if name not in self._functions:
                signature = self._signatures[name]
                takes_workspace = self.call_traits(name).workspace_nbytes != 0
                optional = [("uint8", (None,))] if takes_workspace else []
                native = self._load().function(name, _arguments(signature), optional)
                entry = NativeEntry(native.address, 0, native.explain, native)
                self._functions[name] = PackedFunction(name, native, signature, entry)
            return self._functions[name]

    def _load(self) -> NativeLibrary:
        if self._loaded is None:
            library = self.build()
            if self.uses_threads:
                use_openmp()
            name = ", ".join(self.function_names)
            self._loaded = library_pool.take(library, name, tuple(self._constants.values()))
        return self._loaded


def _readable(array: NDArray) -> NDArray:
    """Gives the array as generated code reads it: compact and aligned (a mapped file may be neither)."""
    return np.require(array, requirements=["C", "A"])


def _arguments(signature: Signature) -> list[ArgumentSpec]:
    specs = (*signature.inputs, *signature.outputs)
    for spec in specs:
        if any(isinstance(dim, int) and dim < 0 for dim in spec.shape):
            raise InternalError(f"argument `{spec.name}`", "has a negative size")
    return [(spec.dtype, tuple(dim if isinstance(dim, int) else None for dim in spec.shape)) for spec in specs]
