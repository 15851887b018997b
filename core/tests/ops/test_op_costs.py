"""FLOPs and bytes of ops, by hand-counted cases and by laws."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.dims import Dim, symbol
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import TensorType, tensor

_N = symbol("n")
_IMAGE = tensor(("n", 4, 8, 8))

_CASES: list[tuple[str, list[TensorType], dict[str, Any], Dim]] = [
    ("add", [tensor((2, 1)), tensor((3,))], {}, 6),
    ("sigmoid", [tensor((5,))], {}, 20),
    ("clip", [tensor((5,))], {"min": 0.0, "max": 6.0}, 10),
    ("matmul", [tensor(("n", 3)), tensor((3, 5))], {}, 30 * _N),
    ("matmul", [tensor((7,)), tensor((7,))], {}, 14),
    ("nn.dense", [tensor((64, 800)), tensor((500, 800))], {}, 2 * 64 * 800 * 500),
    ("nn.conv2d", [_IMAGE, tensor((6, 4, 3, 3))], {"padding": (1, 1)}, 2 * 6 * 64 * 36 * _N),
    ("nn.conv2d", [_IMAGE, tensor((4, 1, 3, 3))], {"padding": (1, 1), "groups": 4}, 2 * 4 * 64 * 9 * _N),
    ("nn.conv1d", [tensor(("n", 4, 8)), tensor((6, 4, 3))], {"padding": (1,)}, 2 * 6 * 8 * 12 * _N),
    ("nn.conv3d", [tensor((1, 2, 4, 4, 4)), tensor((3, 2, 2, 2, 2))], {}, 2 * 3 * 27 * 16),
    ("nn.conv2d_transpose", [_IMAGE, tensor((4, 6, 3, 3))], {"strides": (2,)}, 2 * 4 * 64 * 54 * _N),
    ("nn.lp_pool2d", [_IMAGE], {"pool_size": (2, 2)}, 4 * 16 * 10 * _N),
    ("nn.lrn", [_IMAGE], {"size": 5}, 4 * 64 * 14 * _N),
    ("nn.resize", [_IMAGE], {"axes": (2, 3), "sizes": (4, 4)}, 0),
    ("nn.resize", [_IMAGE], {"axes": (2, 3), "sizes": (4, 4), "method": "linear"}, 4 * 16 * 6 * _N),
    (
        "nn.rnn",
        [tensor((7, "n", 5)), tensor((1, 3, 5)), tensor((1, 3, 3)), tensor((1, 6)), tensor((1, "n", 3))],
        {},
        2 * 7 * 24 * _N,
    ),
    ("nn.attention", [tensor(("n", 4, 3, 8)), tensor(("n", 2, 5, 8)), tensor(("n", 2, 5, 6))], {}, 60 * 33 * _N),
    ("einsum", [tensor(("n", 3, 4)), tensor(("n", 4, 5))], {"equation": "bij,bjk->bik"}, 2 * 60 * _N),
    ("nn.max_pool2d", [_IMAGE], {"pool_size": (2, 2)}, 4 * 16 * 4 * _N),
    ("sum", [tensor((3, 4))], {"axis": (0,)}, 12),
    ("reshape", [tensor((3, 4))], {"shape": (12,)}, 0),
    ("cast", [tensor((3, 4))], {"dtype": "int8"}, 0),
]


@pytest.mark.parametrize(("name", "operands", "attrs", "flops"), _CASES)
def test_flops(name: str, operands: list[TensorType], attrs: dict[str, Any], flops: Dim) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    values = [builder.param(f"p{index}", type_) for index, type_ in enumerate(operands)]
    binding = builder.bind(name, values, attrs)
    assert binding.op.flops(binding.context()) == flops


def test_bytes_are_operands_and_results_once() -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    binding = builder.bind("cast", [builder.param("x", tensor(("n", 3)))], {"dtype": "int8"})
    assert binding.op.nbytes(binding.context()) == 15 * _N
