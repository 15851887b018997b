"""Cases of the ops of neural networks: products, windows, norms, recurrence, attention, quantisation."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_core.ops.cases.case import case
from byoc_core.opset.cases import OpCase, OperandCase

__all__ = ["CASES"]


def _quantised(name: str) -> Iterator[OpCase]:
    for shape, parameters in (((2, 3), ()), ((2, 3), (3,)), ((2, 16, 9, 8), (16,)), ((2, 16, 9, 8), ())):
        for dtype in ("int8", "uint8"):
            if name == "quantize":
                yield case(name, shape, parameters, OperandCase(parameters, dtype))
            else:
                yield case(name, shape, OperandCase(parameters, "float32"), parameters, dtype=dtype)


CASES: tuple[OpCase, ...] = (
    case("matmul", (2, 16), (16, 32)),
    case("matmul", (1, 64), (64, 32)),
    case("matmul", (6, 2, 3), (6, 3, 4)),
    case("matmul", (5, 6, 2, 3), (5, 6, 3, 4)),
    case("matmul", (5, 2, 3), (3, 4)),
    case("matmul", (2, 3), (5, 3, 4)),
    case("matmul", (2, 3), (1, 3, 4)),
    case("matmul", (5, 2, 3), (6, 1, 3, 4)),
    case("matmul", (3,), (5, 3, 4)),
    case("matmul", (5, 2, 3), (3,)),
    case("matmul", (3,), (3, 4)),
    case("matmul", (2, 3), (3,)),
    case("matmul", (3,), (3,)),
    case("nn.dense", (2, 16), (32, 16)),
    case("nn.dense", (1, 64), (32, 64)),
    case("nn.dense", (2, 5, 3), (4, 3)),
    case("nn.bias_add", (2, 16), (16,)),
    case("nn.bias_add", (2, 16, 9, 8), (16,), axis=1),
    case("nn.bias_add", (2, 5, 3), (3,)),
    case("nn.bias_add", (2, 9, 8, 16), (16,)),
    case("einsum", (2, 3), (3, 4), equation="ij,jk->ik"),
    case("einsum", (6, 2, 3), (6, 3, 4), equation="bij,bjk->bik"),
    case("einsum", (2, 3), equation="ij->ji"),
    *_quantised("quantize"),
    *_quantised("dequantize"),
)
"""The cases of each op, the most common first."""
