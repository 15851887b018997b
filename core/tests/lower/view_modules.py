"""A runtime module of elementwise functions with any traits, which hold their callers to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule

IN_PLACE = ((0, 0), (0, 1))


class TraitModule(RuntimeModule):
    """Functions by name: ``next*`` gives ``x + 1``, ``add*`` gives ``x + y``, of any shape.

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
