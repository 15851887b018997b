"""Programs in C run models of dnnl, alone and beside generated C: the bits of the virtual machine, without Python."""

from __future__ import annotations

import os
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
from byoc_dnnl.library import load_library

from benchmarks.zoo.fixed_sizes import fix_sizes
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.resnet import SIZES as RESNET_SIZES
from benchmarks.zoo.resnet import build_resnet
from rt.tests.models import build_classifier, draw_texts
from rt.tests.programs import EXAMPLES, compile_c, run_alone
from rt.tests.saved import assert_same_bits, results_of

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

NDArray = npt.NDArray[Any]
HERE = Path(__file__).parents[1]
BACKENDS = [["dnnl"], ["dnnl", "ccompiler"]]
IMAGE = (2, 3, 64, 64)
SIZES = [{"batch": 1, "sequence": 1}, {"batch": 2, "sequence": 7}, {"batch": 3, "sequence": 17}]


@pytest.fixture(scope="module")
def variables(native_half: Path) -> Mapping[str, str]:
    """Return the environment of a program: the native half, and oneDNN with the instructions permitted here."""
    limits = {name: value for name, value in os.environ.items() if name == "ONEDNN_MAX_CPU_ISA"}
    library = load_library().path
    return {"BYOC_RT_RUNTIMES": str(native_half), "BYOC_DNNL_LIBRARY": library, "OMP_NUM_THREADS": "2", **limits}


@pytest.fixture(scope="module")
def recognise(tmp_path_factory: pytest.TempPathFactory, c_runtime_file: Path) -> Path:
    """Return the compiled ``recognise.c``."""
    target = tmp_path_factory.mktemp("recognise") / "recognise"
    return compile_c(HERE / "examples" / "recognise.c", target, "-pthread")


@pytest.fixture(scope="module")
def classify(tmp_path_factory: pytest.TempPathFactory, c_runtime_file: Path) -> Path:
    """Return the compiled ``classify.c``."""
    return compile_c(EXAMPLES / "classify.c", tmp_path_factory.mktemp("classify") / "classify")


def _network() -> Any:
    sizes = dict(zip(("batch", "height", "width"), (IMAGE[0], *IMAGE[2:]), strict=True))
    return fix_sizes(build_resnet(RESNET_SIZES["tiny"], STYLES["exported17"]), sizes)


def _build(model: Any, backends: Sequence[str], sizes: Sequence[Mapping[str, int]]) -> Executable:
    options = {"dnnl": {"stored_plans": sizes}}
    executable = byoc_core.build(byoc_core.from_onnx(model), backends=backends, options=options)
    assert "dnnl" in {module.type_key for module in executable.modules}
    return executable


def _needs(backends: Sequence[str]) -> None:
    for name in backends:
        if name not in byoc_core.backends.names():
            pytest.skip(f"no backend {name} here")


def _python_files(lines: Sequence[str]) -> list[str]:
    files = {line.split(maxsplit=5)[5] for line in lines if line.count("-") and "/" in line}
    names = [Path(file.removesuffix(" (deleted)")).name for file in files]
    assert "libbyoc_rt.so" in names
    assert any(name.startswith("libdnnl") for name in names)
    return [name for name in names if "python" in name]


@pytest.mark.parametrize("backends", BACKENDS, ids="+".join)
@pytest.mark.parametrize("callers", [1, 4])
def test_a_program_recognises_images(
    recognise: Path, variables: Mapping[str, str], tmp_path: Path, backends: Sequence[str], callers: int
) -> None:
    _needs(backends)
    executable = _build(_network(), backends, [{}])
    executable.save(tmp_path / "model.byoc")
    image = np.random.default_rng(3).standard_normal(IMAGE, np.float32)
    (tmp_path / "image.bin").write_bytes(image.tobytes())
    arguments = (tmp_path / "model.byoc", tmp_path / "image.bin", str(callers))
    maps = ["--maps"] if sys.platform.startswith("linux") else []
    done = run_alone(recognise, *arguments, *maps, variables=variables)
    assert (done.returncode, done.stderr) == (0, "")
    expected = results_of(byoc_core.VirtualMachine(executable, num_threads=2), "main", [image])
    lines = done.stdout.splitlines()
    printed = [np.array(line.split(), np.float32).reshape(x.shape) for line, x in zip(lines, expected, strict=False)]
    assert_same_bits(printed, expected)
    if maps:
        assert _python_files(lines[len(expected) :]) == []


@pytest.mark.parametrize("backends", BACKENDS, ids="+".join)
def test_a_program_classifies_texts(
    classify: Path, variables: Mapping[str, str], tmp_path: Path, backends: Sequence[str]
) -> None:
    _needs(backends)
    executable = _build(build_classifier(), backends, SIZES)
    executable.save(tmp_path / "model.byoc")
    machine = byoc_core.VirtualMachine(executable, num_threads=2)
    for sizes in SIZES:
        ids = draw_texts(sizes["batch"], sizes["sequence"], seed=1)
        (tmp_path / "ids.bin").write_bytes(ids.tobytes())
        arguments = (tmp_path / "model.byoc", tmp_path / "ids.bin", str(sizes["batch"]), str(sizes["sequence"]))
        done = run_alone(classify, *arguments, variables=variables)
        assert (done.returncode, done.stderr) == (0, "")
        expected = results_of(machine, "main", [ids, (ids != 0).astype(np.int64), np.zeros_like(ids)])
        lines = done.stdout.splitlines()[1:6:2]
        printed = [np.array(line.split(), np.float32).reshape(x.shape) for line, x in zip(lines, expected, strict=True)]
        assert_same_bits(printed, expected)


def test_a_machine_with_other_instructions_is_an_error_with_a_remedy(
    recognise: Path, variables: Mapping[str, str], tmp_path: Path
) -> None:
    _build(_network(), ["dnnl"], [{}]).save(tmp_path / "model.byoc")
    arguments = (tmp_path / "model.byoc", tmp_path / "image.bin", "1")
    done = run_alone(recognise, *arguments, variables={**variables, "ONEDNN_MAX_CPU_ISA": "SSE41"})
    assert done.returncode == 1
    assert "the stored plans are for oneDNN 3." in done.stderr
    assert "with the environment variable ONEDNN_MAX_CPU_ISA" in done.stderr


def test_a_missing_library_is_an_error_with_a_remedy(
    recognise: Path, variables: Mapping[str, str], tmp_path: Path
) -> None:
    _build(_network(), ["dnnl"], [{}]).save(tmp_path / "model.byoc")
    arguments = (tmp_path / "model.byoc", tmp_path / "image.bin", "1")
    done = run_alone(recognise, *arguments, variables={**variables, "BYOC_DNNL_LIBRARY": str(tmp_path / "none.so")})
    assert done.returncode == 1
    assert "Name a libdnnl of version 3.2 or a later 3 by the environment variable BYOC_DNNL_LIBRARY" in done.stderr


def test_the_command_of_the_c_runtime_finds_the_native_half(c_runtime_file: Path, native_half: Path) -> None:
    byoc_rt = pytest.importorskip("byoc_rt")
    assert byoc_rt.find_native_runtimes()["dnnl"] == native_half
