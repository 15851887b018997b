"""The example programs in C, C++ and Rust give the bits of the virtual machine, in processes without Python."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.artifact import Executable
from byoc_core.native.toolchain import Toolchain

from rt.tests.models import (
    build_classifier,
    build_decoder,
    build_detector,
    build_executable,
    draw_image,
    draw_texts,
)
from rt.tests.programs import EXAMPLES, compile_c, compile_cpp, compile_rust, run_alone

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

NDArray = npt.NDArray[Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for models and programs."""
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def classifier(folder: Path) -> Path:
    """Return the artifact of the classifier."""
    return _save(build_executable(build_classifier()), folder / "classifier.byoc", {"csource"})


@pytest.fixture(scope="module")
def detector(folder: Path) -> Path:
    """Return the artifact of the detector."""
    return _save(build_executable(build_detector()), folder / "detector.byoc", {"csource", "graph"})


@pytest.fixture(scope="module")
def classify(folder: Path) -> Path:
    """Return the compiled ``classify.c``."""
    return compile_c(EXAMPLES / "classify.c", folder / "classify")


def _save(executable: Executable, path: Path, runtimes: set[str]) -> Path:
    assert executable.report_data["offloaded_share"] > 0.9
    assert {module.type_key for module in executable.modules} == runtimes
    executable.save(path)
    return path


def _run_machine(path: Path, *arrays: NDArray) -> tuple[NDArray, ...]:
    """Return the outputs of the virtual machine."""
    results = byoc_core.VirtualMachine(byoc_core.load(path, allow_native=True))["main"](*arrays)
    return results if isinstance(results, tuple) else (results,)


def _read_outputs(lines: Sequence[str], dtypes: Mapping[str, str]) -> list[NDArray]:
    """Return the printed outputs: for each, a line of name and sizes, and a line of numbers."""
    outputs = []
    for (name, *sizes), words in zip(map(str.split, lines[::2]), map(str.split, lines[1::2]), strict=True):
        numbers = [float(word) if dtypes[name].startswith("float") else int(word) for word in words]
        outputs.append(np.array(numbers, dtypes[name]).reshape([int(size) for size in sizes]))
    return outputs


def _assert_same_bits(actual: Sequence[NDArray], expected: Sequence[NDArray]) -> None:
    assert [(x.dtype, x.shape) for x in actual] == [(x.dtype, x.shape) for x in expected]
    assert [x.tobytes() for x in actual] == [np.ascontiguousarray(x).tobytes() for x in expected]


_ENCODER_OUTPUTS = {"last_hidden_state": "float32", "pooler_output": "float32", "scores": "float32"}


@pytest.mark.parametrize(("num_texts", "length"), [(1, 1), (2, 7), (3, 17)])
def test_a_program_in_c_classifies_texts(
    classify: Path, classifier: Path, tmp_path: Path, num_texts: int, length: int
) -> None:
    ids = draw_texts(num_texts, length, seed=num_texts)
    (tmp_path / "ids.bin").write_bytes(ids.tobytes())
    done = run_alone(classify, classifier, tmp_path / "ids.bin", str(num_texts), str(length))
    assert (done.returncode, done.stderr) == (0, "")
    expected = _run_machine(classifier, ids, (ids != 0).astype(np.int64), np.zeros_like(ids))
    lines = done.stdout.splitlines()
    _assert_same_bits(_read_outputs(lines[:6], _ENCODER_OUTPUTS), expected)
    labels = expected[2].argmax(axis=1)
    assert lines[6:] == [f"text {text}: label {label}" for text, label in enumerate(labels)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists a process's mappings in /proc")
def test_no_python_is_in_the_process(classify: Path, classifier: Path, tmp_path: Path) -> None:
    ids = draw_texts(2, 7, seed=1)
    (tmp_path / "ids.bin").write_bytes(ids.tobytes())
    done = run_alone(classify, classifier, tmp_path / "ids.bin", "2", "7", "--maps")
    assert (done.returncode, done.stderr) == (0, "")
    files = {line.split(maxsplit=5)[5] for line in done.stdout.splitlines() if line.count("-") and "/" in line}
    names = [Path(file.removesuffix(" (deleted)")).name for file in files]
    assert "libbyoc_rt.so" in names
    assert [name for name in names if "python" in name] == []


@pytest.fixture(scope="module")
def generate(folder: Path) -> Path:
    """Return the compiled ``generate.c``."""
    return compile_c(EXAMPLES / "generate.c", folder / "generate")


@pytest.fixture(scope="module")
def decoder(folder: Path) -> Path:
    """Return the artifact of the decoder."""
    executable = build_decoder()
    assert [len(states) for states in executable.states.values()] == [4]
    return _save(executable, folder / "decoder.byoc", {module.type_key for module in executable.modules})


@pytest.mark.parametrize("text", [[5], [3, 14, 15, 9, 26]])
def test_a_program_in_c_continues_a_text(generate: Path, decoder: Path, text: list[int]) -> None:
    done = run_alone(generate, decoder, "20", *map(str, text))
    assert (done.returncode, done.stderr) == (0, "")
    machine = byoc_core.VirtualMachine(byoc_core.load(decoder, allow_native=True))
    ids: list[int] = []
    tokens = np.array([text])
    for _ in range(20):
        scores = np.array(machine["main"](tokens))[0, -1]
        scores[ids] = -np.inf
        ids.append(int(scores.argmax()))
        tokens = np.array([[ids[-1]]])
    assert done.stdout == f"{' '.join(map(str, ids))}\n{len(text) + 19} tokens are kept\n"


TOTAL = """
@R.function
def main(x: R.Tensor((1, "n"), "int64"), total: R.Tensor((1,), "int64")):
    R.func_attr({"input_names": ("x", "total"), "output_names": ("y", "sum"), "states": (("total", "sum"),)})
    row = R.sum(x, axis=(1,))
    sum_ = R.add(total, row)
    y = R.negative(x)
    return y, sum_
"""


def test_a_model_without_scores_is_no_decoder(generate: Path, tmp_path: Path) -> None:
    byoc_core.build(byoc_core.parse(TOTAL), backends=[]).save(tmp_path / "other.byoc")
    done = run_alone(generate, tmp_path / "other.byoc", "2", "5")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "generate: the output is no float32 scores, [1, tokens, vocabulary]\n"


@pytest.mark.parametrize("seed", range(4))
def test_a_program_in_cpp_finds_objects(folder: Path, detector: Path, tmp_path: Path, seed: int, detect: Path) -> None:
    image = draw_image(seed)
    (tmp_path / "image.bin").write_bytes(image.tobytes())
    done = run_alone(detect, detector, tmp_path / "image.bin")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [(row[0], row[2], row[4]) for row in rows] == [("label", "score", "box")] * len(rows)
    actual = (
        np.array([row[5:] for row in rows], np.float32).reshape(-1, 4),
        np.array([row[3] for row in rows], np.float32),
        np.array([row[1] for row in rows], np.int64),
    )
    _assert_same_bits(actual, _run_machine(detector, image))


@pytest.fixture(scope="module")
def detect(folder: Path) -> Path:
    """Return the compiled ``detect.cpp``."""
    return compile_cpp(EXAMPLES / "detect.cpp", folder / "detect")


def test_images_have_different_numbers_of_objects(detector: Path) -> None:
    counts = {len(_run_machine(detector, draw_image(seed))[1]) for seed in range(4)}
    assert len(counts) > 1
    assert max(counts) > 0


@pytest.fixture(scope="module")
def ramp(folder: Path) -> Path:
    """Return the compiled ``ramp.rs``."""
    return compile_rust(EXAMPLES / "ramp.rs", folder / "ramp")


def _ramp(shape: tuple[int, ...], dtype: str) -> NDArray:
    return (np.arange(np.prod(shape, dtype=np.int64)) % 7).astype(dtype).reshape(shape)


def test_a_program_in_rust_runs_a_detector(ramp: Path, detector: Path) -> None:
    done = run_alone(ramp, detector, "main")
    assert (done.returncode, done.stderr) == (0, "")
    actual = _read_outputs(done.stdout.splitlines(), {"boxes": "float32", "scores": "float32", "labels": "int64"})
    _assert_same_bits(actual, _run_machine(detector, _ramp((1, 3, 32, 32), "float32")))


ROWS = """
@R.ir_module
class Module:
    @R.function
    def rows(x: R.Tensor(("n", 3), "{dtype}"), y: R.Tensor((3,), "{dtype}")):
        less = R.less(x, y)
        largest = R.maximum(x, y)
        return largest, less
"""


@pytest.mark.parametrize("n", [0, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_a_program_in_rust_sets_sizes(ramp: Path, tmp_path: Path, dtype: str, n: int) -> None:
    path = tmp_path / "rows.byoc"
    byoc_core.build(byoc_core.parse(ROWS.format(dtype=dtype)), backends=["ccompiler"]).save(path)
    done = run_alone(ramp, path, "rows", f"n={n}")
    assert (done.returncode, done.stderr) == (0, "")
    x, y = _ramp((n, 3), dtype), _ramp((3,), dtype)
    dtypes = {"largest": dtype, "less": "bool"}
    _assert_same_bits(_read_outputs(done.stdout.splitlines(), dtypes), (np.maximum(x, y), x < y))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["main", "batch=2"], "ramp: input `input_ids`: the size `sequence` is not set: sequence=SIZE\n"),
        (["main", "batch=x"], "ramp: `batch=x`: the size is no number\n"),
        ([], "ramp: usage: ramp MODEL FUNCTION [NAME=SIZE...]\n"),
    ],
)
def test_errors_of_the_program_in_rust(ramp: Path, classifier: Path, arguments: list[str], message: str) -> None:
    done = run_alone(ramp, classifier, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_errors_of_the_runtime_are_shown(
    classify: Path, detect: Path, ramp: Path, generate: Path, classifier: Path, tmp_path: Path
) -> None:
    (tmp_path / "ids.bin").write_bytes(np.full(14, 10**6).tobytes())  # no such id in the vocabulary
    done = run_alone(classify, classifier, tmp_path / "ids.bin", "2", "7")
    assert (done.returncode, done.stdout) == (1, "")
    assert "1000000" in done.stderr
    (tmp_path / "text.byoc").write_text("no artifact")
    programs = (classify, ["x", "1", "1"]), (detect, ["x"]), (ramp, ["main"]), (generate, ["1", "2"])
    for program, arguments in programs:
        done = run_alone(program, tmp_path / "text.byoc", *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"{program.name}: ")
        assert "text.byoc" in done.stderr
