"""Transposed convolutions as convolutions: equal numbers for all strides, filters, paddings and layouts."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from byoc_ccompiler.regions import prepare_regions
from byoc_ccompiler.registry import FAMILIES
from byoc_core.dims import Dim, symbol
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import PORTABLE, Bench

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _ops(bench: Bench, function: Function) -> set[str]:
    module = prepare_regions([function], bench.constants, FAMILIES)
    return {binding.op.name for binding in module[function.name].bindings}


def _draw(rng: Random, bench: Bench, number: int) -> tuple[Function, list[NDArray]]:
    """Return a transposed convolution of whole numbers, whose sums are exact in any order, and its input."""
    rank = rng.choice((1, 2, 2, 2, 3))
    spatial, layout = SPATIAL[rank], rng.choice(("first", "last"))
    taps, strides = (
        [rng.randint(1, 5 if rank < 3 else 3) for _ in range(rank)],
        [rng.randint(1, 3) for _ in range(rank)],
    )
    dilation = [rng.choice((1, 1, 2, 3)) for _ in range(rank)]
    reaches = [(tap - 1) * gap + 1 for tap, gap in zip(taps, dilation, strict=True)]
    sizes = [rng.randint(1, 5) for _ in range(rank)]
    extra = [rng.randint(0, stride - 1) for stride in strides]
    lengths = [(n - 1) * s + k + e for n, s, k, e in zip(sizes, strides, reaches, extra, strict=True)]
    before = [rng.randint(0, min(reach - 1, length - 1)) for reach, length in zip(reaches, lengths, strict=True)]
    after = [
        rng.randint(0, min(reach - 1, length - cut - 1))
        for reach, length, cut in zip(reaches, lengths, before, strict=True)
    ]
    groups = rng.choice((1, 1, 1, 2))
    channels, batch = groups * rng.randint(1, 4), rng.randint(1, 3)
    out_channels = rng.choice((rng.randint(1, 5), 16, 20))
    kernel_layout = rng.choice((f"IO{spatial}", f"OI{spatial}", f"{spatial}IO"))
    dims = {"N": batch, "C": channels, **dict(zip(spatial, sizes, strict=True))}
    data_layout = f"NC{spatial}" if layout == "first" else f"N{spatial}C"
    filter_dims = {"I": channels, "O": out_channels, **dict(zip(spatial, taps, strict=True))}
    draw = np.random.default_rng(number)
    weight = draw.integers(-4, 5, [filter_dims[letter] for letter in kernel_layout]).astype("float32")
    image = draw.integers(-4, 5, [dims[letter] for letter in data_layout]).astype("float32")
    symbols = {
        letter: symbol(f"{letter.lower()}{number}") for letter in rng.sample("N" + spatial, rng.randint(0, rank))
    }
    shape: list[Dim] = [symbols.get(letter, dims[letter]) for letter in data_layout]
    builder = bench.builder()
    attrs = {
        "strides": tuple(strides),
        "padding": (*before, *after),
        "output_padding": tuple(extra),
        "dilation": tuple(dilation),
        "groups": groups,
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
    }
    x = builder.param("x", tensor(tuple(shape), "float32"))
    result = builder.emit(f"nn.conv{rank}d_transpose", x, builder.const(weight), **attrs)
    return bench.add(builder, builder.emit("nn.relu", result)), [image]


@pytest.mark.parametrize("march", ["native", PORTABLE])
def test_random_transposed_convolutions(march: str) -> None:
    seen = set[bool]()

    @settings(max_examples=3, deadline=None)
    @given(st.randoms(use_true_random=True))
    def check(rng: Random) -> None:
        bench = Bench(march=march)
        # Several at a time: a run of the C compiler costs more than a convolution.
        cases = [_draw(rng, bench, number) for number in range(16)]
        for function, inputs in cases:
            (actual,), (expected,) = bench.run(function, *inputs), bench.reference(function, *inputs)
            np.testing.assert_array_equal(actual, expected, err_msg=str(function))
            seen.add(any(op.endswith("_transpose") for op in _ops(bench, function)))

    check()
    assert False in seen


@pytest.mark.parametrize(
    ("shape", "weight", "attrs", "is_transposed"),
    [
        (("n", 6, "h", "w"), (6, 5, 2, 2), {"strides": (2, 2)}, False),
        (("n", 6, 7, 8), (6, 5, 4, 4), {"strides": (2, 2), "padding": (1, 1, 1, 1)}, False),
        ((1, 6, 7, 8), (6, 5, 3, 3), {"strides": (2, 2), "padding": (1, 1, 1, 1), "output_padding": (1, 1)}, False),
        ((1, 6, 7, 8), (6, 1, 2, 2), {"strides": (2, 2), "groups": 6}, True),
        ((1, 6, 7, 8), (6, 5, 3, 3), {"dilation": (2, 2)}, False),
        ((1, 6, 7, 8), (6, 5, 3, 3), {"dilation": (1, 2), "strides": (1, 2)}, True),
        ((1, 6, 7, 8), (6, 5, 1, 1), {"strides": (3, 3)}, True),
    ],
)
def test_which_become_convolutions(
    shape: tuple[int | str, ...], weight: tuple[int, ...], attrs: dict[str, object], is_transposed: bool
) -> None:
    bench = Bench()
    builder = bench.builder()
    x = builder.param("x", tensor(shape, "float32"))
    filter_ = builder.const(np.ones(weight, "float32"))
    function = bench.add(builder, builder.emit("nn.conv2d_transpose", x, filter_, **attrs))
    assert ("nn.conv2d_transpose" in _ops(bench, function)) == is_transposed


@pytest.mark.parametrize(
    ("weight", "strides", "num_convolutions"),
    [
        ((8, 16, 3, 3), (2, 2), 4),  # 9 products in place of 16
        ((8, 16, 3, 3), (3, 2), 6),
        ((8, 16, 2, 2), (2, 2), 1),  # as many products in either form
        ((8, 16, 33), (32,), 1),  # a phase for each of 32 steps
        ((8, 16, 3), (2,), 2),
        ((8, 8, 3, 3), (2, 2), 1),  # four phases of 8 channels fill two vectors
        ((8, 16, 5, 5), (2, 2), 1),  # windows of 3 by 3, by Winograd's algorithm
        ((8, 16, 3, 3), (1, 1), 1),
    ],
)
def test_phases_apart(weight: tuple[int, ...], strides: tuple[int, ...], num_convolutions: int) -> None:
    bench = Bench()
    builder = bench.builder()
    rank = len(strides)
    x = builder.param("x", tensor((2, 8, *(6, 5)[:rank]), "float32"))
    draw = np.random.default_rng(0)
    filter_ = builder.const(draw.integers(-4, 5, weight).astype("float32"))
    attrs = {"strides": strides, "padding": (1,) * (2 * rank)}
    function = bench.add(builder, builder.emit(f"nn.conv{rank}d_transpose", x, filter_, **attrs))
    module = prepare_regions([function], bench.constants, FAMILIES)
    bindings = module[function.name].bindings
    assert sum(binding.op.name == f"nn.conv{rank}d" for binding in bindings) == num_convolutions
    calls = bench.calls(function)
    assert sum("conv" in call for call in calls) == num_convolutions
    if num_convolutions > 1:
        # The image comes with channels first; the phases are written side by side, and turned and cut in one copy.
        assert len(calls) == num_convolutions + 2, calls
    image = draw.integers(-4, 5, (2, 8, *(6, 5)[:rank])).astype("float32")
    (actual,), (expected,) = bench.run(function, image), bench.reference(function, image)
    np.testing.assert_array_equal(actual, expected)


def test_a_filter_given_by_the_caller_stays_transposed() -> None:
    bench = Bench()
    builder = bench.builder()
    x, weight = builder.param("x", tensor((1, 2, 3, 3))), builder.param("w", tensor((2, 2, 2, 2)))
    function = bench.add(builder, builder.emit("nn.conv2d_transpose", x, weight, strides=(2, 2)))
    assert "nn.conv2d_transpose" in _ops(bench, function)


@pytest.mark.parametrize(("rank", "op"), [(1, "nn.conv1d_transpose"), (2, "nn.conv2d_transpose"), (3, "nn.conv3d")])
def test_dequantised_filters_are_constants_too(rank: int, op: str) -> None:
    """Quantised filters stay until products of bytes are found; the rewrites of floats then see the folded filters."""
    bench, draw = Bench(), np.random.default_rng(rank)
    weight = draw.integers(-5, 6, (16, 16, *[3] * rank)).astype("int8")
    scales, zeros = np.full(16, 0.5, "float32"), np.zeros(16, "int8")
    functions = []
    for is_quantised in (True, False):
        builder = bench.builder()
        x = builder.param("x", tensor((2, 16, *[5] * rank)))
        wide = builder.emit("dequantize", *map(builder.const, (weight, scales, zeros)), axis=0)
        filters = wide if is_quantised else builder.const(weight.astype("float32") * np.float32(0.5))
        functions.append(bench.add(builder, builder.emit(op, x, filters, strides=(2,) * rank)))
    quantised, plain = (_ops(bench, function) for function in functions)
    assert quantised == plain
    assert op not in quantised
    image = draw.integers(-4, 5, (2, 16, *[5] * rank)).astype("float32")
    actual, expected = (bench.run(function, image)[0] for function in functions)
    np.testing.assert_array_equal(actual, expected)
