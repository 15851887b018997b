"""A backend running its regions on a protected device, and counts of the copies of a program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import byoc_core
from byoc_core.artifact import Executable
from byoc_core.authoring import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function, IRModule
from byoc_core.runtime import GraphModule
from byoc_core.runtime.delegating import DelegatingModule
from byoc_core.runtime.devices import Device, DeviceTensor, MemoryDomain
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction
from byoc_core.runtime.protected_device import DeviceStream, ProtectedDevice
from byoc_core.vm import VirtualMachine
from byoc_core.vm.copy_conflicts import is_crossing, stream_domain
from byoc_core.vm.program import HOST, Program

__all__ = ["DeviceModule", "DeviceToy", "build_on", "crossings", "run_on", "toy_of"]

FLOAT_OPS = frozenset({"negative", "abs", "nn.relu", "add", "subtract", "maximum", "multiply", "exp", "sum"})


class DeviceModule(DelegatingModule):
    """A graph of numpy kernels, run by the threads of a device.

    Args:
        inner: the graph.
        domain: the memory of the device.
        failing: functions raising an error when the work runs.
    """

    def __init__(self, inner: GraphModule, domain: MemoryDomain, failing: Collection[str] = ()) -> None:
        super().__init__(inner)
        self.graph = inner
        self._domain = domain
        self._failing = frozenset(failing)

    def call_traits(self, name: str) -> CallTraits:
        return CallTraits(workspace_nbytes=self.inner.call_traits(name).workspace_nbytes, domain=self._domain)

    def find_function(self, name: str) -> PackedFunction:
        function = self.inner.find_function(name)

        def run(*arrays: NDArray) -> None:
            if name in self._failing:
                raise RuntimeError(f"{name} fails on the device")
            function.impl(*arrays)

        def enqueue(stream: DeviceStream, *tensors: DeviceTensor) -> None:
            stream.launch(run, tensors)

        return PackedFunction(name, enqueue, function.signature)


class DeviceToy:
    """A backend running floating-point ops on a device.

    Args:
        name: the name of the backend.
        ops: the ops taken.
        domain: the memory of the device; by default of the backend's name.
        constants: see ``BackendInfo``.
    """

    def __init__(
        self,
        name: str = "npu",
        ops: Collection[str] = FLOAT_OPS,
        domain: MemoryDomain | None = None,
        constants: Any = "lifted",
    ) -> None:
        self.name = name
        self.domain = domain or MemoryDomain(name)
        self._ops = frozenset(ops)
        self._constants = constants

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo(self.name, dynamic_shapes=True, constants=self._constants)

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        return Support() if binding.op.name in self._ops else Rejection("op", f"no kernel for `{binding.op.name}`")

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        result = GraphCodegen().compile(functions, context)
        assert isinstance(result.module, GraphModule)
        return replace(result, module=DeviceModule(result.module, self.domain))


def toy_of(device: Device, ops: Collection[str] = FLOAT_OPS) -> DeviceToy:
    """Return a backend for a device."""
    return DeviceToy(device.domain.name, ops, device.domain)


def build_on(module: IRModule, *backends: DeviceToy, **choices: Any) -> Executable:
    """Return a module compiled for devices and the host."""
    return byoc_core.build(module, list(backends), **choices)


def run_on(executable: Executable, *devices: ProtectedDevice) -> VirtualMachine:
    """Return a machine with these devices."""
    return VirtualMachine(executable, devices={device.domain.name: device for device in devices})


def crossings(program: Program) -> tuple[int, int]:
    """Return the numbers of copies in a program made by devices: to devices, and from devices."""
    into = out = 0
    for function in program.functions:
        for call in function.code:
            if is_crossing(function, call) and (domain := stream_domain(program, function, call)) != HOST:
                is_into = function.domain_of(call.results[0]) == domain  # type: ignore[union-attr]
                into, out = into + is_into, out + (not is_into)
    return into, out
