"""Modules for calls of whole regions with the host's arrays.

Modules of lowered regions have functions for the calls inside a region, beside the functions of whole regions;
functions of a device take tensors of the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from byoc_core.ir import EXTERNAL_MODULES, IRModule
from byoc_core.runtime.module import CallTraits, PackedFunction, RuntimeModule, Signature
from byoc_core.runtime.staged import StagedModule

__all__ = ["step_functions", "with_whole_regions"]


def step_functions(module: RuntimeModule) -> frozenset[str]:
    """Return the functions of a module called in place of its requested functions."""
    found = filter(None, map(module.call_steps, module.function_names))
    return frozenset(step.symbol for steps in found for step in steps.steps)


def with_whole_regions(module: IRModule) -> IRModule:
    """Return a compiled module for a program calling the functions of whole regions with arrays of the host.

    The same module if there are neither lowered regions nor functions of a device.
    """
    externals = module.attrs.get(EXTERNAL_MODULES, ())
    if not any(step_functions(external) or _has_devices(external) for external in externals):
        return module
    return module.with_attrs(**{EXTERNAL_MODULES: tuple(map(_whole_regions, externals))})


def _has_devices(module: RuntimeModule) -> bool:
    return any(module.call_traits(name).domain is not None for name in module.function_names)


def _whole_regions(module: RuntimeModule) -> RuntimeModule:
    return _WholeRegions(StagedModule(module) if _has_devices(module) else module)


class _WholeRegions(RuntimeModule):
    """The functions of an inner module, without steps."""

    def __init__(self, inner: RuntimeModule) -> None:
        self.inner = inner

    @property
    def type_key(self) -> str:
        return self.inner.type_key

    @property
    def function_names(self) -> tuple[str, ...]:
        return self.inner.function_names

    @property
    def constants(self) -> Mapping[str, npt.NDArray[Any]]:
        return self.inner.constants

    @property
    def uses_threads(self) -> bool:
        return self.inner.uses_threads

    def find_function(self, name: str) -> PackedFunction:
        return self.inner.find_function(name)

    def find_signature(self, name: str) -> Signature | None:
        return self.inner.find_signature(name)

    def call_traits(self, name: str) -> CallTraits:
        return self.inner.call_traits(name)

    def prepare(self) -> None:
        self.inner.prepare()
