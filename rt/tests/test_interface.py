"""The promises of ``byoc_rt.h`` and of the page: descriptions, sizes, buffers of the caller, errors, threads."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.native.toolchain import Toolchain

from rt.tests.runner import NativeError, NativeLibrary, NativeProgram, Status, TensorInfo

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

NDArray = npt.NDArray[Any]
MODULE = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("2*n", 4), "float32")):
        rows = R.concat(x, y, axis=0)
        result = R.add(rows, R.const(0.5, "float32"))
        return result

    @R.function
    def positive(x: R.Tensor(("n",), "float32")):
        zero = R.const(0, "float32")
        found = R.less(zero, x)
        indices = R.nonzero(found, out_types=[R.Tensor((1, "k"), "int64")])
        return indices
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an artifact with a function compiled to C, and a function with a size known after the run."""
    path = tmp_path_factory.mktemp("interface") / "model.byoc"
    executable = byoc_core.build(byoc_core.parse(MODULE), backends=["ccompiler"])
    executable.save(path)
    return path


@pytest.fixture(scope="module")
def program(native: NativeLibrary, model: Path) -> NativeProgram:
    """Return the loaded artifact."""
    return native.load(model)


def draw(n: int, seed: int = 0) -> tuple[NDArray, NDArray, NDArray]:
    """Return inputs and output of ``main``."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, 4), np.float32), rng.standard_normal((2 * n, 4), np.float32)
    return x, y, np.concatenate([x, y]) + np.float32(0.5)


def test_functions_describe_themselves(program: NativeProgram) -> None:
    assert sorted(function.name for function in program) == ["main", "positive"]
    function = program["main"]
    assert function.inputs == (
        TensorInfo("x", "float32", (-1, 4), ("n", "4")),
        TensorInfo("y", "float32", (-1, 4), ("2*n", "4")),
    )
    (output,) = function.outputs
    assert (output.dtype, output.shape, output.dims) == ("float32", (-1, 4), ("3*n", "4"))
    with pytest.raises(KeyError, match="function `missing`: is not in the program; expected main, positive"):
        program["missing"]


@pytest.mark.parametrize("n", [0, 1, 7, 2])
def test_sizes_follow_from_the_inputs(program: NativeProgram, n: int) -> None:
    x, y, expected = draw(n)
    (actual,) = program["main"](x, y)
    assert actual.shape == (3 * n, 4)
    np.testing.assert_array_equal(actual, expected)


def test_a_size_may_be_known_after_the_run(program: NativeProgram) -> None:
    x = np.array([1, -1, 0, 2, np.inf, np.nan], np.float32)
    function = program["positive"]
    (found,) = function(x)
    np.testing.assert_array_equal(found, [[0, 3, 4]])
    target = np.full((1, 3), -1, np.int64)
    function.run_into([x], [target])
    np.testing.assert_array_equal(target, found)
    with pytest.raises(NativeError) as caught:
        function.run_into([x], [np.zeros((1, 2), np.int64)])
    assert caught.value.status is Status.CALL


def test_outputs_of_the_caller_are_filled(program: NativeProgram) -> None:
    x, y, expected = draw(5)
    target = np.full((15, 4), np.nan, np.float32)
    program["main"].run_into([x, y], [target])
    np.testing.assert_array_equal(target, expected)
    for unfit in (np.zeros((14, 4), np.float32), np.zeros((15, 4)), np.zeros((4, 15), np.float32).T):
        with pytest.raises(NativeError) as caught:
            program["main"].run_into([x, y], [unfit])
        assert caught.value.status is Status.CALL


def test_inputs_may_have_strides_and_any_alignment(program: NativeProgram) -> None:
    x, y, expected = draw(6)
    reversed_rows = np.ascontiguousarray(x[::-1])[::-1]
    columns = np.asfortranarray(y)
    shifted = np.frombuffer(b"?" + x.tobytes(), np.float32, offset=1).reshape(x.shape)
    for first in (reversed_rows, shifted):
        np.testing.assert_array_equal(program["main"](first, columns)[0], expected)


WRONG = [
    ((np.zeros((2, 4), np.float32),), "main"),
    ((np.zeros((2, 4), np.float64), np.zeros((4, 4), np.float32)), "`x`"),
    ((np.zeros((2, 4), np.float32), np.zeros((5, 4), np.float32)), "`y`"),
    ((np.zeros((2, 4), np.float32), np.zeros((6, 4), np.float32)), "`y`"),
    ((np.zeros((2, 3), np.float32), np.zeros((4, 4), np.float32)), "`x`"),
    ((np.zeros(2, np.float32), np.zeros((4, 4), np.float32)), "`x`"),
]


@pytest.mark.parametrize(("arrays", "name"), WRONG)
def test_an_argument_that_does_not_fit_is_named(program: NativeProgram, arrays: tuple[NDArray, ...], name: str) -> None:
    with pytest.raises(NativeError, match=name) as caught:
        program["main"](*arrays)
    assert caught.value.status is Status.CALL


def test_errors_belong_to_threads(native: NativeLibrary, program: NativeProgram, tmp_path: Path) -> None:
    with pytest.raises(NativeError):
        program["main"]()
    before = native.c_last_error()
    texts = []

    def fail() -> None:
        with pytest.raises(NativeError) as caught:
            native.load(tmp_path / "missing.byoc")
        texts.append(str(caught.value))

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert "missing.byoc" in texts[0]
    assert native.c_last_error() == before


def test_threads_share_a_function(program: NativeProgram) -> None:
    failures = []

    def work(seed: int) -> None:
        for n in (1, 64, 3, 1000):
            x, y, expected = draw(n, seed)
            (actual,) = program["main"](x, y)
            if not np.array_equal(actual, expected):
                failures.append((seed, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_results_own_their_memory(program: NativeProgram) -> None:
    x, y, _ = draw(3)
    (first,) = program["main"](x, y)
    copy = first.copy()
    (second,) = program["main"](x + 1, y)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, copy)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_number_of_threads_changes_no_result(native: NativeLibrary, model: Path, num_threads: int) -> None:
    x, y, expected = draw(500)
    (actual,) = native.load(model, num_threads=num_threads)["main"](x, y)
    np.testing.assert_array_equal(actual, expected)


def test_artifacts_may_lie_in_memory(native: NativeLibrary, model: Path) -> None:
    data = model.read_bytes()
    aligned = np.empty(len(data) + 64, np.uint8)
    start = -aligned.ctypes.data % 64
    aligned[start : start + len(data)] = np.frombuffer(data, np.uint8)
    x, y, expected = draw(2)
    for memory in (data, aligned[start : start + len(data)], aligned[start : start + len(data)].tobytes()):
        (actual,) = native.load_bytes(memory)["main"](x, y)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("size", [0, 10, 100, 1000])
def test_a_part_of_a_file_is_no_artifact(native: NativeLibrary, model: Path, tmp_path: Path, size: int) -> None:
    path = tmp_path / "part.byoc"
    path.write_bytes(model.read_bytes()[:size])
    with pytest.raises(NativeError, match=r"part\.byoc") as caught:
        native.load(path)
    assert caught.value.status is Status.ARTIFACT


def test_unloading_nothing_is_no_error(native: NativeLibrary) -> None:
    native.c_unload(ctypes.c_void_p())
