"""Modules of generated C: text, signatures, constants, and the built library."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

import numpy as np

from byoc_core.errors import ArtifactError, InternalError, ToolchainError
from byoc_core.native.loader import ArgumentSpec, NativeLibrary
from byoc_core.native.toolchain import BuildOptions, CompiledLibrary, find_toolchain, has_parallel_loops
from byoc_core.runtime.csource.library_pool import CONSTANT_TABLE, library_pool
from byoc_core.runtime.module import (
    CallSteps,
    CallTraits,
    NativeEntry,
    NDArray,
    PackedFunction,
    RuntimeModule,
    Signature,
)
from byoc_core.runtime.parts import part_marker
from byoc_core.runtime.threads import use_openmp
from byoc_core.runtime.threads.fork_lock import ForkLock

__all__ = ["CONSTANT_TABLE", "CSourceModule"]


class CSourceModule(RuntimeModule):
    """Functions in C, compiled when first needed and loaded when a function is first requested.

    The text exports ``__tvm_ffi_<symbol>`` for every function, over the declarations of ``byoc_ffi.h``. A text with
    constants defines ``BYOC_EXPORT const void *byoc_constants[N];``. This table is filled once after loading, in the
    order of ``constants``. Other variables with a lifetime beyond a call belong to the process: modules of equal texts
    may share one loaded library.

    Args:
        source: a C translation unit.
        functions: the signature of each exported symbol.
        constants: arrays by digest, in the order of the table. The arrays are kept, not copied, and must not change.
        options: the build options of the text.
        library: the compiled text; without a library, a C compiler is needed.
        traits: permissions of functions beyond the plain contract, by symbol.
        not_held: files used in the build but absent from the artifact, by name: objects, and ``"headers"``. The module
            runs, and cannot be built again.
        steps: the calls that may replace a function's call, by symbol; see :meth:`RuntimeModule.call_steps`.
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
        steps: Mapping[str, CallSteps] = MappingProxyType({}),
    ) -> None:
        self._source = source
        self._signatures = MappingProxyType(dict(functions))
        self._constants = MappingProxyType({digest: _readable(array) for digest, array in (constants or {}).items()})
        self._options = options or BuildOptions()
        self._library = library
        self._traits = MappingProxyType(
            {symbol: permissions for symbol, permissions in (traits or {}).items() if permissions != CallTraits()}
        )
        self._not_held = tuple(not_held)
        self._steps = steps
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
        """The signature of each function."""
        return self._signatures

    @property
    def traits(self) -> Mapping[str, CallTraits]:
        """The permissions of functions for callers, by symbol; functions without permissions are left out."""
        return self._traits

    @property
    def payload_format(self) -> int:
        """3 with own libraries, objects or headers, 2 with permissions for callers or another machine, else 1."""
        options = self._options
        if options.libraries or options.include_dirs or options.extra_objects or self._not_held:
            return 3
        return 2 if self._traits or options.target else 1

    @property
    def not_held(self) -> tuple[str, ...]:
        """Files used to build the text but absent from this machine: names of objects, and ``"headers"``."""
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
        """Whether the text has parallel loops (the include ``byoc_parallel.h`` is present)."""
        return has_parallel_loops(self._source)

    @property
    def options(self) -> BuildOptions:
        """The build options of the text."""
        return self._options

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the field's usual keyword
        """Return the C text (format ``""`` or ``"c"``); an empty text for another format."""
        return self._source if format in ("", "c") else ""

    def build(self) -> CompiledLibrary:
        """Return the compiled library; run the C compiler the first time, unless the module came with a library.

        Raises:
            ToolchainError: no C compiler, or the compiler refuses the text.
        """
        with self._fork_lock.lock:
            if self._library is None:
                self.check_buildable()
                self._library = find_toolchain(self._options.target).compile(self._source, self._options)
            return self._library

    def check_buildable(self) -> None:
        """Check that the text can be built again from the module alone.

        Raises:
            ToolchainError: the text was built with files absent from the artifact.
        """
        if self._not_held:
            raise ToolchainError(
                f"library `{', '.join(self.function_names)}`",
                f"was built with files missing in the artifact: {', '.join(self._not_held)}",
                hint="Build or export the library where the model is compiled.",
            )

    def find_signature(self, name: str) -> Signature:
        """Return the signature of a function; build nothing."""
        return self._signatures[name]

    def call_traits(self, name: str) -> CallTraits:
        """Return the permissions of a function for callers; build nothing."""
        return self._traits.get(name, CallTraits())

    def call_steps(self, name: str) -> CallSteps | None:
        """Return the calls that may replace a call of a function, if any are stated."""
        return self._steps.get(name)

    def find_function(self, name: str) -> PackedFunction:
        """Return a function; build and load the library the first time.

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

    def report_parts(self) -> None:
        """Report the kernels of calls; nothing happens without the C extension, or for an older library."""
        with self._fork_lock.lock:
            library = self._load()
        with suppress(ArtifactError):  # of an older byoc-core, without the symbol
            report = library.address_of("byoc_report_parts")
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(report)(part_marker())

    def _load(self) -> NativeLibrary:
        if self._loaded is None:
            library = self.build()
            if self.uses_threads:
                use_openmp()
            name = ", ".join(self.function_names)
            self._loaded = library_pool.take(library, name, tuple(self._constants.values()))
        return self._loaded


def _readable(array: NDArray) -> NDArray:
    """Return the array as needed by generated code: contiguous and aligned (a mapped file may be neither)."""
    return np.require(array, requirements=["C", "A"])


def _arguments(signature: Signature) -> list[ArgumentSpec]:
    specs = (*signature.inputs, *signature.outputs)
    for spec in specs:
        if any(isinstance(dim, int) and dim < 0 for dim in spec.shape):
            raise InternalError(f"argument `{spec.name}`", "has a negative size")
    return [(spec.dtype, tuple(dim if isinstance(dim, int) else None for dim in spec.shape)) for spec in specs]
