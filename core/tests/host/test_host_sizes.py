"""Ops without operands, and attributes with sizes, in all stages: print, build, save, load, run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.ir import IRModule
from byoc_core.runtime.module import NDArray
from byoc_core.transform import evaluate_function

from core.tests.conftest import FakeBackend

SOURCE = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "past+seq"), "float32"), y: R.Tensor(("past", "seq"), "float32")):
        positions = R.arange(start="past", stop="past+seq")
        shape = R.shape_of(x)
        count = R.size(x)
        sizes = R.shape_to_tensor(sizes=("n", "seq", 3))
        last = R.strided_slice(x, axes=(1,), begin=("past",), end=("past+seq",), strides=(1,))
        old, new = R.split(x, sections=("past", "seq"), axis=1)
        ones = R.full(R.const(1.0, "float32"), shape=("seq", "past+seq"))
        return positions, shape, count, sizes, last, old, new, ones

    @R.function
    def only(x: R.Tensor(("n", "seq"), "float32")):
        a = R.arange(stop="seq", dtype="float32")
        return a
"""
SIZES = ((2, 3, 4), (1, 0, 1), (3, 5, 0))


def _arguments(n: int, past: int, seq: int) -> tuple[Any, Any]:
    return np.arange(n * (past + seq), dtype=np.float32).reshape(n, past + seq), np.zeros((past, seq), np.float32)


def _expected(x: NDArray, n: int, past: int, seq: int) -> list[Any]:
    return [
        np.arange(past, past + seq),
        np.array([n, past + seq]),
        np.array(n * (past + seq)),
        np.array([n, seq, 3]),
        x[:, past:],
        x[:, :past],
        x[:, past:],
        np.ones((seq, past + seq), np.float32),
    ]


def _check(results: NDArray | tuple[NDArray, ...], expected: list[Any]) -> None:
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(result, wanted)


def _module() -> IRModule:
    module = R.parse(SOURCE)
    assert str(R.parse(str(module))) == str(module)
    return module


@pytest.mark.parametrize("sizes", SIZES)
def test_the_reference_interpreter_runs_them(sizes: tuple[int, int, int]) -> None:
    arguments = _arguments(*sizes)
    _check(evaluate_function(_module(), "main", arguments), _expected(arguments[0], *sizes))


def test_the_host_runs_them_before_and_after_saving(tmp_path: Path) -> None:
    executable = byoc_core.build(_module(), backends=[])
    path = tmp_path / "sizes.byoc"
    executable.save(path)
    for machine in (byoc_core.VirtualMachine(executable), byoc_core.VirtualMachine(byoc_core.load(path))):
        for sizes in SIZES:
            arguments = _arguments(*sizes)
            _check(machine["main"](*arguments), _expected(arguments[0], *sizes))
            np.testing.assert_array_equal(machine["only"](arguments[0]), np.arange(sizes[1] + sizes[2]))


def test_a_region_of_ops_without_operands_gets_the_inputs_that_give_its_sizes(fake_backend: type[FakeBackend]) -> None:
    backend = fake_backend("sizer", ["arange", "shape_to_tensor"])
    module = byoc_core.partition(_module(), backends=[backend])
    regions = {name: f for name, f in module.functions.items() if f.attrs.get("Codegen") == "sizer"}
    inputs = {
        (function.attrs["source"], binding.op.name): [param.name for param in function.params]
        for function in regions.values()
        for binding in function.bindings
    }
    assert inputs == {
        ("main", "arange"): ["y"],
        ("main", "shape_to_tensor"): ["x", "y"],
        ("only", "arange"): ["x"],
    }
