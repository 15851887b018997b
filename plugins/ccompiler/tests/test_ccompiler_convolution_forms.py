"""Other forms of convolutions: without the taps in the padding, and with a channel for each filter."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from byoc_ccompiler.regions import padded_windows, prepare_regions
from byoc_ccompiler.registry import FAMILIES
from byoc_core.dims import Dim, symbol
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import PORTABLE, Bench

SPATIAL = {1: "W", 2: "HW"}


def _ops(bench: Bench, function: Function) -> Counter[str]:
    module = prepare_regions([function], bench.constants, FAMILIES)
    return Counter(binding.op.name for binding in module[function.name].bindings)


def _draw(rng: Random, bench: Bench, number: int) -> tuple[Function, list[NDArray]]:
    """Return a convolution of whole numbers, whose sums are exact in any order, with much padding, and its input."""
    spatial = SPATIAL[rng.choice((1, 2, 2))]
    taps, strides = [rng.randint(1, 5) for _ in spatial], [rng.choice((1, 1, 2, 3)) for _ in spatial]
    dilation, sizes = [rng.randint(1, 5) for _ in spatial], [rng.randint(1, 6) for _ in spatial]
    reaches = [(tap - 1) * gap + 1 for tap, gap in zip(taps, dilation, strict=True)]
    before = [rng.randint(0, reach + 1) for reach in reaches]
    after = [
        max(rng.randint(0, reach + 1), reach - size - cut)
        for reach, size, cut in zip(reaches, sizes, before, strict=True)
    ]
    kind = rng.choice(("plain", "plain", "groups", "depthwise"))
    groups, group_channels = {"plain": (1, 3), "groups": (2, 2), "depthwise": (3, 1)}[kind]
    channels, out_channels, batch = groups * group_channels, groups * rng.randint(1, 3), rng.randint(1, 2)
    data_layout = rng.choice((f"NC{spatial}", f"N{spatial}C"))
    kernel_layout = rng.choice((f"OI{spatial}", f"{spatial}IO"))
    dims = {"N": batch, "C": channels, **dict(zip(spatial, sizes, strict=True))}
    filter_dims = {"O": out_channels, "I": group_channels, **dict(zip(spatial, taps, strict=True))}
    draw = np.random.default_rng(number)
    weight = draw.integers(-4, 5, [filter_dims[letter] for letter in kernel_layout]).astype("float32")
    image = draw.integers(-4, 5, [dims[letter] for letter in data_layout]).astype("float32")
    symbols = {letter: symbol(f"{letter.lower()}{number}") for letter in rng.sample("N" + spatial, rng.randint(0, 1))}
    shape: list[Dim] = [symbols.get(letter, dims[letter]) for letter in data_layout]
    builder = bench.builder()
    attrs = {"strides": tuple(strides), "padding": (*before, *after), "dilation": tuple(dilation), "groups": groups}
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    x = builder.param("x", tensor(tuple(shape), "float32"))
    result = builder.emit(f"nn.conv{len(spatial)}d", x, builder.const(weight), **attrs, **layouts)
    return bench.add(builder, builder.emit("nn.relu", result)), [image]


@pytest.mark.parametrize("march", ["native", PORTABLE])
def test_random_convolutions_with_much_padding(march: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_windows, "_LEAST_CHANNELS", 2)
    monkeypatch.setattr(padded_windows, "_LEAST_OUTPUTS", 4)
    seen = set[str]()

    @settings(max_examples=3, deadline=None)
    @given(st.randoms(use_true_random=True))
    def check(rng: Random) -> None:
        bench = Bench(march=march)
        # Several at a time: a run of the C compiler costs more than a convolution.
        cases = [_draw(rng, bench, number) for number in range(24)]
        for function, inputs in cases:
            (actual,), (expected,) = bench.run(function, *inputs), bench.reference(function, *inputs)
            np.testing.assert_array_equal(actual, expected, err_msg=str(function))
            seen.update(_ops(bench, function))

    check()
    assert {"add", "broadcast_to"} <= seen


@pytest.mark.parametrize(
    ("shape", "filter_shape", "attrs", "op"),
    [
        ((1, 2, 40), (32, 1, 4), {"groups": 2}, "broadcast_to"),
        ((1, 4, 40), (8, 1, 4), {"groups": 4, "strides": (8,)}, "broadcast_to"),
        ((1, 64, 12, 12), (4, 64, 9, 9), {"padding": (4,) * 4}, "add"),
    ],
)
def test_copies_and_taps_are_few(
    shape: tuple[int, ...], filter_shape: tuple[int, ...], attrs: dict[str, object], op: str
) -> None:
    bench = Bench()
    builder = bench.builder()
    x = builder.param("x", tensor(shape))
    name = f"nn.conv{len(shape) - 2}d"
    function = bench.add(builder, builder.emit(name, x, builder.const(np.ones(filter_shape, "f4")), **attrs))
    assert op not in _ops(bench, function)


@pytest.mark.parametrize(
    ("size", "attrs", "convolutions"),
    [
        (14, {"padding": (12,) * 4, "dilation": (12, 12)}, 9),
        (14, {"padding": (24,) * 4, "dilation": (24, 24)}, 1),
        (14, {"padding": (1,) * 4}, 1),
        (14, {"padding": (2,) * 4, "dilation": (2, 2)}, 1),
    ],
)
def test_taps_in_the_padding(size: int, attrs: dict[str, object], convolutions: int) -> None:
    bench = Bench()
    builder = bench.builder()
    x = builder.param("x", tensor((1, 64, size, size)))
    weight = builder.const(np.ones((4, 64, 3, 3), "f4"))
    function = bench.add(builder, builder.emit("nn.conv2d", x, weight, **attrs))
    ops = _ops(bench, function)
    assert ops["nn.conv2d"] == convolutions
    assert ops["add"] == convolutions - 1


def test_a_filter_without_taps_in_the_image_keeps_its_form() -> None:
    bench = Bench()
    builder = bench.builder()
    x, weight = builder.param("x", tensor((1, 2, 1, 1))), builder.const(np.ones((2, 2, 2, 2), "f4"))
    function = bench.add(builder, builder.emit("nn.conv2d", x, weight, padding=(2, 2, 2, 2), dilation=(3, 3)))
    image = np.ones((1, 2, 1, 1), "float32")
    (actual,), (expected,) = bench.run(function, image), bench.reference(function, image)
    np.testing.assert_array_equal(actual, expected)


def test_unused_taps_between_used_taps_stay() -> None:
    """A stride of 3 over a single element meets every third tap."""
    bench = Bench()
    builder = bench.builder()
    x, weight = builder.param("x", tensor((1, 1, 1))), builder.const(np.arange(5, dtype="f4").reshape(1, 1, 5))
    function = bench.add(builder, builder.emit("nn.conv1d", x, weight, padding=(4, 3), strides=(3,)))
    image = np.ones((1, 1, 1), "float32")
    (actual,), (expected,) = bench.run(function, image), bench.reference(function, image)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(expected, [[[4, 1]]])


def test_taps_that_are_not_finite_meet_the_zeros_of_the_padding() -> None:
    """A product of zero and infinity is NaN: the tap stays."""
    bench = Bench()
    builder = bench.builder()
    filter_ = np.ones((1, 1, 3, 3), "f4")
    filter_[0, 0, 0, 0] = np.inf
    x = builder.param("x", tensor((1, 1, 2, 2)))
    result = builder.emit("nn.conv2d", x, builder.const(filter_), padding=(4,) * 4, dilation=(4, 4))
    function, image = bench.add(builder, result), np.ones((1, 1, 2, 2), "float32")
    (actual,), (expected,) = bench.run(function, image), bench.reference(function, image)
    np.testing.assert_array_equal(actual, expected)
    assert np.isnan(expected).all()
