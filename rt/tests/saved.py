"""Runs of saved executables by the Python machine and by the C runtime, with equal bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable

from rt.tests.runner import NativeLibrary, NativeProgram

__all__ = ["assert_same_bits", "check_calls", "load_saved", "results_of"]

NDArray = npt.NDArray[Any]


def load_saved(executable: Executable, native: NativeLibrary, folder: Path) -> NativeProgram:
    """Save an executable, and load the artifact by the C runtime; the mapping outlives the file."""
    path = folder / "saved.byoc"
    executable.save(path)
    program = native.load(path)
    path.unlink()
    return program


def results_of(machine: VirtualMachine, name: str, inputs: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Return the results of Python's machine as a tuple."""
    results = machine[name](*inputs)
    return results if isinstance(results, tuple) else (results,)


def assert_same_bits(actual: Sequence[NDArray], expected: Sequence[NDArray]) -> None:
    """Check dtypes, shapes and bytes; any NaN equals any NaN."""
    assert len(actual) == len(expected)
    for have, want in zip(actual, expected, strict=True):
        assert have.dtype == want.dtype
        assert have.shape == want.shape
        if have.tobytes() != np.ascontiguousarray(want).tobytes():
            # numpy's assertion knows NaN of its own dtypes only.
            is_number = ~(np.not_equal(have, have) & np.not_equal(want, want))
            np.testing.assert_array_equal(have[is_number], want[is_number])


def check_calls(
    executable: Executable, native: NativeLibrary, folder: Path, name: str, calls: Iterable[Sequence[NDArray]]
) -> None:
    """Make calls of a function by both machines, in order, and compare the results."""
    machine, program = VirtualMachine(executable), load_saved(executable, native, folder)
    function = program[name]
    for inputs in calls:
        arrays = [np.asarray(array) for array in inputs]
        before = [array.tobytes() for array in arrays]
        expected = results_of(machine, name, arrays)
        actual = function(*arrays)
        assert_same_bits(actual, expected)
        assert [array.tobytes() for array in arrays] == before
        outputs = [np.empty(array.shape, array.dtype) for array in expected]
        function.run_into(arrays, outputs)
        assert_same_bits(outputs, expected)
