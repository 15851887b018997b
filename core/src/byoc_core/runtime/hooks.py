# mypy: disable-error-code=empty-body
# (a specification is never called: its signature and its text are all there is)
"""The hooks of the run side: what a plugin of the group ``byoc.runtimes`` implements.

A runtime plugin is a module (or object) whose functions are marked with :data:`hookimpl`. Its entry point's name is
the ``type_key`` of the modules that it saves and loads. It must not import its compile-side half: a machine that only
runs artifacts has none. A function may leave out arguments that it does not need.

Every hook may raise an error of :mod:`byoc_core.errors`, which reaches the user as it is with a note that says whose
hook raised it; any other exception becomes a ``HookError`` that names plugin, distribution, version and hook.

The smallest runtime::

    from byoc_core.runtime.hooks import RuntimeInfo, hookimpl

    @hookimpl
    def byoc_runtime_info():
        return RuntimeInfo(type_key="mynpu")

    @hookimpl
    def byoc_save_module(module):
        return module.get_source().encode()

    @hookimpl
    def byoc_load_module(payload):
        return MyModule(payload.decode())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from byoc_core.errors import ArtifactError
from byoc_core.plugin.markers import hookimpl, hookspec
from byoc_core.runtime.module import NDArray, RuntimeModule
from byoc_core.runtime.status import Status

if TYPE_CHECKING:
    from byoc_core.runtime.specialised import SizesRefused

__all__ = [
    "LoadContext",
    "RuntimeInfo",
    "Status",
    "byoc_check_payload",
    "byoc_kernels",
    "byoc_load_file",
    "byoc_load_module",
    "byoc_runtime_info",
    "byoc_runtime_status",
    "byoc_save_module",
    "hookimpl",
]


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What a runtime says of itself.

    Attributes:
        type_key: the ``type_key`` of its modules; equal to the entry point's name.
        formats: versions of the payload that it can load; it writes the highest where a module does not name one
            (:attr:`RuntimeModule.payload_format`).
        file_formats: names of hand-written file formats that it can load; each is also the file name's ending.
        concurrency: ``"reentrant"`` where several threads may call one module at once; ``"serial"`` where the core
            must let them in one at a time.
        fork_safe: whether modules work in a child of ``os.fork`` that was made after they were. Where they do not, the
            core raises an error for each call there, in place of a call that might hang.
    """

    type_key: str
    formats: tuple[int, ...] = (1,)
    file_formats: tuple[str, ...] = ()
    concurrency: Literal["reentrant", "serial"] = "reentrant"
    fork_safe: bool = True


@dataclass(frozen=True, slots=True)
class LoadContext:
    """What a runtime may ask for while it loads a module.

    Attributes:
        constants: arrays by digest.
        allow_native: whether the user permits native code from this source.
        source: where the payload comes from, for messages.
        compiler: compiles functions for sizes that the payload does not hold, where the user permits that: called with
            a :class:`~byoc_core.runtime.specialised.Recipe`, the name of a function and its sizes, it returns a module
            or :class:`~byoc_core.runtime.specialised.SizesRefused`.
    """

    constants: Mapping[str, NDArray] = field(default_factory=lambda: MappingProxyType({}))
    allow_native: bool = False
    source: str = "payload"
    compiler: Callable[..., RuntimeModule | SizesRefused] | None = None

    def constant(self, digest: str) -> NDArray:
        """Gives the read-only array of that digest (perhaps memory-mapped: keep it, do not copy it).

        Raises:
            ArtifactError: there is none.
        """
        array = self.constants.get(digest)
        if array is None:
            raise ArtifactError(self.source, "cites a constant that is not there", got=digest)
        return array


@hookspec(since="0.1", required=True)
def byoc_runtime_info() -> RuntimeInfo:
    """Says who the runtime is and what it can load. Required.

    Called by: the registry of runtimes.
    When: the runtime is first asked for: a module of its type key is made, saved or loaded, a file is to be loaded, or
        somebody asks what works here.
    How often: once per process.
    Result: kept. It decides whether calls are serialised, and which payloads and files are handed to the runtime.
    If it raises: the runtime is quarantined with the reason, as it is if it gives something else or another type key
        than its entry point's name.

    Example::

        from byoc_core.runtime.hooks import RuntimeInfo, hookimpl


        @hookimpl
        def byoc_runtime_info():
            return RuntimeInfo(type_key="mynpu", formats=(1, 2), file_formats=("mynpu",), concurrency="serial")
    """


@hookspec(since="0.1")
def byoc_runtime_status() -> Status:
    """Says whether modules of this runtime can run on this machine. Optional: without it, they can.

    Called by: ``byoc backends`` and ``byoc doctor``; never on the way to running a model, where loading itself tells.
    When: the user asks what works here.
    How often: once per command. It should be quick and must have no effect.
    Result: a no is shown with its reason and remedy.
    If it raises: the failure is shown as the reason.

    Example::

        from ctypes.util import find_library

        from byoc_core.runtime.hooks import Status, hookimpl


        @hookimpl
        def byoc_runtime_status():
            if find_library("npu") is None:
                return Status(False, "libnpu is not installed", "Install it: apt install libnpu1.")
            return Status(True)
    """


@hookspec(since="0.1")
def byoc_save_module(module: RuntimeModule) -> bytes:
    """Gives a module as bytes. Optional: without it, modules of this runtime cannot be saved.

    Called by: ``Executable.save`` and ``Executable.export_library``.
    When: an artifact is made.
    How often: once per module of this ``type_key``.
    Result: the payload in the artifact; equal modules must give equal bytes. Constants are not part of it: they are
        cited by digest, and the core stores ``module.constants`` itself.
    If it raises: nothing is written.

    Example::

        from byoc_core.runtime.hooks import hookimpl


        @hookimpl
        def byoc_save_module(module):
            return module.get_source().encode()
    """


@hookspec(since="0.1")
def byoc_load_module(type_key: str, payload: bytes, context: LoadContext) -> RuntimeModule:
    """Gives back the module that ``byoc_save_module`` made bytes of. Optional: without it, none can be loaded.

    Called by: ``byoc_core.load`` and ``byoc_core.load_module``.
    When: an artifact is loaded, after the payload's digest and format have been checked.
    How often: once per module of this ``type_key``.
    Result: the module; it must have the functions that the artifact's manifest names, in that order. The bytes come
        from a file that anyone may have written: a misfit must raise an ``ArtifactError``, and no native code in them
        may be loaded unless ``context.allow_native``.
    If it raises: loading stops and nothing is kept.

    Example::

        import json

        from byoc_core.errors import ArtifactError
        from byoc_core.runtime.hooks import hookimpl
        from byoc_core.runtime.module import PackedFunction, RuntimeModule


        class Scaling(RuntimeModule):
            type_key = "mynpu"

            def __init__(self, factors):
                self.factors = factors

            @property
            def function_names(self):
                return tuple(self.factors)

            def find_function(self, name):
                def run(x, out):
                    out[...] = x * self.factors[name]

                return PackedFunction(name, run)


        @hookimpl
        def byoc_load_module(payload, context):
            try:
                factors = json.loads(payload)
                return Scaling({str(name): float(factor) for name, factor in factors.items()})
            except (ValueError, TypeError, AttributeError) as error:
                raise ArtifactError(context.source, f"is no payload of mynpu: {error}") from error
    """


@hookspec(since="0.2")
def byoc_check_payload(type_key: str, payload: bytes, context: LoadContext) -> None:
    """Checks the bytes of a module without loading it. Optional: without it, only their digest is checked.

    Called by: ``byoc_core.verify`` and ``byoc verify``.
    When: a user verifies an artifact, after the payload's digest has been checked.
    How often: once per module of this ``type_key``.
    Result: nothing. The hook runs nothing of the payload, loads no native code, and needs no device. What it lets pass,
        ``byoc_load_module`` accepts where device and permission are there.
    If it raises: an ``ArtifactError`` calls the artifact wrong.

    Example::

        import json

        from byoc_core.errors import ArtifactError
        from byoc_core.runtime.hooks import hookimpl


        @hookimpl
        def byoc_check_payload(payload, context):
            try:
                json.loads(payload)
            except ValueError as error:
                raise ArtifactError(context.source, f"is no payload of mynpu: {error}") from error
    """


@hookspec(since="0.1")
def byoc_load_file(data: bytes, format: str, context: LoadContext) -> RuntimeModule:  # noqa: A002 - the field's usual keyword
    """Gives a module from a file that a person wrote. Optional: needed for ``RuntimeInfo.file_formats``.

    Called by: ``byoc_core.load_module(path, format)``.
    When: the format is one of the runtime's ``file_formats``; the file name's ending counts where none is given.
    How often: once per call.
    Result: the module.
    If it raises: the caller gets the error. A mistake in the file must raise an ``ArtifactError`` that says in which
        line.

    Example::

        from byoc_core.errors import ArtifactError
        from byoc_core.runtime.hooks import hookimpl
        from byoc_core.runtime.module import PackedFunction, RuntimeModule


        class Constants(RuntimeModule):
            type_key = "mynpu"

            def __init__(self, values):
                self.values = values

            @property
            def function_names(self):
                return tuple(self.values)

            def find_function(self, name):
                return PackedFunction(name, lambda out: out.fill(self.values[name]))


        @hookimpl
        def byoc_load_file(data, context):
            values = {}
            for number, line in enumerate(data.decode().splitlines(), start=1):
                name, equals, text = line.partition("=")
                if not equals:
                    raise ArtifactError(f"{context.source}, line {number}", "is not `name = number`", got=repr(line))
                values[name.strip()] = float(text)
            return Constants(values)
    """


@hookspec(since="0.2")
def byoc_kernels() -> Mapping[str, Callable[..., object]]:
    """Gives numpy kernels of the package's own ops. Optional: the host needs it to save models with these ops.

    Called by: the numpy host, when it compiles an op that ``byoc_ops`` brings, and when it loads an artifact with one.
    When: an op of the package stays on the host, or an artifact names this runtime for the kernel of an op.
    How often: once per process.
    Result: functions by the name of the op: ``kernel(*inputs, **attributes)`` gives an array, or a tuple of arrays.
        Inputs are read-only numpy arrays in row-major order. The results are checked against the types that the op's
        type rule gave. The same function serves as ``OpDef.kernel`` on the compile side. A kernel must be re-entrant,
        and attributes and inputs may come from a file that anyone may have written. Names of the core's own ops say
        nothing.
    If it raises: compiling or loading stops.

    Example::

        import numpy as np

        from byoc_core.runtime.hooks import hookimpl


        @hookimpl
        def byoc_kernels():
            def swish(x):
                return x / (1 + np.exp(-x))

            return {"mynpu.swish": swish}
    """
