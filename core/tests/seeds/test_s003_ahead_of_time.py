"""S003: composites become extern calls over planned memory, exported as C and run without Python."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.authoring.csource import CSourceCodegen, FunctionScope
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, LoweringBuilder, hookimpl
from byoc_core.errors import ByocError
from byoc_core.ir import Binding, Function, TensorType
from byoc_core.native.toolchain import Toolchain
from byoc_core.pattern import CompositePattern, is_op, wildcard

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc")

TOY = """\
#include <stdint.h>
static void dense(const float *x, const float *w, const float *b, float *out, int64_t n, int64_t k, int64_t m,
                  int relu) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
      float sum = b[j];
      for (int64_t l = 0; l < k; ++l) sum += x[i * k + l] * w[j * k + l];
      out[i * m + j] = relu && sum < 0 ? 0 : sum;
    }
}
void toy_dense_bias(const float *x, const float *w, const float *b, float *out, int64_t n, int64_t k, int64_t m) {
  dense(x, w, b, out, n, k, m, 0);
}
void toy_dense_bias_relu(const float *x, const float *w, const float *b, float *out, int64_t n, int64_t k, int64_t m) {
  dense(x, w, b, out, n, k, m, 1);
}
"""


class Patterns:
    """The backend without a way to compile."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo(name="toy")

    @hookimpl
    def byoc_patterns(self) -> list[CompositePattern]:
        biased = is_op("nn.bias_add")(is_op("nn.dense")(wildcard(), wildcard()), wildcard())
        return [
            CompositePattern("toy.dense_bias_relu", is_op("nn.relu")(biased)),
            CompositePattern("toy.dense_bias", biased),
        ]


class Toy(Patterns):
    """A library of two functions behind the lowering hook."""

    def __init__(self, library: Path) -> None:
        self.library = library

    @hookimpl
    def byoc_lower(self, function: Function, builder: LoweringBuilder) -> None:
        builder.link(objects=[self.library])
        for call in function.bindings:
            x, weight, bias = builder.operands(call)
            out = builder.buffer(call.result).written()
            symbol = str(call.attrs["name"]).replace(".", "_")
            builder.call_extern(symbol, x, weight, bias, out, *x.shape, weight.shape[0])


class FinishedModule(Patterns):
    """The other level: the backend returns a finished module, here of generated C."""

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        return CodegenResult(ToyCodegen().generate(functions, context.constants))


class ToyCodegen(CSourceCodegen):
    """A printer of calls of the library, with the library inside the C file."""

    def preamble(self, text: str) -> str:
        return TOY.replace("void toy", "static void toy")

    def visit_composite(self, scope: FunctionScope, binding: Binding, inputs: Sequence[str]) -> None:
        dense, bias_add, *_ = binding.regions[0].bindings
        pointers = map(scope.value, (*dense.operands, bias_add.operands[1]))
        shapes = [operand.type.shape or () for operand in dense.operands if isinstance(operand.type, TensorType)]
        sizes = map(str, (*shapes[0], shapes[1][0]))
        scope.call(str(binding.attrs["name"]).replace(".", "_"), *pointers, scope.buffer(binding.result), *sizes)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.c").write_text(TOY)
    subprocess.run(["cc", "-O2", "-fPIC", "-c", "toy.c", "-o", "toy.o"], cwd=folder, check=True)
    return Toy(folder / "toy.o")


def layers(toy: Patterns, widths: tuple[int, ...], rows: int = 64) -> Executable:
    """Return layers of these widths, all but the last with ReLU, with constant weights."""
    generator = np.random.default_rng(0)
    lines, weights = [], {}
    for k, (inputs, outputs) in enumerate(pairwise(widths)):
        weights[f"w{k}"] = generator.standard_normal((outputs, inputs)).astype(np.float32) / np.float32(inputs**0.5)
        weights[f"b{k}"] = generator.standard_normal(outputs).astype(np.float32)
        is_last = k == len(widths) - 2
        lines.append(f"        d{k} = R.nn.dense(x{k}, w{k})")
        lines.append(f"        {f'x{k + 1}' if is_last else f'a{k}'} = R.nn.bias_add(d{k}, b{k})")
        lines += [] if is_last else [f"        x{k + 1} = R.nn.relu(a{k})"]
    params = ", ".join(f'{name}: R.Tensor({array.shape}, "float32")' for name, array in weights.items())
    head = f'    def main(x0: R.Tensor(({rows}, {widths[0]}), "float32"), {params}):'
    text = "\n".join(
        ["@R.ir_module", "class Module:", "    @R.function", head, *lines, f"        return x{len(widths) - 1}"]
    )
    module = byoc_core.transform.BindParams(weights)(byoc_core.parse(text))
    executable = byoc_core.build(module, backends=[toy], strict=True)
    executable.require_offload(1.0)
    return executable


def check(folder: Path, flags: str = "") -> str:
    """Build and run an export with all warnings as errors; return the output."""
    warnings = "-std=c11 -O2 -Wall -Wextra -Werror -pedantic -ffp-contract=off"
    command = ["make", "-s", "check", "CC=gcc", f"CFLAGS={warnings} {flags}"]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "right" in finished.stdout
    return finished.stdout


def check_two_layers(executable: Executable) -> None:
    """Compare the layers of widths 800, 500, 10 with float64, within the bound of the two sums of float32."""
    x = np.random.default_rng(1).standard_normal((64, 800)).astype(np.float32)
    got = byoc_core.VirtualMachine(executable)["main"](x)
    assert isinstance(got, np.ndarray)
    generator = np.random.default_rng(0)
    value, magnitude = x.astype(np.float64), np.abs(x.astype(np.float64))
    for inputs, outputs, is_last in ((800, 500, False), (500, 10, True)):
        weight = (generator.standard_normal((outputs, inputs)).astype(np.float32) / np.float32(inputs**0.5)).T
        bias = generator.standard_normal(outputs).astype(np.float32)
        value = value @ weight.astype(np.float64) + bias
        magnitude = magnitude @ np.abs(weight).astype(np.float64) + np.abs(bias)
        value = value if is_last else np.maximum(value, 0)
    roundings = (801 + 501) * np.finfo(np.float32).eps / 2
    assert np.all(np.abs(got - value) <= roundings / (1 - roundings) * magnitude)
    assert got.std() > 0.1


def test_s003_1_one_region_with_two_composites(toy: Toy) -> None:
    executable = layers(toy, (800, 500, 10))
    assert executable.program.externs == ("toy_main_0_step0", "toy_main_0_step1")
    check_two_layers(executable)


def test_s003_2_calls_stand_in_order_and_never_nest(toy: Toy, tmp_path: Path) -> None:
    layers(toy, (800, 500, 10)).export_c(tmp_path)
    lines = "".join(path.read_text() for path in sorted(tmp_path.glob("model_module*.c"))).splitlines()
    calls = [line.strip() for line in lines if line.strip().startswith("toy_dense_bias")]
    assert [call.partition("(")[0] for call in calls] == ["toy_dense_bias_relu", "toy_dense_bias"]
    assert all(call.count("toy_") == 1 and ", out, " in call for call in calls)
    check(tmp_path)


def test_s003_3_the_workspace_is_the_callers(toy: Toy, tmp_path: Path) -> None:
    layers(toy, (800, 500, 10)).export_c(tmp_path)
    header = (tmp_path / "model.h").read_text()
    assert "#define MODEL_WORKSPACE_SIZE 128000\n" in header  # 64 * 500 * 4, a multiple of the alignment
    assert "#define MODEL_WORKSPACE_ALIGNMENT 64\n" in header
    assert "int64_t model_workspace_size(void);" in header
    source = "".join(path.read_text() for path in sorted(tmp_path.glob("model*.c")))
    assert "malloc(" not in source
    check(tmp_path, "-fsanitize=address,undefined -fno-sanitize-recover=all")
    symbols = subprocess.run(["nm", "libmodel.a"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    undefined = {line.split()[-1] for line in symbols.splitlines() if " U " in line}
    assert not undefined & {"malloc", "calloc", "realloc", "free", "aligned_alloc"}


@pytest.mark.parametrize("num_hidden", [2, 3, 4])
def test_s003_3_chains_need_two_buffers(toy: Toy, tmp_path: Path, num_hidden: int) -> None:
    layers(toy, (32, *([500] * num_hidden), 10)).export_c(tmp_path)
    assert f"#define MODEL_WORKSPACE_SIZE {2 * 128000}\n" in (tmp_path / "model.h").read_text()
    check(tmp_path)


def test_s003_5_a_missing_symbol_is_named_by_the_build(tmp_path: Path) -> None:
    (tmp_path / "empty.c").write_text("int toy_unused;\n")
    subprocess.run(["cc", "-fPIC", "-c", "empty.c", "-o", "empty.o"], cwd=tmp_path, check=True)
    with pytest.raises(ByocError, match="toy_dense_bias"):
        layers(Toy(tmp_path / "empty.o"), (8, 4, 2))


def test_s003_5_bound_constants_are_read_only_and_nothing_is_writable(toy: Toy, tmp_path: Path) -> None:
    layers(toy, (800, 500, 10)).export_c(tmp_path)
    check(tmp_path)
    subprocess.run(["make", "-s", "clean"], cwd=tmp_path, check=True)
    # Without relocation at load time, tables of addresses are read-only data too.
    flags = "CFLAGS=-std=c11 -O2 -fno-pie"
    subprocess.run(["make", "-s", "libmodel.a", "CC=gcc", flags], cwd=tmp_path, check=True)
    symbols = subprocess.run(["nm", "libmodel.a"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    kinds = {line.split()[-1]: line.split()[-2] for line in symbols.splitlines() if len(line.split()) == 3}
    assert kinds["model_constant_data"] in "Rr"
    assert not [name for name, kind in kinds.items() if kind in "BbDd"]


def test_s003_6_the_same_region_may_become_a_finished_module() -> None:
    executable = layers(FinishedModule(), (800, 500, 10))
    assert executable.program.externs == ("toy_main_0",)
    assert executable.modules[0].call_steps("toy_main_0") is None
    check_two_layers(executable)
