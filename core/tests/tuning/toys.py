"""Backends with kernels asleep for a chosen time, and a registry of installed toys."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import byoc_core
import numpy as np
from byoc_core import script as R
from byoc_core.backend import BackendHandle, Backends, CompileContext, hooks
from byoc_core.backend.hooks import Estimate, Status
from byoc_core.ir import Function
from byoc_core.plugin import BACKENDS_GROUP, PluginRecord
from byoc_core.plugin.handle import PluginHandle
from byoc_core.runtime.module import PackedFunction
from byoc_core.runtime.parts import mark_part, ops_text

from core.tests.conftest import FakeBackend, FakeModule

__all__ = ["MODULE", "OPS", "Installed", "SleepyBackend", "X"]

OPS = ("nn.relu", "tanh", "add")
MODULE = R.parse("""
def main(x: R.Tensor((2, 4), "float32")):
    a = R.nn.relu(x)
    b = R.tanh(a)
    c = R.add(b, a)
    return c
""")
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


class SleepyModule(FakeModule):
    """Kernels asleep for the seconds of each op, with a part for each op."""

    type_key = "sleepy"
    sleeps: Mapping[str, float] = MappingProxyType({})
    shift: float = 0.0
    has_parts: bool = True
    calls: list[str]

    def report_parts(self) -> None:
        """Parts are always reported: marks outside of recordings have no effect."""

    def find_function(self, name: str) -> PackedFunction:
        found, function = super().find_function(name), self.functions[name]

        def run(*arrays: Any) -> None:
            self.calls.append(name)
            found(*arrays)
            if self.has_parts:
                mark_part(f"{name}_own")
            for binding in function.bindings:
                seconds = self.sleeps.get(binding.op.name, 0.0)
                if seconds:
                    time.sleep(seconds)
                if self.has_parts:
                    mark_part(f"{name}_{binding.op.name}", ops_text([(binding.op.name, binding.results[0].name)]))
            for output in arrays[len(function.params) :] if self.shift else ():
                output += self.shift

        return PackedFunction(name, run, found.signature)


class SleepyBackend(FakeBackend):
    """A backend with kernels asleep.

    Args:
        name: the backend's name.
        sleeps: seconds by op.
        ops: the ops taken; by default all of the toy model.
        shift: the error of each result.
        fault: raised by codegen.
        has_parts: whether calls have a part for each op.
        status: whether it can compile here.
    """

    def __init__(
        self,
        name: str,
        sleeps: Mapping[str, float] = MappingProxyType({}),
        ops: Iterable[str] | None = OPS,
        *,
        shift: float = 0.0,
        fault: Exception | None = None,
        has_parts: bool = True,
        status: Status | None = None,
    ) -> None:
        super().__init__(name, ops, status=status, estimate=lambda _function: Estimate(1e-9))
        self.sleeps = sleeps
        self.shift = shift
        self.fault = fault
        self.has_parts = has_parts
        self.calls: list[str] = []

    def _module(self, functions: Sequence[Function], context: CompileContext) -> FakeModule:
        if self.fault is not None:
            raise self.fault
        module = SleepyModule(self.name, functions, context)
        module.sleeps, module.shift, module.calls = self.sleeps, self.shift, self.calls
        module.has_parts = self.has_parts
        return module


class Installed(Backends):
    """A registry with toys, as if installed from distribution ``byoc-NAME``, beside the host.

    Args:
        toys: the backends.
        version: of all distributions.
    """

    def __init__(self, *toys: FakeBackend, version: str = "1.0") -> None:
        super().__init__(byoc_core.backends.catalog)
        self._toys: dict[str, BackendHandle] = {}
        for toy in toys:
            record = PluginRecord(toy.name, BACKENDS_GROUP, "toy", f"byoc-{toy.name}", version)
            self._toys[toy.name] = BackendHandle(PluginHandle(record, toy, hooks))

    def list(self) -> tuple[PluginRecord, ...]:
        host = replace(super().get("host").record)
        return (*(handle.record for handle in self._toys.values()), host)

    def names(self) -> tuple[str, ...]:
        return (*self._toys, "host")

    def get(self, backend: str | object) -> BackendHandle:
        if isinstance(backend, str) and backend in self._toys:
            return self._toys[backend]
        return super().get(backend)
