"""The choice of ops: composites, refusals with reasons, a second backend, a machine without a library."""

from __future__ import annotations

from collections import Counter

import byoc_core
import numpy as np
import pytest
from byoc_cblas import backend
from byoc_cblas.layer import read_layer
from byoc_cblas.options import CblasOptions
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.ir import COMPOSITE
from byoc_core.partitioning import FuseOpsByPattern, RunCodegen
from byoc_core.runtime.csource import CSourceModule

from plugins.cblas.tests.judged_layers import build_layer, module_text, numbers, run_layer

DENSE = "p = R.nn.dense(x, w)"
OPERANDS = {"x": ("n", 4), "w": (3, 4), "b": (3,)}


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ([DENSE, "s = R.nn.bias_add(p, b)", "r = R.nn.relu(s)"], "cblas.dense_bias_relu"),
        ([DENSE, "s = R.add(b, p)", "r = R.nn.relu(s)"], "cblas.dense_bias_relu"),
        ([DENSE, "s = R.nn.bias_add(p, b)"], "cblas.dense_bias"),
        ([DENSE, "r = R.nn.relu(p)"], "cblas.dense_relu"),
    ],
)
def test_composites(lines: list[str], name: str) -> None:
    module = FuseOpsByPattern(backend.byoc_patterns())(byoc_core.parse(module_text(OPERANDS, "float32", lines)))
    (composite,) = module["main"].bindings
    assert composite.op is COMPOSITE
    assert composite.attrs["name"] == name


@pytest.mark.parametrize(
    ("operands", "dtype", "line", "reason"),
    [
        (
            {"x": (2, 3), "w": (4, 3)},
            "float16",
            DENSE,
            "dtype: `nn.dense`: a BLAS computes float32 and float64, got float16",
        ),
        ({"x": (2, 3)}, "float32", "p = R.tanh(x)", "op: `tanh` is no product of matrices"),
        (
            {"x": ("n", "k"), "w": (4, 3)},
            "float32",
            DENSE,
            "size: `nn.dense`: unknown whether the sizes k and 3 are equal",
        ),
        (
            {"x": ("a", 2, 3), "y": ("b", 3, 4)},
            "float32",
            "p = R.matmul(x, y)",
            "broadcasting: `matmul`: unknown whether axes of sizes a and b are equal",
        ),
        (
            {"x": (2, 3, 8, 8), "w": ("o", 3, 3, 3)},
            "float32",
            "p = R.nn.conv2d(x, w)",
            "size: `nn.conv2d`: filters of symbolic size are not supported",
        ),
        (
            {"x": (2**31, 0), "w": (4, 0)},
            "float32",
            DENSE,
            "size: `nn.dense`: the size 2147483648 has more than 31 bits",
        ),
        (
            {"x": (2**16, 2**15, 0), "w": (4, 0)},
            "float32",
            DENSE,
            "size: `nn.dense`: the size 2147483648 has more than 31 bits",
        ),
        (
            {"x": (1, 0, 2**16, 2**15), "w": (0, 0, 1, 1)},
            "float64",
            "p = R.nn.conv2d(x, w)",
            "size: `nn.conv2d`: the size 2147483648 has more than 31 bits",
        ),
    ],
)
def test_refusals(operands: dict[str, tuple[object, ...]], dtype: str, line: str, reason: str) -> None:
    module = byoc_core.parse(module_text(operands, dtype, [line]))
    answer = backend.byoc_supports(module["main"].bindings[0], CompileContext("cblas"))
    assert isinstance(answer, Rejection)
    assert f"{answer.code}: {answer.text}" == reason


@pytest.mark.parametrize(
    ("operands", "lines", "reason"),
    [
        (
            {"x": (3, 4), "w": (3, 4), "b": (3,)},
            [DENSE, "s = R.nn.bias_add(p, b, axis=0)"],
            "`nn.bias_add`: the operand is no value for each index of axis 1",
        ),
        (
            OPERANDS | {"b": (1,)},
            [DENSE, "s = R.add(p, b)"],
            "`add`: the operand is no value for each index of axis 1",
        ),
        (
            OPERANDS | {"b": (1, 1, 3)},
            [DENSE, "s = R.add(p, b)"],
            "`add`: the operand is no value for each index of axis 1",
        ),
        (
            {"x": (3, 4), "y": (4,), "b": (3,)},
            ["p = R.matmul(x, y)", "s = R.add(p, b)"],
            "`matmul`: the result has no columns for a bias",
        ),
        (
            {"x": (2, 3, 6, 6), "w": (4, 3, 3, 3), "b": (4,)},
            ["p = R.nn.conv2d(x, w)", "s = R.add(p, b)"],
            "`add`: the operand is no value for each index of axis 1",
        ),
    ],
)
def test_additions_of_other_values_are_left_to_others(
    operands: dict[str, tuple[object, ...]], lines: list[str], reason: str
) -> None:
    module = byoc_core.parse(module_text(operands, "float32", lines))
    executable = byoc_core.build(module, backends=[backend])
    assert reason in str(executable.report_data)
    assert 0 < executable.report_data["offloaded_share"] < 1  # the product alone
    host = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"]
    arrays = [
        numbers([5 if size == "n" else int(str(size)) for size in shape], "float32", k)
        for k, shape in enumerate(operands.values())
    ]
    arrays = arrays[: len(module["main"].params)]
    np.testing.assert_allclose(run_layer(executable, 1, *arrays), host(*arrays), rtol=1e-4, atol=1e-5)


def test_a_product_added_to_itself_has_no_bias() -> None:
    module = byoc_core.parse(module_text({"x": (2, 4), "w": (3, 4)}, "float32", [DENSE, "s = R.add(p, p)"]))
    answer = read_layer(module["main"].bindings)
    assert answer == Rejection("bias", "the product is added to itself")
    assert 0 < byoc_core.build(module, backends=[backend]).report_data["offloaded_share"] < 1


@pytest.mark.parametrize(
    ("lines", "num_steps"),
    [
        ([DENSE, "s = R.nn.bias_add(p, b)", "r = R.nn.relu(s)"], 1),
        ([DENSE, "s = R.nn.bias_add(p, b)", "r = R.nn.dense(s, v)", "t = R.nn.relu(r)"], 2),
    ],
)
def test_ops_of_a_function_annotated_by_hand_are_joined(lines: list[str], num_steps: int) -> None:
    operands = {"x": (6, 4), "w": (3, 4), "b": (3,), "v": (5, 3)}
    text = module_text(operands, "float32", lines)
    plain = byoc_core.parse(text)
    head, _, body = text.partition(":\n    p")
    annotated = f'{head}:\n    R.func_attr({{"Codegen": "cblas", "global_symbol": "layers"}})\n    p{body}'
    module = RunCodegen(backends=[backend])(byoc_core.parse(annotated))
    (compiled,) = module.attrs["external_mods"]
    assert len([name for name in compiled.function_names if "step" in name]) == num_steps
    arrays = [numbers(shape, "float32", k) for k, shape in enumerate(operands.values())]
    expected = run_layer(byoc_core.build(plain, []), 1, *arrays)
    out = np.empty_like(expected)
    compiled.get_function("layers")(*arrays, out)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_another_op_behind_a_product_is_no_part_of_a_layer() -> None:
    module = byoc_core.parse(module_text({"x": (2, 4), "w": (3, 4)}, "float32", [DENSE, "s = R.tanh(p)"]))
    assert read_layer(module["main"].bindings) == Rejection("structural", "`tanh` cannot follow in the same call")


def test_two_backends_share_a_function_and_an_arena() -> None:
    lines = [DENSE, "s = R.nn.bias_add(p, b)", "t = R.tanh(s)", "q = R.nn.dense(t, v)", "r = R.nn.relu(q)"]
    text = module_text(OPERANDS | {"v": (5, 3)}, "float32", lines)
    module = byoc_core.parse(text)
    executable = byoc_core.build(module, backends=[backend, "ccompiler"], fallback="error")
    assert Counter(op["outcome"] for op in executable.report_data["ops"]) == {"cblas": 4, "ccompiler": 1}
    arrays = [numbers(shape, "float32", k) for k, shape in enumerate(((6, 4), (3, 4), (3,), (5, 3)))]
    host = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"](*arrays)
    np.testing.assert_allclose(run_layer(executable, 1, *arrays), host, rtol=1e-4, atol=1e-5)


def test_without_a_library_the_host_computes() -> None:
    module = byoc_core.parse(module_text(OPERANDS, "float32", [DENSE, "s = R.nn.bias_add(p, b)"]))
    options = {"cblas": {"library": "/no/such/libblas.so"}}
    context = CompileContext("cblas", CblasOptions.model_validate(options["cblas"]))
    status = backend.byoc_compile_status(context)
    assert not status.ok
    assert status.reason == "the library `/no/such/libblas.so` does not exist"
    with pytest.warns(
        UserWarning, match="backend `cblas` cannot compile here: the library `/no/such/libblas.so` does not"
    ):
        executable = byoc_core.build(module, backends=[backend], options=options)
    assert executable.report_data["offloaded_share"] == 0
    assert "the library `/no/such/libblas.so` does not exist" in str(executable.report_data)
    arrays = [numbers(shape, "float32", k) for k, shape in enumerate(((6, 4), (3, 4), (3,)))]
    assert run_layer(executable, 1, *arrays).shape == (6, 3)


def test_an_mlp_is_a_single_region_without_memory_of_its_own() -> None:
    lines = [DENSE, "s = R.nn.bias_add(p, b)", "t = R.nn.relu(s)", "q = R.nn.dense(t, v)"]
    executable = build_layer(module_text(OPERANDS | {"v": (5, 3)}, "float32", lines))
    (module,) = executable.modules
    assert [name.rpartition("_")[2] for name in module.function_names] == ["step0", "step1", "0"]
    assert "malloc(" not in executable.get_source().partition("byoc_cblas_matmul_float(")[2].partition("wrapper")[0]


@pytest.mark.parametrize("opt_level", [None, 1])
def test_the_c_around_calls_has_the_level_of_the_option(opt_level: int | None) -> None:
    module = byoc_core.parse(module_text({"x": (2, 4), "w": (3, 4)}, "float32", [DENSE]))
    options = {} if opt_level is None else {"cblas": {"opt_level": opt_level}}
    (compiled,) = byoc_core.build(module, backends=[backend], options=options, fallback="error").modules
    assert isinstance(compiled, CSourceModule)
    assert compiled.options.opt_level == (3 if opt_level is None else opt_level)
