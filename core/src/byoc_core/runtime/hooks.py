# mypy: disable-error-code=empty-body
# (a specification is never called: its signature and its text are all there is)
"""The hooks of the run side, implemented by the plugins of the group ``byoc.runtimes``.

A runtime plugin is a module (or object) with functions marked by :data:`hookimpl`. The entry point's name is the
``type_key`` of the plugin's modules, for saving and for loading. The plugin must not import the compile-side half: a
machine for running artifacts has none. A function may omit unneeded arguments.

Every hook may raise an error of :mod:`byoc_core.errors`. The error reaches the user unchanged, with a note naming the
plugin of the hook. Any other exception becomes a ``HookError`` with plugin, distribution, version and hook.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from byoc_core.errors import ArtifactError
from byoc_core.plugin.markers import hookimpl, hookspec
from byoc_core.runtime.module import NDArray, RuntimeModule
from byoc_core.runtime.status import Status

if TYPE_CHECKING:
    from byoc_core.runtime.devices import Device
    from byoc_core.runtime.specialised import SizesRefused

__all__ = [
    "LoadContext",
    "RuntimeInfo",
    "Status",
    "byoc_check_payload",
    "byoc_devices",
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
    """A runtime's description of itself.

    Attributes:
        type_key: the ``type_key`` of the modules; equal to the entry point's name.
        formats: loadable versions of the payload; the highest is written unless a module names a version
            (:attr:`RuntimeModule.payload_format`).
        file_formats: names of loadable hand-written file formats; each is also the file name's ending.
        concurrency: ``"reentrant"`` if several threads may call one module at once; ``"serial"`` if the core must admit
            threads singly.
        fork_safe: whether modules work in a child of ``os.fork`` created after the modules. If not, the core raises an
            error for each call there instead of risking a hang.
    """

    type_key: str
    formats: tuple[int, ...] = (1,)
    file_formats: tuple[str, ...] = ()
    concurrency: Literal["reentrant", "serial"] = "reentrant"
    fork_safe: bool = True


@dataclass(frozen=True, slots=True)
class LoadContext:
    """Resources for a runtime while a module is loaded.

    Attributes:
        constants: arrays by digest.
        allow_native: whether the user permits native code from this source.
        source: the origin of the payload, for messages.
        compiler: compiles functions for sizes absent from the payload, if permitted by the user. The callable takes a
            :class:`~byoc_core.runtime.specialised.Recipe`, the name of a function and sizes. The result is a module or
            :class:`~byoc_core.runtime.specialised.SizesRefused`.
    """

    constants: Mapping[str, NDArray] = field(default_factory=lambda: MappingProxyType({}))
    allow_native: bool = False
    source: str = "payload"
    compiler: Callable[..., RuntimeModule | SizesRefused] | None = None

    def constant(self, digest: str) -> NDArray:
        """Return the read-only array of this digest (perhaps memory-mapped: keep, do not copy).

        Raises:
            ArtifactError: no such array.
        """
        array = self.constants.get(digest)
        if array is None:
            raise ArtifactError(self.source, "cites a missing constant", got=digest)
        return array


@hookspec(since="0.1", required=True)
def byoc_runtime_info() -> RuntimeInfo:
    """Return the runtime's name and loadable formats. Required.

    Called by: the registry of runtimes.
    When: the runtime is first requested: a module of this type key is made, saved or loaded, a file is to be loaded, or
        the user asks about working plugins.
    How often: once per process.
    Result: kept. The result decides whether calls are serialised, and selects the payloads and files for the runtime.
    If it raises: the runtime is quarantined with the reason. A result of another type, or a type key different from the
        entry point's name, has the same effect.

    Example::

        from byoc_core.runtime.hooks import RuntimeInfo, hookimpl


        @hookimpl
        def byoc_runtime_info():
            return RuntimeInfo(type_key="mynpu", formats=(1, 2), file_formats=("mynpu",), concurrency="serial")
    """


@hookspec(since="0.1")
def byoc_runtime_status() -> Status:
    """Return whether modules of this runtime can run on this machine. Optional: by default, modules can run.

    Called by: ``byoc backends`` and ``byoc doctor``; never before running a model, where loading itself finds problems.
    When: the user asks about working plugins.
    How often: once per command. The hook should be quick and must have no effect.
    Result: a negative status is shown with reason and remedy.
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
    """Return a module as bytes. Optional: without it, modules of this runtime cannot be saved.

    Called by: ``Executable.save`` and ``Executable.export_library``.
    When: an artifact is made.
    How often: once per module of this ``type_key``.
    Result: the payload in the artifact; equal modules must give equal bytes. Constants are cited by digest, not
        included: the core stores ``module.constants`` itself.
    If it raises: nothing is written.

    Example::

        from byoc_core.runtime.hooks import hookimpl


        @hookimpl
        def byoc_save_module(module):
            return module.get_source().encode()
    """


@hookspec(since="0.1")
def byoc_load_module(type_key: str, payload: bytes, context: LoadContext) -> RuntimeModule:
    """Load a module from the bytes of ``byoc_save_module``. Optional: without it, no module can be loaded.

    Called by: ``byoc_core.load`` and ``byoc_core.load_module``.
    When: an artifact is loaded, after the check of the payload's digest and format.
    How often: once per module of this ``type_key``.
    Result: the module, with the functions listed in the artifact's manifest, in the same order. The bytes come from an
        untrusted file: a misfit must raise an ``ArtifactError``, and native code in the bytes may be loaded only with
        ``context.allow_native``.
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
    """Check the bytes of a module without loading. Optional: by default, only the digest is checked.

    Called by: ``byoc_core.verify`` and ``byoc verify``.
    When: a user verifies an artifact, after the check of the payload's digest.
    How often: once per module of this ``type_key``.
    Result: nothing. The hook runs nothing of the payload, loads no native code, and needs no device.
        ``byoc_load_module`` accepts every payload passed by this hook if device and permission are present.
    If it raises: an ``ArtifactError`` marks the artifact as wrong.

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
    """Load a module from a hand-written file. Optional: needed for ``RuntimeInfo.file_formats``.

    Called by: ``byoc_core.load_module(path, format)``.
    When: the format is one of the runtime's ``file_formats``; the file name's ending counts if no format is given.
    How often: once per call.
    Result: the module.
    If it raises: the caller gets the error. A mistake in the file must raise an ``ArtifactError`` naming the line.

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
    """Return numpy kernels of the package's own ops. Optional: the host needs it to save models with these ops.

    Called by: the numpy host, when compiling an op of ``byoc_ops``, and when loading an artifact with such an op.
    When: an op of the package stays on the host, or an artifact names this runtime for the kernel of an op.
    How often: once per process.
    Result: functions by the name of the op: ``kernel(*inputs, **attributes)`` gives an array, or a tuple of arrays.
        Inputs are read-only numpy arrays in row-major order. The results are checked against the types from the op's
        type rule. The same function serves as ``OpDef.kernel`` on the compile side. A kernel must be re-entrant, and
        attributes and inputs may come from an untrusted file. Names of the core's own ops have no effect.
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


@hookspec(since="0.2")
def byoc_devices() -> Sequence[Device]:
    """Return the devices of this machine. Optional: needed for functions with a domain in their ``CallTraits``.

    Called by: ``VirtualMachine``, for a program with functions in the memory of a domain of this runtime.
    When: a machine is made, unless the caller passes the devices to the machine.
    How often: once per process.
    Result: kept. The devices in a fixed order, each with a different pair of domain and index; none if the machine has
        no device. The machine allocates on the device of index 0, or of the index given by the user.
    If it raises: no machine is made.

    Example::

        import numpy as np

        from byoc_core.runtime.devices import Device, MemoryDomain
        from byoc_core.runtime.hooks import hookimpl


        class Board(Device):
            domain = MemoryDomain("mynpu", alignment=256)
            index = 0

            def allocate(self, nbytes):
                return np.empty(nbytes, np.uint8)

            def free(self, buffer):
                pass

            def new_stream(self):
                return object()

            def close_stream(self, stream):
                pass

            def copy_in(self, source, target, stream):
                self._array(target)[...] = source

            def copy_out(self, source, target, stream):
                target[...] = self._array(source)

            def copy_within(self, source, target, stream):
                self._array(target)[...] = self._array(source)

            def record(self, stream):
                return None

            def wait(self, event):
                pass

            def _array(self, tensor):
                return np.ndarray(tensor.shape, tensor.dtype, tensor.buffer, tensor.offset)


        @hookimpl
        def byoc_devices():
            return [Board()]
    """
