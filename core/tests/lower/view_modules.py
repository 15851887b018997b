"""Shared parts of tests of views: functions checking their callers against their traits, and programs with copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from byoc_core.ir import IRModule
from byoc_core.lower.lower_function import lower_function
from byoc_core.lower.placement_hints import Sharing
from byoc_core.lower.tables import ProgramTables
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule
from byoc_core.vm import Program

IN_PLACE = ((0, 0), (0, 1))


class TraitModule(RuntimeModule):
    """Functions by name: ``next*`` computes ``x + 1``, ``add*`` computes ``x + y``, of any shape.

    Args:
        traits: by name.
    """

    type_key = "traits"

    def __init__(self, traits: Mapping[str, CallTraits]) -> None:
        self.traits = traits

    @property
    def function_names(self) -> tuple[str, ...]:
        return tuple(self.traits)

    def call_traits(self, name: str) -> CallTraits:
        return self.traits[name]

    def find_function(self, name: str) -> PackedFunction:
        traits = self.traits[name]

        def run(*arrays: NDArray) -> None:
            *inputs, output = arrays
            for number, array in enumerate(inputs):
                assert array.flags.aligned
                assert traits.strided or array.flags.c_contiguous
                if np.shares_memory(array, output):
                    assert (0, number) in traits.in_place
                    assert array.ctypes.data == output.ctypes.data
            assert traits.strided or output.flags.c_contiguous
            results: Any = inputs[0] + 1 if name.startswith("next") else inputs[0] + inputs[1]
            output[...] = results

        return PackedFunction(name, run)


def without_views(module: IRModule) -> Program:
    """Return the program with a copy in place of every rearranging op."""
    tables = ProgramTables(module)
    functions = tuple(lower_function(f, tables, max_sharing=Sharing.NONE) for f in module.functions.values())
    return Program(functions, tables.externs, tables.constants)
