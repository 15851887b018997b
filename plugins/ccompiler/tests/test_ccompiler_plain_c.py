"""Models exported as plain C: compiled with all warnings, run with sanitizers, equal to the virtual machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.artifact import Executable
from byoc_core.errors import CodegenError

from benchmarks.zoo.networks import NETWORKS
from benchmarks.zoo.quantised import build_quantised_convnet
from benchmarks.zoo.small_networks import build_lenet, build_mlp

pytestmark = [pytest.mark.libraries]

NDArray = npt.NDArray[Any]
STRICT = "-std=c11 -Wall -Wextra -Werror -pedantic -ffp-contract=off"
MEMORY_FUNCTIONS = {"memcpy", "memmove", "memset", "memcmp"}
MATH = re.compile(
    r"(a?(sin|cos|tan)h?|exp2?|expm1|log(2|10|1p)?|pow|sqrt|cbrt|erf|fmod|f?abs|floor|ceil|trunc|rint|round|fm(in|ax|a)"
    r"|nearbyint|copysign|ldexp|hypot|atan2)f?"
)


def network(name: str, sizes: Mapping[str, int]) -> tuple[onnx.ModelProto, dict[str, int], dict[str, NDArray]]:
    """Return a network of symbolic sizes, the largest sizes, and inputs of these sizes."""
    found = NETWORKS[name]
    config = found.configs["tiny" if "tiny" in found.configs else next(iter(found.configs))]
    model = found.build("tiny" if "tiny" in found.configs else next(iter(found.configs)), "exported17")
    return model, dict(sizes), found.draw_inputs(config, sizes, 0)


def fixed(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int], dict[str, NDArray]]:
    """Return a network of fixed sizes, with inputs drawn by the export."""
    return model, {}, {}


MODELS: dict[str, Callable[[], tuple[onnx.ModelProto, dict[str, int], dict[str, NDArray]]]] = {
    "lenet": lambda: fixed(build_lenet()),
    "mlp": lambda: fixed(build_mlp(4)),
    "quantised": lambda: fixed(build_quantised_convnet()),
    "encoder": lambda: network("bert", {"batch": 2, "sequence": 9}),
    "decoder": lambda: network("gpt2", {"batch": 1, "past": 5, "sequence": 1}),
    "llama": lambda: network("llama", {"batch": 1, "past": 5, "sequence": 1}),
    "lstm": lambda: network("lstm", {"batch": 2, "sequence": 7}),
}


def build(model: onnx.ModelProto) -> Executable:
    executable = byoc_core.build(byoc_core.from_onnx(model), backends=["ccompiler"])
    executable.require_offload(0.999)
    return executable


def make(folder: Path, *arguments: str) -> str:
    command = ["make", "-s", *arguments]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_c_without_any_remainder(tmp_path: Path, name: str) -> None:
    model, sizes, inputs = MODELS[name]()
    executable = build(model)
    symbols = {symbol for function in executable.program.functions for symbol in function.input_symbols}
    executable.export_c(
        tmp_path, max_sizes={symbol: sizes[symbol] for symbol in symbols} or None, test_inputs=inputs or None
    )
    flags = f"CFLAGS={STRICT} -march=native -O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
    output = make(tmp_path, "-j2", "check", "CC=gcc", flags)
    assert output.count(": right") == len(executable.signature("main").outputs)
    make(tmp_path, "clean")
    make(tmp_path, "-j2", "libmodel.a", "CC=gcc", "CFLAGS=-std=c11 -O2 -march=native -fno-pie")
    lines = subprocess.run(["nm", "libmodel.a"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in lines.splitlines()]
    undefined = {row[-1] for row in rows if len(row) == 2} - {row[-1] for row in rows if len(row) == 3}
    foreign = {symbol for symbol in undefined if symbol not in MEMORY_FUNCTIONS and not MATH.fullmatch(symbol)}
    assert not foreign
    assert not [row for row in rows if len(row) == 3 and row[1] in "BbDdCc"]


@pytest.mark.parametrize("name", ["lenet", "lstm", "encoder"])
def test_clang_accepts_the_c(tmp_path: Path, name: str) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed: apt-get install clang")
    model, sizes, inputs = MODELS[name]()
    executable = build(model)
    symbols = {symbol for function in executable.program.functions for symbol in function.input_symbols}
    largest = {symbol: sizes[symbol] for symbol in symbols} or None
    executable.export_c(tmp_path, max_sizes=largest, test_inputs=inputs or None)
    assert ": right" in make(tmp_path, "-j2", "check", "CC=clang", f"CFLAGS={STRICT} -march=native -O1")


def test_sizes_without_a_maximum_are_measured_by_a_function(tmp_path: Path) -> None:
    model, _, inputs = MODELS["encoder"]()
    build(model).export_c(tmp_path, test_inputs=inputs)
    header = (tmp_path / "model.h").read_text()
    assert "int64_t model_workspace_size(int64_t batch, int64_t sequence);" in header
    assert "MODEL_WORKSPACE_SIZE" not in header
    assert ": right" in make(tmp_path, "-j2", "check", "CC=gcc", f"CFLAGS={STRICT} -march=native -O1")


def test_ops_on_the_host_are_listed_and_nothing_is_written(tmp_path: Path) -> None:
    executable = byoc_core.build(byoc_core.from_onnx(build_mlp(4)), backends=[])
    with pytest.raises(CodegenError, match="has no form in plain C") as caught:
        executable.export_c(tmp_path / "no")
    assert "of runtime `graph` (" in str(caught.value)
    assert not (tmp_path / "no").exists()


def test_a_wheel_runs_without_byoc(tmp_path: Path) -> None:
    model, _, inputs = MODELS["encoder"]()
    executable = build(model)
    expected = byoc_core.VirtualMachine(executable).run("main", inputs)
    results = expected if isinstance(expected, tuple) else (expected,)
    wheel = executable.export_wheel(tmp_path, name="encoder")
    assert executable.export_wheel(tmp_path / "again", name="encoder").read_bytes() == wheel.read_bytes()
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(tmp_path / "site")], check=True)
    arrays = [inputs[spec.name] for spec in executable.signature("main").inputs]
    np.savez(tmp_path / "inputs.npz", *arrays)
    script = (
        "import sys; sys.modules['byoc_core'] = None\n"
        "import numpy as np, encoder\n"
        "arrays = [*np.load('inputs.npz').values()]\n"
        "found = encoder.run(*arrays)\n"
        "np.savez('outputs.npz', *(found if isinstance(found, tuple) else (found,)))\n"
        "try:\n    encoder.run(*[a.astype('float64') for a in arrays])\n"
        "except TypeError as error:\n    print(error)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "expected int64" in finished.stdout or "expected float32" in finished.stdout
    for got, wanted in zip(np.load(tmp_path / "outputs.npz").values(), results, strict=True):
        assert np.allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_static_library_comes_with_its_header(tmp_path: Path) -> None:
    executable = build(build_mlp(4))
    library, header = executable.export_archive(tmp_path / "libmlp.a", name="mlp")
    caller = f'#include "{header.name}"\nint main(void) {{ return mlp_workspace_size() < 1; }}\n'
    (tmp_path / "caller.c").write_text(caller)
    subprocess.run(["gcc", "-std=c11", "caller.c", library.name, "-lm", "-o", "caller"], cwd=tmp_path, check=True)
    subprocess.run(["./caller"], cwd=tmp_path, check=True)
