"""The hooks: declarations, claims, refusals with reasons; and all stages of compilation."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import byoc_ccompiler.backend as ccompiler
import byoc_core
import numpy as np
import pytest
from byoc_ccompiler.options import CCompilerOptions
from byoc_core.backend.hooks import CompileContext, Rejection, Support
from byoc_core.errors import ByocError
from byoc_core.ir import FunctionBuilder, IRModule, Type, tensor
from byoc_core.lint import lint_backend
from byoc_core.native.toolchain import find_toolchain
from byoc_core.ops import default_ops

from plugins.ccompiler.tests.bench import Bench

pytestmark = pytest.mark.interpreter

CONTEXT = CompileContext("ccompiler", CCompilerOptions.model_validate({}))


def _supports(op: str, *types: Type, context: CompileContext = CONTEXT, **attrs: object) -> Support | Rejection:
    builder: Any = FunctionBuilder("f", ops=default_ops())
    binding = builder.bind(op, [builder.param(f"x{k}", type_) for k, type_ in enumerate(types)], attrs)
    return ccompiler.byoc_supports(binding, context)


def test_what_it_says_of_itself() -> None:
    info = ccompiler.byoc_backend_info()
    assert (info.name, info.dynamic_shapes, info.native, info.deterministic) == ("ccompiler", True, True, True)
    assert ccompiler.byoc_compile_status().ok
    assert ccompiler.byoc_compile_status().reason


def test_no_compiler_is_a_status_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CC", "no-such-compiler")
    status = ccompiler.byoc_compile_status()
    assert not status.ok
    assert status.reason == "$BYOC_CC: does not name an executable program: 'no-such-compiler'"
    assert "apt-get install gcc" in status.remedy


IMAGE = tensor((1, 4, 8, 8))
FILTER = tensor((6, 4, 3, 3))
REFUSED = [
    (
        ("nn.attention", tensor((1, "h", 5, 4)), *[tensor((1, 2, 5, 4))] * 2),
        {},
        "dynamic-shape",
        "nn.attention is compiled for a known number of heads only",
    ),
    (("add", *[tensor((3,), "int4")] * 2), {}, "dtype", "C has no type for int4"),
    (("add", *[tensor(None)] * 2), {}, "rank", "add has an operand or result of unknown rank"),
    (
        ("nn.conv2d", IMAGE, tensor(("o", 4, 3, 3))),
        {},
        "dynamic-shape",
        "nn.conv2d is compiled for a known number of channels and a filter of known shape only",
    ),
    (
        ("nn.conv1d_transpose", tensor((1, "c", 8)), tensor((4, 6, 3))),
        {},
        "dynamic-shape",
        "nn.conv1d_transpose is compiled for a known number of channels and a filter of known shape only",
    ),
    (
        ("nn.conv3d", tensor((1, 4, 8, 8, 8)), tensor((0, 4, 3, 3, 3))),
        {},
        "shape",
        "nn.conv3d has an empty filter",
    ),
    *(
        ((op, *types), attrs, "dynamic-shape", f"the sizes of {op} are not known to agree before a call")
        for op, types, attrs in (
            ("reshape", [tensor(("n", "m"))], {"shape": ("n", "n")}),
            ("matmul", [tensor((2, "n")), tensor(("m", 3))], {}),
            ("nn.dense", [tensor((2, "n")), tensor((3, 4))], {}),
            ("nn.bias_add", [tensor((2, 4)), tensor(("k",))], {}),
            ("nn.batch_norm", [tensor((2, 4)), *[tensor((4,))] * 3, tensor(("k",))], {"axis": 1}),
        )
    ),
]
SIZES_THAT_AGREE = [
    (("reshape", tensor(("n", "m"))), {"shape": ("m*n",)}),
    (("split", tensor(("past + seq", 3))), {"sections": ("past", "seq")}),
    (("concat", tensor((1, "2*n")), tensor(("m", "n + n"))), {"axis": 0}),
    # These may or may not agree, which each call checks.
    (("split", tensor(("n", 3))), {"sections": ("n//2", "n//2")}),
    (("concat", tensor((1, "n")), tensor((1, "m"))), {"axis": 0}),
    (("matmul", tensor((2, "n", "k")), tensor(("m", "k", 3))), {}),
    (("nn.dense", tensor((2, "n")), tensor((3, "n"))), {}),
    (("nn.bias_add", tensor((2, "k")), tensor(("k",))), {}),
]


@pytest.mark.parametrize(("binding", "attrs"), SIZES_THAT_AGREE, ids=lambda value: str(value)[:24])
def test_movements_between_equal_sizes_are_compiled(binding: Sequence[Any], attrs: dict[str, Any]) -> None:
    assert _supports(*binding, **attrs) == Support()


def test_the_report_says_that_sizes_may_not_agree() -> None:
    builder: Any = FunctionBuilder("main", ops=default_ops())
    x, bias = builder.param("x", tensor((2, 4))), builder.param("bias", tensor(("k",)))
    module = IRModule({"main": builder.finish(builder.emit("nn.bias_add", x, bias))})
    executable = byoc_core.build(module, backends=["ccompiler"])
    assert "the sizes of nn.bias_add are not known to agree before a call" in executable.report()


@pytest.mark.parametrize(("binding", "attrs", "code", "text"), REFUSED, ids=lambda value: str(value)[:24])
def test_refusals_say_why(binding: Sequence[Any], attrs: dict[str, Any], code: str, text: str) -> None:
    assert _supports(*binding, **attrs) == Rejection(code, text)


def test_tutorial_mode_takes_elementwise_ops_only() -> None:
    context = CompileContext("ccompiler", CCompilerOptions.model_validate({"tutorial": True}))
    assert _supports("add", tensor((3,)), tensor((3,)), context=context) == Support()
    assert _supports("nn.conv2d", IMAGE, FILTER, context=context) == Rejection(
        "tutorial", "the tutorial form compiles elementwise ops only, not nn.conv2d; switch the option `tutorial` off"
    )
    halves = [tensor((3,), "float16")] * 2
    assert _supports("add", *halves) == Support()
    assert _supports("add", *halves, context=context) == Rejection("dtype", "C has no type for float16")


def test_a_function_with_a_refused_op_is_handed_back() -> None:
    builder: Any = FunctionBuilder("f", ops=default_ops())
    x = builder.param("x", tensor((3,), "int4"))
    function = builder.finish(builder.emit("add", x, x))
    result = ccompiler.byoc_codegen([function], CONTEXT)
    assert result.module is None
    assert dict(result.rejections) == {"f": Rejection("dtype", "C has no type for int4")}


def test_a_function_whose_sizes_no_tensor_shows_is_handed_back() -> None:
    """The op alone may be in a region with known sizes."""
    builder: Any = FunctionBuilder("f", ops=default_ops())
    x = builder.param("x", tensor(("n*m",)))
    function = builder.finish(builder.emit("negative", x))
    assert ccompiler.byoc_supports(function.bindings[0], CONTEXT) == Support()
    reason = "no shape of a parameter or result of the region determines `m`, `n`"
    assert dict(ccompiler.byoc_codegen([function], CONTEXT).rejections) == {"f": Rejection("dynamic-shape", reason)}


def test_rearranged_weights_are_handed_over_with_the_module() -> None:
    builder: Any = FunctionBuilder("f", ops=default_ops())
    weights = np.arange(60, dtype="float32").reshape(3, 20)
    x = builder.param("x", tensor(("n", 20)))
    function = builder.finish(builder.emit("nn.dense", x, weights))
    context = CompileContext("ccompiler", CONTEXT.options, builder.constants)
    result = ccompiler.byoc_codegen([function], context)
    assert result.module is not None
    assert dict(result.constants) == dict(result.module.constants)
    (panels,) = result.constants.values()
    assert sorted(panels[panels != 0]) == sorted(weights[weights != 0])
    assert not set(result.constants) & set(builder.constants)


def test_equal_functions_give_equal_modules() -> None:
    payloads = []
    for _ in range(2):
        bench = Bench()
        bench.op("nn.conv2d", [IMAGE, FILTER], padding=(1, 1))
        payloads.append((bench.module.get_source(), bench.module.build().data))
    assert payloads[0] == payloads[1]


@pytest.mark.parametrize("options", [{"opt_level": 9}, {"unknown": 1}, {"march": "a; rm"}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ByocError, match="ccompiler"):
        byoc_core.build(_network(), backends=["ccompiler"], options={"ccompiler": options})


def _network() -> IRModule:
    rng = np.random.default_rng(0)

    def constant(*shape: int) -> Any:
        return builder.const((rng.standard_normal(shape) * 0.3).astype("float32"))

    builder: Any = FunctionBuilder("main", ops=default_ops())
    x = builder.param("x", tensor(("n", 3, 12, 12)))
    value = builder.emit("nn.conv2d", x, constant(8, 3, 3, 3), padding=(1, 1))
    value = builder.emit("nn.relu", builder.emit("nn.bias_add", value, constant(8), axis=1))
    value = builder.emit("nn.max_pool2d", value, pool_size=(2, 2))
    value = builder.emit("mean", value, axis=(2, 3))
    value = builder.emit(
        "nn.relu", builder.emit("nn.bias_add", builder.emit("nn.dense", value, constant(9, 8)), constant(9))
    )
    value = builder.emit("matmul", value, constant(9, 5))
    return IRModule({"main": builder.finish(value)}, builder.constants)


def test_the_whole_road(tmp_path: Path) -> None:
    module = _network()
    executable = byoc_core.build(module, backends=["ccompiler"], fallback="error")
    assert [native.type_key for native in executable.modules] == ["csource"], "something was offloaded"
    assert "100.0% of" in executable.report()
    host = byoc_core.VirtualMachine(byoc_core.build(module, []))
    machine = byoc_core.VirtualMachine(executable)
    results: list[Any] = []
    for n in (1, 2, 7):
        x = np.random.default_rng(n).standard_normal((n, 3, 12, 12)).astype("float32")
        results.append(machine["main"](x))
        np.testing.assert_allclose(results[-1], host["main"](x), atol=2e-6)
    # Depends on its input, or agreement would prove nothing.
    assert np.abs(results[1][0] - results[1][1]).max() > 1e-2 * results[1].std()

    executable.save(tmp_path / "model.byoc")
    np.save(tmp_path / "x.npy", x)
    script = (
        "import sys, numpy, byoc_core\n"
        "machine = byoc_core.VirtualMachine(byoc_core.load(sys.argv[1], allow_native=True))\n"
        "numpy.save(sys.argv[3], machine['main'](numpy.load(sys.argv[2])))\n"
        "assert not [name for name in sys.modules if name.startswith(('byoc_ccompiler', 'byoc_core.ir'))]\n"
    )
    files = [str(tmp_path / name) for name in ("model.byoc", "x.npy", "y.npy")]
    environment = {**os.environ, "BYOC_CC": "no-such-compiler", "BYOC_DISABLE_BACKENDS": "ccompiler"}
    finished = subprocess.run(
        [sys.executable, "-c", script, *files], capture_output=True, text=True, env=environment, check=False
    )
    assert finished.returncode == 0, finished.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), results[-1])

    executable.export_library(tmp_path / "model.so")
    out = np.zeros_like(results[-1])
    byoc_core.load_module(tmp_path / "model.so").get_function("main")(x, out)
    np.testing.assert_array_equal(out, results[-1])


def test_patterns_match_what_a_kernel_computes() -> None:
    from byoc_core.partitioning import FuseOpsByPattern

    module = FuseOpsByPattern(ccompiler.byoc_patterns())(_network())
    names = [
        str(binding.attrs["name"])
        for function in module.functions.values()
        for binding in function.walk()
        if binding.op.name == "composite"
    ]
    assert sorted(names) == ["ccompiler.conv2d_bias_relu", "ccompiler.dense_bias_relu"]


def test_the_compiler_is_the_core_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CC", shlex.join(find_toolchain().command))
    assert ccompiler.byoc_compile_status().ok


def test_it_runs_beside_the_host_where_it_refuses() -> None:
    builder: Any = FunctionBuilder("main", ops=default_ops())
    x, index = builder.param("x", tensor((6, 4))), builder.param("index", tensor((3,), "int64"))
    rows = builder.emit("take", builder.emit("nn.relu", x), index, axis=0)
    module = IRModule({"main": builder.finish(builder.emit("add", rows, rows))})
    executable = byoc_core.build(module, backends=["ccompiler"])
    assert "csource" in [native.type_key for native in executable.modules], "something was offloaded"
    array = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")
    result = byoc_core.VirtualMachine(executable)["main"](array, np.array([5, 0, 2]))
    np.testing.assert_array_equal(result, 2 * np.maximum(array, 0)[[5, 0, 2]])


def test_the_lint_finds_nothing_but_new_ops_of_the_core() -> None:
    assert [str(finding) for finding in lint_backend("ccompiler") if finding.code != "new-op"] == []
