"""The native half of byoc-examplejson, an example for authors of runtimes, runs regions without Python."""

from __future__ import annotations

from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.native.toolchain import Toolchain

from core.tests.artifact.fuzzing.members import packed, taken_apart
from rt.tests.programs import EXAMPLES, compile_c, run_alone
from rt.tests.runner import NativeError, NativeLibrary, Status

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

MODULE = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 3), "float32"), y: R.Tensor((4, 3), "float32")):
        total = R.add(x, y)
        square = R.multiply(total, total)
        result = R.subtract(square, x)
        return result, total
"""
PROBE = """
#include <byoc_rt.h>
#include <stdio.h>
int main(int argc, char **argv) {
  byoc_rt_program *program = NULL;
  const int status = argc == 2 ? byoc_rt_load(argv[1], NULL, &program) : -1;
  printf("%d %s\\n", status, status ? byoc_rt_last_error() : "");
  byoc_rt_unload(program);
  return 0;
}
"""


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the compiled native half."""
    target = tmp_path_factory.mktemp("half") / "libexamplejson.so"
    options = ["-shared", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]
    return compile_c(EXAMPLES / "examplejson.c", target, *options)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an artifact with a single region of byoc-examplejson."""
    path = tmp_path_factory.mktemp("model") / "model.byoc"
    executable = byoc_core.build(byoc_core.parse(MODULE), ["examplejson"])
    assert [module.type_key for module in executable.modules] == ["examplejson"]
    executable.save(path)
    return path


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program loading an artifact and printing the status and the error."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text(PROBE, "utf-8")
    return compile_c(folder / "probe.c", folder / "probe")


def test_the_environment_names_native_halves(probe: Path, model: Path, half: Path) -> None:
    refused = run_alone(probe, model)
    assert refused.returncode == 0
    assert refused.stdout.startswith(
        f"{Status.LINK:d} artifact `{model}`: needs runtime `examplejson` of byoc-examplejson"
    )
    assert run_alone(probe, model, variables={"BYOC_RT_RUNTIMES": str(half)}).stdout == "0 \n"
    missing = run_alone(probe, model, variables={"BYOC_RT_RUNTIMES": f"{half}:{half.parent}/missing.so"})
    assert missing.stdout.startswith(f"{Status.LINK:d} ")
    assert "missing.so" in missing.stdout


def test_a_loaded_half_runs_regions(native: NativeLibrary, model: Path, half: Path) -> None:
    with pytest.raises(NativeError, match="needs runtime `examplejson`") as caught:
        native.load(model)
    assert caught.value.status is Status.LINK
    native.load_runtime(half)
    native.load_runtime(half)  # a second time changes nothing
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 4, 3), np.float32)
    expected = byoc_core.VirtualMachine(byoc_core.load(model))["main"](x, y)
    actual = native.load(model)["main"](x, y)
    assert [array.tobytes() for array in actual] == [array.tobytes() for array in expected]


DAMAGED = [
    ("subgraph_0\n  input 0 4\n  add 1 inputs: 0 2 shape: 4\n", 3),
    ("subgraph_0\n  input 0 4\n  add 1 inputs: 0 0 shape: 5\n", 3),
    ("subgraph_0\n  input 0 4\n  div 1 inputs: 0 0 shape: 4\n", 3),
    ("subgraph_0\n  input 0 4 x\n", 2),
    ("subgraph_0\n  input 0 99999999999999 99999999999999\n", 2),
    ("subgraph_0\n  input 0 4\n  output 1\n", 3),
    ("  input 0 4\n", 1),
    ("subgraph_0\n  input 0 4\n", 3),
]


@pytest.mark.parametrize(("text", "line"), DAMAGED)
def test_a_damaged_payload_is_refused_with_its_line(
    native: NativeLibrary, half: Path, model: Path, tmp_path: Path, text: str, line: int
) -> None:
    native.load_runtime(half)
    with pytest.raises(NativeError, match=rf", line {line}: ") as caught:
        native.load(_with_payload(model, text, tmp_path))
    assert caught.value.status is Status.ARTIFACT


@pytest.mark.parametrize("sizes", ["4 2", "3 4", "12", "4 3 1"])
def test_a_graph_of_other_shapes_than_the_program_is_refused(
    native: NativeLibrary, half: Path, model: Path, tmp_path: Path, sizes: str
) -> None:
    native.load_runtime(half)
    (text,) = (module.get_source() for module in byoc_core.load(model).modules)
    function = native.load(_with_payload(model, text.replace(" 4 3\n", f" {sizes}\n"), tmp_path))["main"]
    x = np.zeros((4, 3), np.float32)
    with pytest.raises(NativeError, match="examplejson: an argument does not fit value 0") as caught:
        function(x, x)
    assert caught.value.status is Status.EXECUTION


def _with_payload(model: Path, text: str, folder: Path) -> Path:
    """Return an artifact with another payload, and with the digest of this payload."""
    members = taken_apart(model.read_bytes())
    path = folder / "changed.byoc"
    path.write_bytes(packed({**members, "modules/0/payload": text.encode()}))
    return path
