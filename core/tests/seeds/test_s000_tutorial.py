"""Scenarios S000: annotate by hand, RunCodegen, run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import CodegenError, PartitionError
from byoc_core.ir import CALL_DPS_PACKED, IRModule, structural_hash, tensor
from byoc_core.partitioning import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.transform import Sequential

from core.tests.conftest import FakeBackend, RunCompiled

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

TEXT = """
@R.ir_module
class InputModule:
    @R.function
    def byoc_func(x: R.Tensor((16, 16), "float32"), y: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        R.func_attr({"Codegen": "BACKEND", "global_symbol": "byoc_func"})
        z1 = R.multiply(x, y)
        z2 = R.add(z1, z1)
        z3 = R.add(z1, z2)
        return z3

    @R.function
    def tvm_func(x: R.Tensor((16, 16), "float32"), w: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        gv0 = R.multiply(x, w)
        gv1 = R.add(x, gv0)
        return gv1

    @R.function
    def main(x: R.Tensor((16, 16), "float32"), y: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        lv0 = byoc_func(x, y)
        lv1 = tvm_func(x, lv0)
        return lv1
"""

MAIN_AFTER = """
    @R.function
    def main(x: R.Tensor((16, 16), "float32"), y: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        lv0 = R.call_dps_packed("byoc_func", (x, y), out_types=[R.Tensor((16, 16), "float32")])
        lv1 = tvm_func(x, lv0)
        return lv1
"""


def parse_for(backend: str) -> IRModule:
    return R.parse(TEXT.replace("BACKEND", backend))


def test_s000_1_annotate_run_codegen_and_run(backend: str) -> None:
    module = parse_for(backend)
    printed, hashed = str(module), structural_hash(module)
    compiled = RunCodegen()(module)

    assert (str(module), structural_hash(module)) == (printed, hashed)
    assert list(compiled.functions) == ["tvm_func", "main"]
    calls = [binding for binding in compiled["main"].bindings if binding.op is CALL_DPS_PACKED]
    assert [(call.attrs["symbol"], call.operands) for call in calls] == [("byoc_func", compiled["main"].params)]
    assert calls[0].result.type == tensor((16, 16), "float32")
    assert len(compiled.attrs["external_mods"]) == 1
    assert MAIN_AFTER in str(compiled)
    assert "def byoc_func" not in str(compiled)
    assert f"# external module {compiled.attrs['external_mods'][0]!r}" in str(compiled)

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 16, 16)).astype(np.float32)
    executable = byoc_core.build(compiled, [])
    assert "byoc_func" in executable.modules[0].function_names  # it was offloaded
    result = byoc_core.VirtualMachine(executable)["main"](x, y)
    exact = x.astype(np.float64) + 3 * x.astype(np.float64) ** 2 * y
    # x + x * (z1 + (z1 + z1)) with z1 = x * y rounds five times: each operation adds half an ULP of its own result.
    bound = 5 * np.finfo(np.float32).eps * (np.abs(x) + 3 * np.abs(x) ** 2 * np.abs(y))
    assert np.all(np.abs(result - exact) <= bound)


def test_s000_1_counts_as_offloaded(backend: str, tmp_path: Path) -> None:
    module = parse_for(backend)
    executable = byoc_core.build(RunCodegen()(module), [])
    at_once = byoc_core.build(module, [])
    for key in ("total_flops", "offloaded_share", "backends"):
        assert executable.report_data[key] == at_once.report_data[key]
    # Three ops of the five are the backend's, which may be the host.
    offloaded = 0.0 if backend == "host" else 0.6
    assert executable.report_data["offloaded_share"] == offloaded
    executable.require_offload(offloaded)
    with pytest.raises(PartitionError, match=rf"got {offloaded * 100:.1f}%, expected at least 61%"):
        executable.require_offload(0.61)

    path = tmp_path / "by_hand.byoc"
    executable.save(path)
    assert byoc_core.load(path, allow_native=True).report_data == executable.report_data
    assert byoc_core.inspect(path).report_data["offloaded_share"] == offloaded


def test_s000_1_in_a_fresh_process(backend: str, tmp_path: Path) -> None:
    script = tmp_path / "tutorial.py"
    script.write_text(
        "import numpy as np, byoc_core\n"
        "from byoc_core import script as R\n"
        f"{TEXT.replace('BACKEND', backend)}\n"
        "executable = byoc_core.build(byoc_core.partitioning.RunCodegen()(InputModule))\n"
        "x = np.full((16, 16), 2.0, np.float32)\n"
        "y = np.full((16, 16), 0.5, np.float32)\n"
        "assert (byoc_core.VirtualMachine(executable)['main'](x, y) == 8.0).all()\n"
        "print('equal')\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("equal\n", 0), done.stderr


def test_s000_2_an_op_the_backend_cannot_take_is_an_error_at_run_codegen(fake_backend: type[FakeBackend]) -> None:
    module = R.parse(TEXT.replace("BACKEND", "fake").replace("z2 = R.add(z1, z1)", "z2 = R.exp(z1)"))
    with pytest.raises(CodegenError) as caught:
        RunCodegen(backends=[fake_backend("fake", ["add", "multiply"])])(module)
    assert str(caught.value) == (
        "op `exp` in function `byoc_func`: backend `fake` refuses the compilation (op): no `exp` here\n"
        '  def byoc_func(x: R.Tensor((16, 16), "float32"), y: R.Tensor((16, 16), "float32")) '
        '-> R.Tensor((16, 16), "float32"):\n'
        '      R.func_attr({"Codegen": "fake", "global_symbol": "byoc_func"})\n'
        "      z1 = R.multiply(x, y)\n"
        ">     z2 = R.exp(z1)\n"
        "      z3 = R.add(z1, z2)\n"
        "      return z3"
    )


def test_s000_4_the_sequence_and_annotate_codegen_give_run_codegen_the_same_interface(
    fake_backend: type[FakeBackend], run_compiled: RunCompiled
) -> None:
    module = R.parse("""
@R.function
def main(x: R.Tensor((4, 4)), y: R.Tensor((4, 4))):
    a = R.multiply(x, y)
    b = R.nn.relu(a)
    c = R.exp(b)
    return c
""")
    pattern = CompositePattern("fake.multiply_relu", is_op("nn.relu")(is_op("multiply")(wildcard(), wildcard())))
    run_codegen = RunCodegen(backends=[fake_backend("fake", ["multiply", "nn.relu"])])
    merged = Sequential([FuseOpsByPattern([pattern]), MergeCompositeFunctions(), run_codegen])(module)
    annotated = Sequential([FuseOpsByPattern([pattern], annotate_codegen=True), run_codegen])(module)
    assert merged == annotated
    assert [binding.op.name for binding in merged["main"].bindings] == ["call_dps_packed", "exp"]
    inputs = np.random.default_rng(1).standard_normal((2, 4, 4)).astype(np.float32)
    for compiled in (merged, annotated):
        (result,) = run_compiled(compiled, "main", list(inputs))
        np.testing.assert_array_equal(result, np.exp(np.maximum(inputs[0] * inputs[1], 0)))
