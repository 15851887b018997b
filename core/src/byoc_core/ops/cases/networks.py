"""Cases of the ops of neural networks: products, windows, norms, recurrence, attention, quantisation."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_core.ops.cases.case import case
from byoc_core.opset.cases import OpCase, OperandCase, Shape, integers

__all__ = ["CASES"]


def _norms() -> Iterator[OpCase]:
    matrix, tokens, image = (2, 3), (2, 5, 3), (2, 16, 9, 8)
    for name in ("nn.softmax", "nn.log_softmax", "nn.stepwise_softmax"):
        yield from (case(name, shape) for shape in (matrix, tokens, image, (3,)))
        yield case(name, image, axis=1)
    yield case("nn.stepwise_softmax", tokens, zero_unseen=True)
    yield case("nn.batch_norm", image, *[(16,)] * 4)
    yield case("nn.batch_norm", matrix, *[(3,)] * 4)
    yield case("nn.batch_norm", (2, 9, 8, 16), *[(16,)] * 4, axis=-1)
    yield case("nn.layer_norm", tokens, (3,), (3,))
    yield case("nn.layer_norm", matrix, (3,), (3,))
    yield case("nn.layer_norm", (1, 5, 32), (32,), (32,))
    yield case("nn.layer_norm", tokens, (5, 3), (5, 3), axes=(1, 2))
    yield case("nn.rms_norm", tokens, (3,))
    yield case("nn.rms_norm", matrix, (3,))
    yield case("nn.group_norm", image, (16,), (16,), groups=2)
    yield case("nn.instance_norm", image, (16,), (16,))
    yield case("nn.instance_norm", (2, 4, 8), (4,), (4,))
    yield case("nn.lrn", image, size=3)


def _recurrence(name: str, num_gates: int, num_states: int) -> Iterator[OpCase]:
    steps, batch, inputs, hidden = 5, 2, 3, 4
    for direction, count in (("forward", 1), ("bidirectional", 2)):
        width = num_gates * hidden
        weights: list[Shape] = [(count, width, inputs), (count, width, hidden), (count, 2 * width)]
        operands = [(steps, batch, inputs), *weights, *[(count, batch, hidden)] * num_states]
        yield case(name, *operands, direction=direction)
        yield case(name, *operands, integers((batch,), 1, steps, "int32"), direction=direction)


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
    *_norms(),
    *_recurrence("nn.rnn", 1, 1),
    *_recurrence("nn.gru", 3, 1),
    *_recurrence("nn.lstm", 4, 2),
    case("einsum", (2, 3), (3, 4), equation="ij,jk->ik"),
    case("einsum", (6, 2, 3), (6, 3, 4), equation="bij,bjk->bik"),
    case("einsum", (2, 3), equation="ij->ji"),
    case("nn.attention", (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)),
    case("nn.attention", (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (5, 7)),
    case("nn.attention", *[(1, 4, 16, 32)] * 3),
    case("nn.attention", (2, 6, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), causal=True),
    case("nn.rotary_embedding", (2, 3, 5, 8), (2, 5, 4), (2, 5, 4)),
    *_quantised("quantize"),
    *_quantised("dequantize"),
    case("nn.resize", (2, 16, 9, 8), axes=(2, 3), sizes=(18, 16)),
    case("nn.resize", (2, 16, 9, 8), axes=(2, 3), sizes=(18, 16), method="linear"),
    case("nn.resize", (2, 16, 9, 8), axes=(2, 3), sizes=(5, 4), method="cubic"),
)
"""The cases of each op, the most common first."""
