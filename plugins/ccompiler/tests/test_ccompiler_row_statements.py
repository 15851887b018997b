"""Row kernels as data: laws of generated C, and results of the ops in the interpreter."""

from __future__ import annotations

import random
from typing import Any

import byoc_ccompiler.kernel as kernel_module
import numpy as np
import pytest
from byoc_core.authoring.c import Buffer, Function, interpret, outline, problems_of
from byoc_core.dtypes import to_numpy
from byoc_core.ir import tensor
from byoc_core.runtime.module import NDArray

from plugins.ccompiler.tests.bench import Bench

SCRATCH_ELEMENTS = 4096

CASES: list[tuple[str, str, list[tuple[int, ...]], dict[str, object]]] = [
    ("sum", "float32", [(3, 5)], {"axis": (1,)}),
    ("sum", "float32", [(300, 5)], {"axis": (0,)}),
    ("sum", "float32", [(70_000,)], {"axis": (0,)}),
    ("sum", "float64", [(70_000,)], {"axis": (0,)}),
    ("mean", "float64", [(2, 2100)], {"axis": (1,)}),
    ("mean", "float32", [(2, 3, 4, 5)], {"axis": (1, 3)}),
    ("sum", "int8", [(2, 1100)], {"axis": (1,)}),
    ("prod", "int32", [(4, 3)], {"axis": (0,)}),
    ("max", "float32", [(70_000,)], {"axis": (0,)}),
    ("max", "uint64", [(2, 3, 40)], {"axis": (1,)}),
    ("min", "float32", [(3, 0, 2)], {"axis": (1,)}),
    ("any", "bool", [(3, 6)], {"axis": (1,)}),
    ("all", "bool", [(6, 3)], {"axis": (0,)}),
    ("nn.softmax", "float32", [(2, 1100)], {"axis": 1}),
    ("nn.softmax", "float32", [(9, 20)], {"axis": 0}),
    ("nn.layer_norm", "float32", [(3, 300), (300,), (300,)], {}),
    ("logsumexp", "float32", [(2, 3, 7)], {"axis": (1,), "keepdims": False}),
    ("nn.stepwise_softmax", "bfloat16", [(3, 4, 9)], {"axis": 1}),
    ("nn.stepwise_softmax", "float16", [(3, 9)], {"axis": 1, "zero_unseen": True}),
]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[Function]:
    """Every declared kernel."""
    found: list[Function] = []

    def recorded(function: Function, **options: Any) -> Function:
        found.append(function)
        return outline(function, **options)

    monkeypatch.setattr(kernel_module, "outline", recorded)
    return found


def _draw(shape: tuple[int, ...], dtype: str) -> NDArray:
    return (np.random.default_rng(len(shape)).standard_normal(shape) * 3).astype(to_numpy(dtype))


@pytest.mark.parametrize(("op", "dtype", "shapes", "attrs"), CASES)
def test_row_kernels_interpreted_agree_with_the_kernels(
    kernels: list[Function],
    op: str,
    dtype: str,
    shapes: list[tuple[int, ...]],
    attrs: dict[str, object],
) -> None:
    bench = Bench()
    function = bench.op(op, [tensor(shape, dtype) for shape in shapes], **attrs)
    assert bench.module.get_source()
    (kernel,) = kernels
    assert not list(problems_of(kernel))
    inputs = [_draw(shape, dtype) for shape in shapes]
    (expected,) = bench.reference(function, *inputs)
    arrays = {f"x{number}": array.reshape(-1) for number, array in enumerate(inputs)}
    out = np.zeros(expected.size, expected.dtype)
    arrays["out"] = out
    scratch = [parameter for parameter in kernel.parameters if isinstance(parameter, Buffer)][-1]
    arrays.setdefault(scratch.name, np.full(SCRATCH_ELEMENTS, 77, to_numpy(scratch.dtype)))
    arguments = {parameter: arrays[parameter.name] for parameter in kernel.parameters}
    interpret(kernel, arguments, order=random.Random(0))
    if dtype in ("float32", "float64") and op not in ("max", "min"):
        np.testing.assert_allclose(out, expected.reshape(-1), rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(out, expected.reshape(-1))
