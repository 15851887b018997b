"""Modules of lowered regions: functions for the calls inside a region, beside the functions of whole regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from byoc_core.ir import EXTERNAL_MODULES, IRModule
from byoc_core.runtime.module import CallTraits, PackedFunction, RuntimeModule, Signature

__all__ = ["step_functions", "with_whole_regions"]


def step_functions(module: RuntimeModule) -> frozenset[str]:
    """Return the functions of a module called in place of its requested functions."""
    found = filter(None, map(module.call_steps, module.function_names))
    return frozenset(step.symbol for steps in found for step in steps.steps)


def with_whole_regions(module: IRModule) -> IRModule:
    """Return a compiled module for a program calling the functions of whole regions.

    The same module if there are no lowered regions.
    """
    externals = module.attrs.get(EXTERNAL_MODULES, ())
    if not any(map(step_functions, externals)):
        return module
    return module.with_attrs(**{EXTERNAL_MODULES: tuple(map(_WholeRegions, externals))})


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
