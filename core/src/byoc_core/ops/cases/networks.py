"""Cases of the ops of neural networks: windows, norms, recurrence, attention."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_core.ops.cases.case import case
from byoc_core.opset.cases import OpCase, Shape, integers

__all__ = ["CASES"]

_IMAGE = {"N": 2, "C": 16, "D": 7, "H": 9, "W": 8}
_FILTER = {"O": 32, "I": 16, "D": 3, "H": 3, "W": 3}


def _sizes(layout: str, sizes: dict[str, int]) -> Shape:
    return tuple(sizes[axis] for axis in layout)


def _convolutions(rank: int) -> Iterator[OpCase]:
    name, axes = f"nn.conv{rank}d", "DHW"[-rank:]
    channels_first, channels_last = _sizes(f"NC{axes}", _IMAGE), _sizes(f"N{axes}C", _IMAGE)
    weight = _sizes(f"OI{axes}", _FILTER)
    yield case(name, channels_first, weight)
    yield case(name, channels_first, weight, padding=(1,) * rank)
    yield case(name, channels_first, weight, strides=(2,) * rank, padding=(1,) * rank)
    if rank < 3:  # one image; channels in the units of vector and matrix engines
        yield case(name, (1, 32, *channels_first[2:]), (64, 32, *weight[2:]), padding=(1,) * rank)
        yield case(name, (1, 3, *channels_first[2:]), (64, 3, *(7,) * rank), strides=(2,) * rank, padding=(3,) * rank)
        around = (0,) * rank + (1,) * rank
        yield case(name, channels_first, weight, strides=(2,) * rank, padding=around)
    yield case(name, channels_first, weight, dilation=(2,) * rank)
    yield case(name, channels_first, (32, 16, *(1,) * rank))
    yield case(name, channels_first, (32, 8, *weight[2:]), groups=2)
    yield case(name, channels_first, (16, 1, *weight[2:]), groups=16, padding=(1,) * rank)
    yield case(name, channels_last, weight, data_layout=f"N{axes}C")
    hwio = _sizes(f"{axes}IO", _FILTER)
    yield case(name, channels_last, hwio, data_layout=f"N{axes}C", kernel_layout=f"{axes}IO")


def _transposed_convolutions(rank: int) -> Iterator[OpCase]:
    name, axes = f"nn.conv{rank}d_transpose", "DHW"[-rank:]
    image, weight = _sizes(f"NC{axes}", _IMAGE), (16, 32, *(3,) * rank)
    yield case(name, image, weight)
    yield case(name, image, weight, strides=(2,) * rank, padding=(1,) * rank, output_padding=(1,) * rank)
    yield case(name, image, (16, 8, *(3,) * rank), groups=2)
    yield case(name, _sizes(f"N{axes}C", _IMAGE), weight, data_layout=f"N{axes}C")


def _pools(rank: int) -> Iterator[OpCase]:
    axes = "DHW"[-rank:]
    image, last = _sizes(f"NC{axes}", _IMAGE), _sizes(f"N{axes}C", _IMAGE)
    two, three, one = (2,) * rank, (3,) * rank, (1,) * rank
    for kind in ("max", "avg", "lp"):
        name = f"nn.{kind}_pool{rank}d"
        yield case(name, image, pool_size=two, strides=two)
        yield case(name, image, pool_size=three, strides=two, padding=one)
        yield case(name, image, pool_size=three, strides=two, ceil_mode=True)
        yield case(name, last, pool_size=two, strides=two, layout=f"N{axes}C")
    yield case(f"nn.avg_pool{rank}d", image, pool_size=three, padding=one, count_include_pad=True)
    for kind in ("max", "avg"):
        name = f"nn.adaptive_{kind}_pool{rank}d"
        yield case(name, image, output_size=one)
        yield case(name, image, output_size=three)
        yield case(name, last, output_size=one, layout=f"N{axes}C")


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


CASES: tuple[OpCase, ...] = (
    *(item for rank in (1, 2, 3) for item in _convolutions(rank)),
    *(item for rank in (1, 2, 3) for item in _transposed_convolutions(rank)),
    *(item for rank in (1, 2, 3) for item in _pools(rank)),
    *_norms(),
    *_recurrence("nn.rnn", 1, 1),
    *_recurrence("nn.gru", 3, 1),
    *_recurrence("nn.lstm", 4, 2),
    case("nn.attention", (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)),
    case("nn.attention", (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (5, 7)),
    case("nn.attention", *[(1, 4, 16, 32)] * 3),
    case("nn.attention", (2, 6, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), causal=True),
    case("nn.rotary_embedding", (2, 3, 5, 8), (2, 5, 4), (2, 5, 4)),
    case("nn.resize", (2, 16, 9, 8), axes=(2, 3), sizes=(18, 16)),
    case("nn.resize", (2, 16, 9, 8), axes=(2, 3), sizes=(18, 16), method="linear"),
    case("nn.resize", (2, 16, 9, 8), axes=(2, 3), sizes=(5, 4), method="cubic"),
)
"""The cases of each op, the most common first."""
