"""Networks and random functions exported as plain C: warnings, sanitizers, symbols, sizes, outputs, and a wheel.

Large networks run in the session ``plain-c``, by :mod:`plugins.ccompiler.tests.sanitized_models`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.artifact import Executable
from byoc_core.frontend.onnx import from_onnx

from benchmarks.zoo import bert, gpt2, llama
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.quantised import build_quantised_convnet
from benchmarks.zoo.small_networks import build_lenet, build_mlp, build_recurrent
from plugins.ccompiler.tests.sanitized_c import SANITIZERS, WARNINGS, fill_workspace

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the sanitizers, nm and the Makefile are those of Linux"
)

NDArray = npt.NDArray[Any]
MEMORY_FUNCTIONS = {"memcpy", "memmove", "memset", "memcmp"}

STYLE = STYLES["exported17"]


@dataclass(frozen=True)
class Network:
    """A network, the largest sizes of the export, the sizes of the test vector, and inputs of some sizes."""

    build: Callable[[], Any]
    max_sizes: Mapping[str, int] | None = None
    sizes: Mapping[str, int] | None = None
    draw: Callable[[Mapping[str, int]], dict[str, NDArray]] | None = None

    def inputs(self, sizes: Mapping[str, int] | None) -> dict[str, NDArray] | None:
        """Return inputs, or ``None`` for inputs drawn by the export."""
        return None if self.draw is None or sizes is None else self.draw(sizes)


NETWORKS = {
    "lenet": Network(build_lenet),
    "mlp": Network(lambda: build_mlp(1)),
    "lstm": Network(lambda: build_recurrent("LSTM", 2, 5, 8, 16)),
    "gru": Network(lambda: build_recurrent("GRU", 1, 5, 8, 16, batch=3, directions=2)),
    "encoder": Network(
        lambda: bert.build_bert(bert.SIZES["tiny"], STYLE),
        {"batch": 2, "sequence": 12},
        {"batch": 2, "sequence": 7},
        lambda sizes: bert.draw_bert_inputs(bert.SIZES["tiny"], sizes, 3),
    ),
    "decoder": Network(
        lambda: gpt2.build_gpt2(gpt2.SIZES["tiny"], STYLE),
        {"batch": 1, "sequence": 1, "past": 20},
        {"batch": 1, "sequence": 1, "past": 11},
        lambda sizes: gpt2.draw_gpt2_inputs(gpt2.SIZES["tiny"], sizes, 3),
    ),
    "llama": Network(
        lambda: llama.build_llama(llama.SIZES["tiny"], STYLE),
        {"batch": 1, "sequence": 1, "past": 8},
        {"batch": 1, "sequence": 1, "past": 5},
        lambda sizes: llama.draw_llama_inputs(llama.SIZES["tiny"], sizes, 3),
    ),
    "quantised": Network(build_quantised_convnet),
}


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Executable]]:
    """Return a function exporting a network once for all tests; the tests compile copies."""
    found: dict[str, tuple[Path, Executable]] = {}

    def export(name: str) -> tuple[Path, Executable]:
        if name not in found:
            network = NETWORKS[name]
            executable = byoc_core.build(
                from_onnx(network.build()), ["ccompiler"], options={"ccompiler": {"opt_level": 0}}, strict=True
            )
            executable.require_offload(1.0)
            assert [module.type_key for module in executable.modules] == ["csource"]
            folder = tmp_path_factory.mktemp(name)
            executable.export_c(
                folder, name=name, max_sizes=network.max_sizes, test_inputs=network.inputs(network.sizes)
            )
            found[name] = (folder, executable)
        return found[name]

    return export


def arch_flags(folder: Path) -> str:
    """Return the flags of a Makefile for instruction sets."""
    return " ".join(re.findall(r"-march=\S+", (folder / "Makefile").read_text()))


def make(folder: Path, target: str, compiler: str, flags: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-s", "-j2", target, f"CC={compiler}", f"CFLAGS={flags}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def assert_right(done: subprocess.CompletedProcess[str], executable: Executable) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = executable.functions["main"].outputs
    lines = done.stdout.splitlines()
    assert len(lines) == len(outputs)
    assert all(line.endswith(": right") for line in lines), done.stdout


needs_compiler = {
    name: pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed") for name in ("gcc", "clang")
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("compiler", "extra"),
    [
        pytest.param("gcc", SANITIZERS, marks=needs_compiler["gcc"], id="gcc-sanitizers"),
        pytest.param("clang", "", marks=needs_compiler["clang"], id="clang"),
    ],
)
def test_outputs_equal_the_machine_without_warnings(
    name: str, compiler: str, extra: str, exports: Callable[[str], tuple[Path, Executable]], tmp_path: Path
) -> None:
    original, executable = exports(name)
    folder = tmp_path / "model"
    shutil.copytree(original, folder)
    fill_workspace(folder / "main.c")
    assert_right(make(folder, "check", compiler, f"{WARNINGS} {arch_flags(folder)} {extra}"), executable)


@needs_compiler["gcc"]
@pytest.mark.parametrize("name", NETWORKS)
def test_the_library_needs_no_heap_and_writes_no_globals(
    name: str, exports: Callable[[str], tuple[Path, Executable]], tmp_path: Path
) -> None:
    original, _ = exports(name)
    folder = tmp_path / "model"
    shutil.copytree(original, folder)
    done = make(folder, f"lib{name}.a", "gcc", f"-std=c11 -O1 -fno-pie {arch_flags(folder)}")
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(["nm", f"lib{name}.a"], cwd=folder, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines() if line and not line.endswith(":")]
    undefined = {row[1] for row in rows if row[0] == "U"}
    defined = {row[2]: row[1] for row in rows if len(row) == 3}
    assert {symbol: kind for symbol, kind in defined.items() if kind in "BbDdCSsGg"} == {}
    assert defined[f"{name}_run"] == "T"
    visible = {symbol for symbol, kind in defined.items() if kind.isupper()}
    assert {symbol for symbol in visible if not symbol.startswith(f"{name}_")} == set()
    assert_from_libm(undefined - defined.keys() - MEMORY_FUNCTIONS, tmp_path)


def assert_from_libm(symbols: set[str], folder: Path) -> None:
    """Link symbols with libm alone; the error of the linker names others."""
    (folder / "names.c").write_text("".join(f"extern int {name}(void);\n" for name in sorted(symbols)))
    uses = "".join(f"  (int (*)(void)){name},\n" for name in sorted(symbols))
    (folder / "uses.c").write_text(f'#include "names.c"\nint (*const uses[])(void) = {{\n{uses}  0\n}};\n')
    command = ["gcc", "-fno-builtin", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,defs", "uses.c", "-lm", "-o", "uses.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_compiler["gcc"]
def test_the_check_of_symbols_finds_the_heap(tmp_path: Path) -> None:
    assert_from_libm({"expf", "sqrt"}, tmp_path)
    with pytest.raises(AssertionError, match="malloc"):
        assert_from_libm({"malloc"}, tmp_path)


@needs_compiler["gcc"]
def test_the_test_program_finds_wrong_outputs(
    exports: Callable[[str], tuple[Path, Executable]], tmp_path: Path
) -> None:
    original, _ = exports("mlp")
    folder = tmp_path / "model"
    shutil.copytree(original, folder)
    constants = folder / "mlp_constants.bin"
    data = np.frombuffer(constants.read_bytes(), np.float32)
    constants.write_bytes((2 * data).tobytes())
    done = make(folder, "check", "gcc", f"{WARNINGS} {arch_flags(folder)}")
    assert done.returncode != 0
    assert "WRONG" in done.stdout


@needs_compiler["gcc"]
def test_sizes_from_the_least_to_the_largest_fit_into_the_workspace(
    exports: Callable[[str], tuple[Path, Executable]], tmp_path: Path
) -> None:
    """Test vectors of other sizes for the same library: the constant workspace suffices for the largest sizes."""
    name = "decoder"
    original, executable = exports(name)
    network = NETWORKS[name]
    largest = network.max_sizes
    assert largest is not None
    folder = tmp_path / "model"
    shutil.copytree(original, folder)
    flags = f"{WARNINGS} {arch_flags(folder)} -fsanitize=address"
    least = {symbol: 0 if symbol == "past" else 1 for symbol in largest}
    for sizes in (least, largest):
        other = tmp_path / "other"
        executable.export_c(other, name=name, max_sizes=largest, test_inputs=network.inputs(sizes))
        assert (other / f"{name}.c").read_bytes() == (original / f"{name}.c").read_bytes()
        for file in ("main.c", f"{name}_test_constants.c", f"{name}_test_constants.bin"):
            (folder / file).unlink(missing_ok=True)
            if (other / file).exists():
                shutil.copy(other / file, folder / file)
        fill_workspace(folder / "main.c")
        assert_right(make(folder, "check", "gcc", flags), executable)


@needs_compiler["gcc"]
def test_without_a_maximum_a_function_measures_the_workspace(tmp_path: Path) -> None:
    network = NETWORKS["encoder"]
    options = {"ccompiler": {"opt_level": 0}}
    executable = byoc_core.build(from_onnx(network.build()), ["ccompiler"], options=options, strict=True)
    executable.require_offload(1.0)
    executable.export_c(tmp_path, test_inputs=network.inputs(network.sizes))
    header = (tmp_path / "model.h").read_text()
    assert "int64_t model_workspace_size(int64_t batch, int64_t sequence);" in header
    assert "MODEL_WORKSPACE_SIZE" not in header
    assert_right(make(tmp_path, "check", "gcc", f"{WARNINGS} {arch_flags(tmp_path)}"), executable)


@needs_compiler["gcc"]
@pytest.mark.parametrize("name", ["encoder", "gru"])
def test_constants_may_lie_in_a_file(name: str, tmp_path: Path) -> None:
    options = {"ccompiler": {"opt_level": 0}}
    network = NETWORKS[name]
    executable = byoc_core.build(from_onnx(network.build()), ["ccompiler"], options=options, strict=True)
    executable.require_offload(1.0)
    executable.export_c(tmp_path, constants="file", test_inputs=network.inputs(network.sizes))
    fill_workspace(tmp_path / "main.c")
    assert (tmp_path / "model.weights").stat().st_size > 64
    assert_right(make(tmp_path, "check", "gcc", f"{WARNINGS} {arch_flags(tmp_path)} {SANITIZERS}"), executable)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "digits.onnx"
    onnx.save(build_lenet(), path)
    return path


def export(folder: Path, *arguments: str) -> str:
    """Run ``byoc export`` in a folder; return the output."""
    command = [sys.executable, "-c", "from byoc_core.cli.main import main; main()", "export", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expected_logits(onnx_file: Path) -> tuple[NDArray, NDArray]:
    """Return an image, and the outputs of the virtual machine."""
    image = np.random.default_rng(8).standard_normal((1, 1, 28, 28), np.float32)
    executable = byoc_core.build(from_onnx(onnx_file), ["ccompiler"], strict=True)
    logits = byoc_core.VirtualMachine(executable)["main"](image)
    assert isinstance(logits, np.ndarray)
    return image, logits


INSTALLED = """
import sys
sys.modules["byoc_core"] = None
import numpy as np
import digits

np.save("logits.npy", digits.run(np.load("image.npy")))
for wrong in (np.zeros((1, 1, 28, 27), "float32"), np.zeros((1, 1, 28, 28)), np.zeros((28, 28), "float32")):
    try:
        digits.run(wrong)
    except (TypeError, ValueError) as error:
        print(error)
"""


def test_the_command_writes_a_wheel_running_without_byoc(onnx_file: Path, tmp_path: Path) -> None:
    text = export(tmp_path, str(onnx_file), "--backend", "ccompiler", "-f", "wheel", "-o", "dist", "--name", "digits")
    (wheel,) = (tmp_path / "dist").iterdir()
    assert text.splitlines()[-1] == f"wrote dist/{wheel.name}"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    image, logits = expected_logits(onnx_file)
    np.save(tmp_path / "image.npy", image)
    done = subprocess.run(
        [sys.executable, "-c", INSTALLED], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "input `image`: got the shape (1, 1, 28, 27), expected (1, 1, 28, 28)",
        "input `image`: got float64, expected float32",
        "input `image`: got 2 axes, expected 4",
    ]
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), logits)
