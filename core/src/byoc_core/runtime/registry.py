"""The runtimes of this process: found by type key, loaded on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from byoc_core.errors import ByocError, HookError, PluginError, RuntimeNotFoundError, near_names, type_name
from byoc_core.plugin import RUNTIMES_GROUP, Catalog, PluginRecord, describe_absence
from byoc_core.plugin.absence import describe_claim
from byoc_core.plugin.handle import PluginHandle
from byoc_core.plugin.installation import installation
from byoc_core.runtime import hooks
from byoc_core.runtime.delegating import DelegatingModule
from byoc_core.runtime.devices import Device, label_of
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.serial import SerialModule
from byoc_core.runtime.status import Status, ask_status
from byoc_core.runtime.threads.fork_guard import UnforkedModule

__all__ = ["RuntimeHandle", "Runtimes", "runtimes"]


class RuntimeHandle:
    """A runtime with checked hook calls.

    Args:
        plugin: the plugin of the runtime.

    Raises:
        HookError: ``byoc_runtime_info`` raised, or does not return a ``RuntimeInfo`` with the entry point's name.
    """

    def __init__(self, plugin: PluginHandle) -> None:
        self._plugin = plugin
        info = plugin.introduce("byoc_runtime_info", RuntimeInfo, "type_key")
        if not info.formats:
            raise HookError(plugin.where("byoc_runtime_info"), "names no payload format", expected="formats=(1,)")
        self._info = info
        self._kernels: Mapping[str, Callable[..., object]] | None = None
        self._devices: tuple[Device, ...] | None = None

    @property
    def type_key(self) -> str:
        """The type key of the runtime's modules."""
        return self._info.type_key

    @property
    def record(self) -> PluginRecord:
        """The distribution and version of the plugin."""
        return self._plugin.record

    def info(self) -> RuntimeInfo:
        """Return the runtime's description of itself."""
        return self._info

    def status(self) -> Status:
        """Return whether modules of the runtime can run on this machine.

        Raises:
            HookError: the hook raised, returned no ``Status``, or a refusal without a reason.
        """
        return ask_status(self._plugin, "byoc_runtime_status")

    def save(self, module: RuntimeModule) -> bytes:
        """Return a module's payload.

        Raises:
            PluginError: the runtime cannot save modules.
            HookError: the hook raised, or returned no bytes.
        """
        self._require("byoc_save_module", "cannot save modules")
        inner = module
        while isinstance(inner, DelegatingModule):
            inner = inner.inner
        return self._plugin.check("byoc_save_module", self._plugin.call("byoc_save_module", module=inner), bytes)

    def load(self, payload: bytes, context: LoadContext) -> RuntimeModule:
        """Return the module of a payload.

        Raises:
            PluginError: the runtime cannot load modules.
            ArtifactError: the payload is damaged.
            HookError: the hook raised another exception, or returned no ``RuntimeModule``.
        """
        self._require("byoc_load_module", "cannot load modules")
        hook = "byoc_load_module"
        module = self._plugin.call(hook, type_key=self.type_key, payload=payload, context=context)
        return self.guard(self._plugin.check(hook, module, RuntimeModule))  # type: ignore[type-abstract]

    def check_payload(self, payload: bytes, context: LoadContext) -> bool:
        """Check a payload without loading; return whether the runtime supports this check.

        Raises:
            ArtifactError: the payload breaks a law of the runtime's.
            HookError: the hook raised another exception.
        """
        hook = "byoc_check_payload"
        if not self._plugin.has(hook):
            return False
        self._plugin.call(hook, type_key=self.type_key, payload=payload, context=context)
        return True

    def load_file(self, data: bytes, format: str, context: LoadContext) -> RuntimeModule:  # noqa: A002 - as in the hook
        """Return the module of a hand-written file.

        Raises:
            PluginError: the runtime cannot load files.
            ArtifactError: the file has a mistake.
            HookError: the hook raised another exception, or returned no ``RuntimeModule``.
        """
        self._require("byoc_load_file", "cannot load files")
        hook = "byoc_load_file"
        module = self._plugin.call(hook, data=data, format=format, context=context)
        return self.guard(self._plugin.check(hook, module, RuntimeModule))  # type: ignore[type-abstract]

    def kernels(self) -> Mapping[str, Callable[..., object]]:
        """Return the kernels of the plugin's own ops, by op name; the hook is called once.

        Raises:
            HookError: the hook raised, or returned anything but functions by name.
        """
        if self._kernels is None:
            hook = "byoc_kernels"
            found: object = {}
            if self._plugin.has(hook):
                found = self._plugin.check(hook, self._plugin.call(hook), Mapping)  # type: ignore[type-abstract]
            self._kernels = MappingProxyType(dict(self._checked_kernels(hook, found)))
        return self._kernels

    def _checked_kernels(self, hook: str, found: Any) -> Iterator[tuple[str, Callable[..., object]]]:
        for op, kernel in found.items():
            if not isinstance(op, str) or not callable(kernel):
                raise HookError(
                    self._plugin.where(hook),
                    "returned an item other than a function by the name of an op",
                    got=f"{op!r}: {type_name(kernel)}",
                )
            yield op, kernel

    def devices(self) -> tuple[Device, ...]:
        """Return the devices of the runtime; the hook is called once.

        Raises:
            HookError: the hook raised, returned anything but devices, or two devices with the same domain and index.
        """
        if self._devices is None:
            hook = "byoc_devices"
            found: Sequence[object] = ()
            if self._plugin.has(hook):
                found = self._plugin.check(hook, self._plugin.call(hook), Sequence)  # type: ignore[type-abstract]
            self._devices = tuple(self._checked_devices(hook, found))
        return self._devices

    def _checked_devices(self, hook: str, found: Sequence[object]) -> Iterator[Device]:
        labels: set[str] = set()
        for item in found:
            device = self._plugin.check(hook, item, Device)  # type: ignore[type-abstract]
            label = label_of(device)
            if label in labels:
                raise HookError(self._plugin.where(hook), f"returned two devices `{label}`")
            labels.add(label)
            yield device

    def guard(self, module: RuntimeModule) -> RuntimeModule:
        """Return the module with the protection for the runtime: a lock unless re-entrant, a guard unless fork-safe."""
        if isinstance(module, DelegatingModule):
            return module
        if not self._info.fork_safe:
            module = UnforkedModule(module)
        return SerialModule(module) if self._info.concurrency == "serial" else module

    def _require(self, hook: str, problem: str) -> None:
        if not self._plugin.has(hook):
            raise PluginError(self.record.label, problem, hint=f"The runtime does not implement the hook `{hook}`.")

    def __repr__(self) -> str:
        return f"<runtime {self.type_key}>"


class Runtimes:
    """All runtimes of a catalogue, each opened on first use.

    Args:
        catalog: the plugins of the group ``byoc.runtimes``.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._handles: dict[str, RuntimeHandle] = {}
        self._registered_kernels: dict[str, Callable[..., object]] = {}

    def list(self) -> tuple[PluginRecord, ...]:
        """Return the records of all runtimes, including unusable runtimes. Imports no plugin."""
        return self.catalog.records

    def names(self) -> tuple[str, ...]:
        """Return the type keys of all usable runtimes. Imports no plugin."""
        return self.catalog.names()

    def get(self, type_key: str, *, source: str | None = None, distribution: str | None = None) -> RuntimeHandle:
        """Return the runtime of this type key.

        Args:
            type_key: the type key of the modules.
            source: the file in need of the runtime, for errors; ``None`` if the user asks.
            distribution: the distribution of the runtime, according to the file.

        Raises:
            RuntimeNotFoundError: the runtime is not installed; names the distribution to install, and the source of
                this name.
            PluginError: the runtime is installed and cannot be used; gives the reason and a remedy.
        """
        handle = self._handles.get(type_key)
        if handle is not None:
            return handle
        if self.catalog.find(type_key) is None:
            problem, hint = describe_absence("runtime", type_key, self.names(), is_claim=source is not None)
            if source is not None and distribution is not None:
                hint = describe_claim(source, distribution)
            raise RuntimeNotFoundError(self.catalog.group, problem, hint=hint)
        plugin = self.catalog.open(type_key, hooks)
        try:
            handle = RuntimeHandle(plugin)
        except ByocError as error:
            raise self.catalog.quarantine_faulty(plugin.record, error) from error
        return self._handles.setdefault(type_key, handle)

    def guard(self, module: RuntimeModule) -> RuntimeModule:
        """Return a freshly compiled module, protected for calls from several threads; see :meth:`RuntimeHandle.guard`.

        A module is returned unchanged if the runtime is not installed or unusable: every module promises to be
        re-entrant.
        """
        if module.type_key not in self.names():
            return module
        try:
            return self.get(module.type_key).guard(module)
        except PluginError:
            return module  # quarantined just now; later uses of the runtime itself report the reason

    def register_kernel(self, op: str, kernel: Callable[..., object]) -> None:
        """Register the kernel of an op for this process; an earlier registration is replaced.

        Args:
            op: the name of an op outside the core.
            kernel: as returned by the hook ``byoc_kernels``.
        """
        self._registered_kernels[op] = kernel

    def registered_kernel(self, op: str) -> Callable[..., object] | None:
        """Return the kernel of an op registered by the process, if any."""
        return self._registered_kernels.get(op)

    def for_file_format(self, format: str) -> RuntimeHandle:  # noqa: A002 - as in `load_module`
        """Return the runtime for files of a format.

        Cost: opens runtimes in order of name, the runtime with the format's own name first, until the format is found.

        Raises:
            RuntimeNotFoundError: no installed runtime loads the format; lists the known formats.
        """
        for name in sorted(self.names(), key=lambda name: (name != format, name)):
            try:
                handle = self.get(name)
            except PluginError:
                continue  # quarantined; `byoc doctor` shows the reason
            if format in handle.info().file_formats:
                return handle
        known_formats = sorted({f for handle in self._handles.values() for f in handle.info().file_formats})
        raise RuntimeNotFoundError(
            self.catalog.group,
            f"no installed runtime loads files of the format `{format}`; "
            f"known formats: {', '.join(known_formats) or 'none'}",
            hint=near_names(format, known_formats) or None,
        )


def runtimes() -> Runtimes:
    """Return the runtimes installed for this process.

    Metadata and the environment are read in the first call, plugin code on first use of a runtime.
    """
    return installation().registry(Runtimes, RUNTIMES_GROUP)
