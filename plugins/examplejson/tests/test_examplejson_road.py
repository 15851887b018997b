"""All stages through this backend: annotate or partition, compile, run, save, load (S000 and S002)."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import ArtifactError, CodegenError
from byoc_core.ir import IRModule
from byoc_core.partitioning import RunCodegen
from byoc_core.runtime.module import NDArray

pytestmark = pytest.mark.interpreter

S = "R.Tensor((10, 10), 'float32')"
GUIDE_TEXT = """\
subgraph_0
  input 0 10 10
  input 1 10 10
  input 2 10 10
  input 3 10 10
  add 4 inputs: 0 1 shape: 10 10
  sub 5 inputs: 4 2 shape: 10 10
  mul 6 inputs: 5 3 shape: 10 10
"""
GUIDE = f"""
@R.ir_module
class M:
    @R.function
    def graph(i0: {S}, i1: {S}, i2: {S}, i3: {S}):
        R.func_attr({{"Codegen": "examplejson", "global_symbol": "subgraph_0"}})
        a = R.add(i0, i1)
        b = R.subtract(a, i2)
        c = R.multiply(b, i3)
        return c

    @R.function
    def main(i0: {S}, i1: {S}, i2: {S}, i3: {S}):
        out = graph(i0, i1, i2, i3)
        return out
"""
T = "R.Tensor((16, 16), 'float32')"
TUTORIAL = f"""
@R.ir_module
class M:
    @R.function
    def byoc_func(x: {T}, y: {T}):
        R.func_attr({{"Codegen": "examplejson", "global_symbol": "byoc_func"}})
        z1 = R.multiply(x, y)
        z2 = R.add(z1, z1)
        z3 = R.add(z1, z2)
        return z3

    @R.function
    def tvm_func(x: {T}, w: {T}):
        gv0 = R.multiply(x, w)
        gv1 = R.add(x, gv0)
        return gv1

    @R.function
    def main(x: {T}, y: {T}):
        lv0 = byoc_func(x, y)
        lv1 = tvm_func(x, lv0)
        return lv1
"""


def arrays(count: int, *shape: int) -> list[NDArray]:
    return list(np.random.default_rng(3).normal(size=(count, *shape)).astype("float32"))


def external(module: IRModule) -> str:
    (compiled,) = module.attrs["external_mods"]
    assert compiled.type_key == "examplejson"
    return str(compiled.get_source())


def test_s000_1_the_tutorials_module() -> None:
    module = R.parse(TUTORIAL)
    before = str(module)
    compiled = RunCodegen()(module)
    assert str(module) == before
    assert list(compiled.functions) == ["tvm_func", "main"]
    calls = [binding for binding in compiled["main"].bindings if binding.op.name == "call_dps_packed"]
    assert [call.attrs["symbol"] for call in calls] == ["byoc_func"]
    assert str(calls[0].result.type) == 'R.Tensor((16, 16), "float32")'
    assert len(compiled.attrs["external_mods"]) == 1
    assert 'R.call_dps_packed("byoc_func", ' in str(compiled)
    x, y = arrays(2, 16, 16)
    result = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"](x, y)
    product = x * y
    np.testing.assert_array_equal(result, x + x * (product + (product + product)))  # each op rounds as numpy does


def test_s000_2_an_op_that_it_cannot_take_is_an_error_at_codegen() -> None:
    with pytest.raises(CodegenError) as caught:
        RunCodegen()(R.parse(TUTORIAL.replace("z3 = R.add(z1, z2)", "z3 = R.divide(z1, z2)")))
    text = str(caught.value)
    assert "byoc_func" in text
    assert "`examplejson`" in text
    assert "the format has no `divide`" in text
    assert "z3 = R.divide(z1, z2)" in text


def test_s002_5_codegen_gives_the_text_exactly() -> None:
    assert external(RunCodegen()(R.parse(GUIDE))) == GUIDE_TEXT


def test_s002_5_partition_finds_the_same_graph_and_lifts_constants() -> None:
    text = f"""
@R.ir_module
class M:
    @R.function
    def main(i0: {S}, i1: {S}, i2: {S}, i3: {S}):
        a = R.add(i0, i1)
        b = R.subtract(a, i2)
        c = R.multiply(b, i3)
        return c
"""
    module = R.parse(text)
    executable = byoc_core.build(module, ["examplejson"], fallback="error")
    assert [m.type_key for m in executable.modules] == ["examplejson"]
    assert executable.get_source().splitlines()[1:] == GUIDE_TEXT.splitlines()[1:]
    assert executable.report_data["offloaded_share"] == 1.0


def test_constants_come_as_inputs() -> None:
    from byoc_core.ir import FunctionBuilder, Var, tensor
    from byoc_core.ops import default_ops

    builder = FunctionBuilder("main", ops=default_ops())
    x = builder.param("x", tensor((3,)))
    total = builder.emit("add", builder.const(np.array([1, 2, 3], "float32")), x)
    assert isinstance(total, Var)
    module = IRModule({"main": builder.finish(total)}, builder.constants)
    executable = byoc_core.build(module, ["examplejson"], fallback="error")
    assert executable.get_source().count("input ") == 2
    result = byoc_core.VirtualMachine(executable)["main"](np.ones(3, "float32"))
    np.testing.assert_array_equal(result, [2, 3, 4])


LOAD_AND_RUN = """
import sys
import numpy as np, byoc_core
executable = byoc_core.load("model.byoc")
out = byoc_core.VirtualMachine(executable)["main"](*np.load("inputs.npy"))
np.save("out.npy", out)
print(executable.get_source(), end="")
loaded = {name for name in sys.modules if name.startswith(("byoc_core.ir", "byoc_core.backend", "byoc_examplejson.b"))}
assert not loaded, loaded
"""


def run_in(folder: Path, script: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )


def test_s002_7_save_and_load_in_a_fresh_process(tmp_path: Path) -> None:
    inputs = arrays(4, 10, 10)
    np.save(tmp_path / "inputs.npy", inputs)
    executable = byoc_core.build(R.parse(GUIDE), [])
    executable.save(tmp_path / "model.byoc")
    done = run_in(tmp_path, LOAD_AND_RUN)
    assert done.returncode == 0, done.stderr
    assert done.stdout == GUIDE_TEXT
    expected = byoc_core.VirtualMachine(executable)["main"](*inputs)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_s002_7_export_a_library_and_load_it_in_a_fresh_process(tmp_path: Path) -> None:
    from byoc_core.native.toolchain import Toolchain

    if not Toolchain.status().ok:
        pytest.skip("there is no C compiler on this machine")
    inputs = arrays(4, 10, 10)
    np.save(tmp_path / "inputs.npy", inputs)
    executable = byoc_core.build(R.parse(GUIDE), [])
    executable.export_library(tmp_path / "model.so")
    script = (
        "import numpy as np, byoc_core\n"
        "module = byoc_core.load_module('model.so')\n"
        "out = np.empty((10, 10), 'float32')\n"
        "module.get_function('main')(*np.load('inputs.npy'), out)\n"
        "np.save('out.npy', out)\n"
        "print(module.get_source(), end='')\n"
    )
    done = run_in(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == GUIDE_TEXT
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), byoc_core.VirtualMachine(executable)["main"](*inputs))


def test_s002_7_a_missing_runtime_names_the_package(tmp_path: Path) -> None:
    byoc_core.build(R.parse(GUIDE), []).save(tmp_path / "model.byoc")
    hide = (
        "import importlib.metadata as md\n"
        "everything = md.distributions\n"
        "md.distributions = lambda **k: [d for d in everything(**k) if d.metadata['Name'] != 'byoc-examplejson']\n"
    )
    done = run_in(tmp_path, hide + "import byoc_core\nbyoc_core.load('model.byoc')")
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert "RuntimeNotFoundError" in message
    assert "runtime `examplejson` is not installed" in message
    assert "pip install byoc-examplejson" in message


def test_s002_8_a_hand_written_file_and_an_edit(tmp_path: Path) -> None:
    path = tmp_path / "mysubgraph.examplejson"
    a, b, c, d = inputs = arrays(4, 10, 10)
    out = np.empty((10, 10), "float32")
    edited = GUIDE_TEXT.replace("  sub ", "  add ")
    for text, expected in ((GUIDE_TEXT, (a + b - c) * d), (edited, (a + b + c) * d)):
        path.write_text(text)
        module = byoc_core.load_module(path, "examplejson")
        assert module.type_key == "examplejson"
        module.get_function("subgraph_0")(*inputs, out)
        np.testing.assert_array_equal(out, expected)
    path.write_text("f\n  input 0 2\n  pow 1 inputs: 0 0 shape: 2\n")
    with pytest.raises(ArtifactError) as caught:
        byoc_core.load_module(path)
    assert str(caught.value) == f"file `{path}`, line 3: unknown op `pow`; the ops are add, sub, mul"


def test_s002_9_two_subgraphs_of_one_build() -> None:
    text = """
@R.ir_module
class M:
    @R.function
    def f0(x: R.Tensor((2,), "float32")):
        R.func_attr({"Codegen": "examplejson", "global_symbol": "f0"})
        y = R.add(x, x)
        return y

    @R.function
    def f1(x: R.Tensor((3, 1), "float32")):
        R.func_attr({"Codegen": "examplejson", "global_symbol": "f1"})
        y = R.multiply(x, x)
        return y

    @R.function
    def main(a: R.Tensor((2,), "float32"), b: R.Tensor((3, 1), "float32")):
        p = f0(a)
        q = f1(b)
        return p, q
"""
    executable = byoc_core.build(R.parse(text), [])
    (module,) = executable.modules
    assert module.function_names == ("f0", "f1")
    machine = byoc_core.VirtualMachine(executable)
    failures: list[object] = []

    def work(value: float) -> None:
        for _ in range(50):
            p, q = machine["main"](np.full(2, value, "float32"), np.full((3, 1), value, "float32"))
            if set(p) != {2 * value} or set(q.ravel()) != {value * value}:
                failures.append((value, p, q))

    threads = [threading.Thread(target=work, args=(value,)) for value in (2.0, 5.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
