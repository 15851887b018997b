"""Scratch buffers of lowered functions: buffers of a single statement are a workspace of the step."""

from __future__ import annotations

import subprocess
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.backend.hooks import BackendInfo, LoweringBuilder, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function, tensor
from byoc_core.native.toolchain import Toolchain

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

SOURCE = """
static void twice(const float *x, float *table, float *out, int64_t n) {
  table[3] = 1.0f; /* the other elements stay unwritten */
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + table[3] * x[i];
}
"""
MODEL = """
def main(x: R.Tensor(("n", 3))):
    a = R.tanh(x)
    b = R.tanh(a)
    return b
"""


class ScratchBackend:
    """Computes ``2 x`` for ``tanh``, with a table in scratch memory."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo("scratch", dynamic_shapes=True, native=True)

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        return Support() if binding.op.name == "tanh" else Rejection("op", "is not `tanh`")

    @hookimpl
    def byoc_lower(self, function: Function, builder: LoweringBuilder) -> None:
        builder.add_source(SOURCE)
        for binding in function.bindings:
            x, out = builder.buffer(binding.operands[0]), builder.buffer(binding.result)
            table = builder.allocate(tensor((x.shape[0] + 4,)), "table")
            builder.call_extern("twice", x, table.written(), out.written(), x.size)


def test_scratch_is_a_workspace_of_the_step_and_no_output() -> None:
    executable = byoc_core.build(byoc_core.parse(MODEL), [ScratchBackend()], fallback="error", strict=True)
    assert executable.report_data["offloaded_share"] == 1.0
    (module,) = executable.modules
    steps = module.call_steps("scratch_main_0")
    assert steps is not None
    assert [buffer.name for buffer in steps.buffers] == ["a"]
    assert [(step.args, step.results) for step in steps.steps] == [((0,), (2,)), ((2,), (1,))]
    for step in steps.steps:
        signature = module.find_signature(step.symbol)
        assert signature is not None
        assert (len(signature.inputs), len(signature.outputs)) == (1, 1)
        assert str(module.call_traits(step.symbol).workspace_nbytes) == "64*((n+3)//16)+64"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = byoc_core.VirtualMachine(executable)["main"](x)
    np.testing.assert_array_equal(np.asarray(result), 4 * x)
    out = np.empty_like(x)
    module.get_function("scratch_main_0")(x, out)
    np.testing.assert_array_equal(out, 4 * x)


def test_the_program_plans_the_scratch_of_both_steps_in_one_place() -> None:
    executable = byoc_core.build(byoc_core.parse(MODEL), [ScratchBackend()], fallback="error", strict=True)
    (function,) = executable.program.functions
    # The intermediate of 12 n bytes, and a single table of 4 n + 16 bytes, both rounded up to 64 bytes.
    assert byoc_core.dims.evaluate(function.arena_nbytes, {"n": 16}) == 192 + 128


def test_exported_c_takes_the_scratch_from_the_workspace(tmp_path: Path) -> None:
    executable = byoc_core.build(byoc_core.parse(MODEL), [ScratchBackend()], fallback="error", strict=True)
    executable.export_c(tmp_path, max_sizes={"n": 16})
    assert f"#define MODEL_WORKSPACE_SIZE {192 + 128}\n" in (tmp_path / "model.h").read_text()
    flags = "CFLAGS=-std=c11 -O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
    done = subprocess.run(["make", "-s", "check", flags], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right" in done.stdout
