"""Swappable weights that a backend packs: the C runtime gives the bits of Python's machine, swapped or not."""

from __future__ import annotations

from pathlib import Path

import byoc_core
import numpy as np
from byoc_core.ir import declare_weights
from byoc_core.vm import VirtualMachine

from rt.tests.runner import NativeLibrary
from rt.tests.saved import assert_same_bits, load_saved, results_of

MODEL = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 32)), w0: R.Tensor((32, 80)), w1: R.Tensor((48, 80))):
        a = R.matmul(x, w0)
        b = R.nn.relu(a)
        c = R.nn.dense(b, w1)
        return c
"""
SHAPES = {"w0": (32, 80), "w1": (48, 80)}


def _draw(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def test_packed_weights_of_generated_c(native: NativeLibrary, tmp_path: Path) -> None:
    executable = byoc_core.build(declare_weights(byoc_core.parse(MODEL), _draw(0)), ["ccompiler"])
    swapped = executable.with_weights(_draw(1))
    x = np.random.default_rng(2).standard_normal((3, 32)).astype(np.float32)
    for item in (executable, swapped):
        function = load_saved(item, native, tmp_path)["main"]
        assert_same_bits(function(x), results_of(VirtualMachine(item), "main", [x]))
