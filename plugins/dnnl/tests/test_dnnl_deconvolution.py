"""Transposed convolutions, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.backend.hooks import Support
from byoc_core.ir import tensor
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import Region, check_sums

_LETTERS = {1: "W", 2: "HW", 3: "DHW"}


def _check(image: tuple[int, ...], weights: tuple[int, ...], *, is_constant: bool = True, **attrs: object) -> str:
    region = Region()
    inputs = [region.draw(*image)]
    x = region.builder.param("x", tensor(image))
    filters = region.draw(*weights)
    weight: Any = region.builder.const(filters) if is_constant else region.builder.param("w", tensor(weights))
    inputs += [] if is_constant else [filters]
    (result,) = region.builder.bind(f"nn.conv{len(image) - 2}d_transpose", [x, weight], attrs).results
    region.finish(result)
    (binding,) = region.function.bindings
    assert isinstance(region.judge(binding), Support)
    # One product and one sum for each tap of a filter and each channel at most.
    check_sums(region, inputs, 2 * int(np.prod(weights)) + 4)
    assert "ref" not in region.source
    return region.source


GEOMETRIES: list[tuple[Any, ...]] = [
    ((2, 16, 8), (16, 32, 3), {}),
    ((2, 16, 8), (16, 32, 3), {"strides": (2,), "padding": (1, 0), "output_padding": (1,)}),
    ((1, 3, 9, 7), (3, 8, 3, 3), {"padding": (1, 1, 1, 1)}),
    ((2, 16, 9, 8), (16, 8, 4, 4), {"strides": (2, 2), "padding": (1, 1, 1, 1)}),
    ((2, 16, 9, 8), (16, 8, 2, 2), {"strides": (2, 2), "output_padding": (1, 1)}),
    ((1, 16, 6, 5), (16, 4, 3, 2), {"groups": 4, "strides": (2, 3), "padding": (0, 1, 2, 0)}),
    ((1, 16, 6, 5), (16, 1, 3, 3), {"groups": 16, "strides": (2, 2), "padding": (1, 1, 1, 1)}),
    ((1, 8, 6, 5), (8, 4, 3, 3), {"dilation": (2, 3), "padding": (1, 2, 0, 3)}),
    ((1, 6, 5, 8), (3, 3, 8, 4), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
    ((1, 6, 5, 8), (4, 8, 3, 3), {"data_layout": "NHWC", "kernel_layout": "OIHW"}),
    ((1, 4, 3, 4, 5), (4, 8, 2, 3, 3), {"strides": (2, 1, 2), "padding": (0, 1, 1, 1, 1, 0)}),
]


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize(("image", "weights", "attrs"), GEOMETRIES)
def test_geometries(image: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any], is_constant: bool) -> None:
    _check(image, weights, is_constant=is_constant, **attrs)


@given(st.data())
def test_any_geometry(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(rank))

    groups = data.draw(st.sampled_from([1, 1, 2, 3]))
    channels, outputs = (groups * data.draw(st.integers(1, 9)) for _ in range(2))
    image, window, strides, dilation = each(1, 6), each(1, 4), each(1, 3), each(1, 3)
    reach = [(taps - 1) * spread + 1 for taps, spread in zip(window, dilation, strict=True)]
    whole = [(size - 1) * step + length for size, step, length in zip(image, strides, reach, strict=True)]
    before = tuple(data.draw(st.integers(0, length - 1)) for length in reach)
    after = tuple(
        data.draw(st.integers(0, min(length - 1, max(0, size - first - 1))))
        for length, size, first in zip(reach, whole, before, strict=True)
    )
    longer = tuple(data.draw(st.integers(0, step - 1)) for step in strides)
    if any(
        size + more - first - last < 1 for size, more, first, last in zip(whole, longer, before, after, strict=True)
    ):
        before = after = (0,) * rank
    last = data.draw(st.booleans())
    letters = _LETTERS[rank]
    _check(
        (2, *image, channels) if last else (2, channels, *image),
        (channels, outputs // groups, *window),
        groups=groups,
        strides=strides,
        dilation=dilation,
        padding=(*before, *after),
        output_padding=longer,
        data_layout=f"N{letters}C" if last else f"NC{letters}",
    )


def test_what_follows_becomes_post_ops() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 16, 8, 8)))
    y: Any = region.builder.emit("nn.conv2d_transpose", x, region.builder.const(region.draw(16, 32, 3, 3)))
    y = region.builder.emit("nn.bias_add", y, region.builder.const(region.draw(32)), axis=1)
    region.finish(region.builder.emit("nn.leaky_relu", y, alpha=0.5))  # type: ignore[arg-type]
    check_sums(region, [region.draw(1, 16, 8, 8)], 2 * 9 * 16 + 8)
    assert "nn.conv2d_transpose + nn.bias_add + nn.leaky_relu" in region.source
