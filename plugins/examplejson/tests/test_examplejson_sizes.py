"""Models with symbolic sizes: the format has none, so each set of sizes is a separate text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core import script as R
from onnx import TensorProto, helper

MODULE = R.parse("""
def main(x: R.Tensor(("n", 10), "float32"), y: R.Tensor(("n", 10), "float32")):
    a = R.add(x, y)
    b = R.multiply(a, y)
    return b
""")

RUN = """
import sys
import numpy as np
import byoc_core

vm = byoc_core.VirtualMachine(byoc_core.load(sys.argv[1]))
x = np.full((int(sys.argv[2]), 10), 3, np.float32)
try:
    print(vm["main"](x, x).sum())
except byoc_core.ByocError as error:
    print(error)
assert "byoc_examplejson.backend" not in sys.modules
"""


def check(vm: byoc_core.VirtualMachine, n: int) -> None:
    x = np.arange(n * 10, dtype=np.float32).reshape(n, 10)
    np.testing.assert_array_equal(vm["main"](x, x), (x + x) * x)


def run(path: Path, n: int) -> tuple[str, str]:
    """Run an artifact in a fresh process; return the output, and the log."""
    command = [sys.executable, "-W", "error", "-c", RUN, str(path), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_a_model_with_a_symbolic_size_is_offloaded(tmp_path: Path) -> None:
    executable = byoc_core.build(MODULE, ["examplejson"], specialize=[{"n": 1}, {"n": 8}], fallback="error")
    executable.require_offload(1.0)
    assert executable.get_source().count("shape: 1 10") == 2
    assert executable.get_source().count("shape: 8 10") == 2
    vm = byoc_core.VirtualMachine(executable)
    for n in (1, 8, 3, 1):
        check(vm, n)
    path = tmp_path / "model.byoc"
    executable.save(path)
    assert run(path, 8) == (str(np.float32(8 * 10 * 18)), "")
    output, _ = run(path, 3)
    assert "(static shapes only): is not compiled for these sizes; got n = 3, expected one of: n = 1; n = 8" in output
    needs = {need.type_key: need.distribution for need in byoc_core.inspect(path).runtimes}
    assert needs["examplejson"] == "byoc-examplejson"


def test_by_default_it_is_offloaded_at_first_use(tmp_path: Path) -> None:
    executable = byoc_core.build(MODULE, ["examplejson"])
    executable.require_offload(1.0)
    assert "(examplejson): at first use" in executable.report()
    vm = byoc_core.VirtualMachine(executable)
    for n in (1, 8, 3, 1):
        check(vm, n)
    path = tmp_path / "model.byoc"
    byoc_core.build(MODULE, ["examplejson"], specialize=[{"n": 8}]).save(path)
    assert run(path, 8) == (str(np.float32(8 * 10 * 18)), "")
    printed, logged = run(path, 3)
    assert printed == str(np.float32(3 * 10 * 18))
    assert "of backend `examplejson` runs on the host for n = 3: " in logged
    assert "expected one of: n = 8. Pass these sizes to `build(specialize=...)`." in logged


def test_it_can_be_turned_off() -> None:
    executable = byoc_core.build(MODULE, ["examplejson"], specialize=False)
    assert "examplejson: backend `examplejson` takes static shapes only [dynamic-shape]" in executable.report()
    check(byoc_core.VirtualMachine(executable), 3)


def test_a_loaded_artifact_is_compiled_for_more_sizes(tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    byoc_core.build(MODULE, ["examplejson"], specialize=[]).save(path, respecializable=True)
    vm = byoc_core.VirtualMachine(byoc_core.load(path, compiler=byoc_core.compiler()))
    for n in (4, 2, 4):
        check(vm, n)
    printed, logged = run(path, 4)
    assert printed == str(np.float32(4 * 10 * 18))
    assert "expected one of: none. Load the artifact with" in logged


def save_model(folder: Path) -> str:
    """Save a model of a symbolic size as ``m.onnx``; return the path of the command ``byoc``."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 10]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "m.onnx"))
    return str(Path(sys.executable).with_name("byoc"))


def test_the_command_line_without_sizes(tmp_path: Path) -> None:
    byoc = save_model(tmp_path)

    def printed(*arguments: str, status: int = 0) -> str:
        done = subprocess.run([byoc, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout

    advice = "examplejson takes static shapes only: `--specialize n=1,8` compiles for these sizes"
    assert advice in printed("compile", "m.onnx", "-o", "m.byoc", "-b", "examplejson")
    assert byoc_core.inspect(tmp_path / "m.byoc").report_data["offloaded_share"] == 0
    assert advice not in printed("compile", "m.onnx", "-o", "m.byoc", "-b", "examplejson", "--specialize", "n=2")
    assert advice not in printed("compile", "m.onnx", "-o", "m.byoc", "-b", "examplejson", "--quiet")
    assert "at first use" in printed("explain", "m.onnx", "-b", "examplejson", "--require-offload", "100%")
    assert "1 region" in (output := printed("debug", "m.onnx", "-b", "examplejson", "--dim", "n=3")), output
    printed("compile", "m.onnx", "-o", "m.byoc", "-b", "examplejson", "--require-offload", "1%", status=1)


@pytest.mark.parametrize("respecializable", [False, True])
def test_the_command_line_compiles_for_sets_of_sizes(tmp_path: Path, *, respecializable: bool) -> None:
    byoc = save_model(tmp_path)
    options = ["-b", "examplejson", "--specialize", "n=1,8", "--require-offload", "100%"]
    options += ["--respecializable"] if respecializable else []
    command = [byoc, "compile", "m.onnx", "-o", "m.byoc", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "n = 1; n = 8" in done.stdout
    vm = byoc_core.VirtualMachine(byoc_core.load(tmp_path / "m.byoc"))
    value = np.ones((8, 10), np.float32)
    assert np.sum(vm["main"](value)) == 160
    bad = [byoc, "compile", "m.onnx", "-o", "m.byoc", "-b", "examplejson", "--specialize", "n=a"]
    done = subprocess.run(bad, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--specialize: is malformed; got 'n=a', expected NAME=SIZE,SIZE" in done.stderr.replace("\n", " ")
