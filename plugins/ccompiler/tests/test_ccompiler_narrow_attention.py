"""Attention of narrow floats, and softmax by steps: the bits of the reference, and ONNX's own cases."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dims import symbol
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import tensor
from byoc_core.opset.families import KERNELS
from onnx import TensorProto, numpy_helper

from core.tests.onnx_node_cases import node_cases
from plugins.ccompiler.tests.bench import MEANING, PORTABLE, Bench

SHAPES: list[tuple[tuple[int, ...], int]] = [
    *(((3, size), -1) for size in (1, 7, 8, 9, 16, 17, 33, 200)),
    *(((2, 9, 5), axis) for axis in (0, 1, 2)),
    ((40, 20), 1),
    ((3, 0), 1),
    ((0, 3), 1),
]


def draw_multiples(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Return multiples of a quarter from 0 to 4: exponentials of their differences are far from ties, sums exact."""
    steps = np.arange(17) / 4
    exact = np.exp(-steps)
    for factor in (1 - 2.0**-20, 1 + 2.0**-20):
        near = (exact * factor).astype(to_numpy(dtype))
        assert (near == exact.astype(to_numpy(dtype))).all()
    return np.random.default_rng(seed).choice(steps, shape).astype(to_numpy(dtype))


@pytest.mark.parametrize("march", ["native", "generic", PORTABLE])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_softmax_by_steps_has_the_bits_of_the_reference(march: str, dtype: str) -> None:
    bench = Bench(march=march)
    functions = [bench.op("nn.stepwise_softmax", [tensor(shape, dtype)], axis=axis) for shape, axis in SHAPES]
    for function, (shape, axis) in zip(functions, SHAPES, strict=True):
        x = draw_multiples(shape, dtype)
        (found,) = bench.run(function, x)
        np.testing.assert_array_equal(found, KERNELS["nn.stepwise_softmax"](x, axis=axis), err_msg=str(shape))
    assert "byoc_stepwise_softmax" in bench.module.get_source()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_of_wide_floats_it_is_a_softmax(bench: Bench, dtype: str) -> None:
    functions = [bench.op("nn.stepwise_softmax", [tensor(shape, dtype)], axis=axis) for shape, axis in SHAPES]
    unit = float(np.finfo(dtype).eps) / 2
    for function, (shape, axis) in zip(functions, SHAPES, strict=True):
        x = draw_multiples(shape, "bfloat16").astype(dtype)
        exact = KERNELS["nn.softmax"](x.astype(np.longdouble), axis=axis)
        (found,) = bench.run(function, x)
        # Differences are exact; exponentials are within 2 units each, sums within one for each addition.
        assert np.all(np.abs(found - exact) <= 2 * (shape[axis] + 8) * unit * exact), shape


@pytest.mark.parametrize("zero_unseen", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_rows_that_are_not_finite(bench: Bench, dtype: str, zero_unseen: bool) -> None:
    function = bench.op("nn.stepwise_softmax", [tensor((5, 40), dtype)], axis=1, zero_unseen=zero_unseen)
    x = np.zeros((5, 40))
    x[0, 7], x[1, 39], x[2], x[3, 20:], x[4] = np.nan, np.inf, -np.inf, -np.inf, [-np.inf, np.nan] * 20
    (found,) = bench.run(function, x.astype(to_numpy(dtype)))
    expected = np.full((5, 40), np.nan)
    expected[3] = np.repeat([0.05, 0], 20)
    if zero_unseen:
        expected[2] = 0
    reference = expected.astype(found.dtype).astype(np.float64)
    np.testing.assert_array_equal(found.astype(np.float64), reference)


def test_symbolic_sizes(bench: Bench) -> None:
    function = bench.op("nn.stepwise_softmax", [tensor((symbol("n"), symbol("t")), "bfloat16")], axis=1)
    for shape in ((1, 1), (33, 12), (2, 100)):
        x = draw_multiples(shape, "bfloat16")
        np.testing.assert_array_equal(bench.run(function, x)[0], KERNELS["nn.stepwise_softmax"](x, axis=1))


def _array(value: TensorProto | npt.ArrayLike) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def test_onnx_cases_of_narrow_attention_are_right_and_taken_whole() -> None:
    cases = node_cases("attention")
    narrow = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    cases = [case for case in cases if case.model.graph.input[0].type.tensor_type.elem_type in narrow]
    assert len(cases) >= 22
    for case in cases:
        executable = byoc_core.build(
            from_onnx(case.model), ["ccompiler"], options={"ccompiler": {"opt_level": MEANING}}
        )
        byoc_core.explain(from_onnx(case.model), ["ccompiler"]).require_offload(1.0)
        run = byoc_core.VirtualMachine(executable)["main"]
        for inputs, outputs in case.data_sets:
            results = run(*map(_array, inputs))
            for result, output in zip(results if isinstance(results, tuple) else (results,), outputs, strict=True):
                numbers = np.asarray(result).astype(np.float64), _array(output).astype(np.float64)
                np.testing.assert_allclose(*numbers, rtol=case.rtol, atol=case.atol, err_msg=case.name)
