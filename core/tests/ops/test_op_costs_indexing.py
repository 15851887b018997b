"""FLOPs and bytes of gathers, scatters and moves of slices, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.dims import Dim, symbol
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import TensorType, tensor

_N = symbol("n")
_TABLE = tensor((50000, 8))

_CASES: list[tuple[str, list[TensorType], dict[str, Any], Dim, Dim]] = [
    # A gather reads what it gives (float32) and its indices (int64), not the whole table.
    ("take", [_TABLE, tensor(("n",), "int64")], {}, 0, 2 * 8 * 4 * _N + 8 * _N),
    ("gather_elements", [_TABLE, tensor(("n", 8), "int64")], {}, 0, 2 * 8 * 4 * _N + 8 * 8 * _N),
    ("gather_nd", [_TABLE, tensor(("n", 2), "int32")], {}, 0, 2 * 4 * _N + 2 * 4 * _N),
    (
        "scatter_elements",
        [tensor((9, 8)), tensor(("n", 8), "int64"), tensor(("n", 8))],
        {"reduction": "add"},
        8 * _N,
        2 * 9 * 8 * 4 + 8 * 8 * _N + 8 * 4 * _N,
    ),
    (
        "scatter_nd",
        [tensor((9, 8)), tensor(("n", 1), "int64"), tensor(("n", 8))],
        {"reduction": "max"},
        8 * _N,
        2 * 9 * 8 * 4 + 8 * _N + 8 * 4 * _N,
    ),
    (
        "scatter_nd",
        [tensor((9, 8)), tensor(("n", 1), "int64"), tensor(("n", 8))],
        {},
        0,
        2 * 9 * 8 * 4 + 8 * _N + 8 * 4 * _N,
    ),
    (
        "scatter_slice",
        [tensor((3, "n", 8)), tensor((3, 1, 8)), tensor((3,), "int64")],
        {"axis": 1},
        0,
        2 * 3 * 8 * 4 * _N + 3 * 8 * 4 + 3 * 8,
    ),
    ("one_hot", [tensor(("n",), "int64"), tensor(()), tensor(())], {"depth": 7}, 0, 8 * _N + 2 * 4 + 7 * 4 * _N),
    ("tile", [tensor((2, "n"))], {"repeats": (3, 1)}, 0, 2 * 4 * _N + 6 * 4 * _N),
]


@pytest.mark.parametrize(("name", "operands", "attrs", "flops", "nbytes"), _CASES)
def test_costs(name: str, operands: list[TensorType], attrs: dict[str, Any], flops: Dim, nbytes: Dim) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    values = [builder.param(f"p{index}", type_) for index, type_ in enumerate(operands)]
    binding = builder.bind(name, values, attrs)
    assert binding.op.flops(binding.context()) == flops
    assert binding.op.nbytes(binding.context()) == nbytes
