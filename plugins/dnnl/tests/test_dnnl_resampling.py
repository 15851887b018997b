"""Resizing by nearest elements: accepted by the op, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection, Support
from byoc_core.ir import tensor
from byoc_core.opset.families import KERNELS
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import Region


def _region(shape: tuple[int, ...], attrs: dict[str, Any], order: tuple[int, ...] | None = None) -> Region:
    """Return a region of a single op; ``order``: the operand's axes from the axes of the region's input."""
    region = Region()
    source = shape if order is None else tuple(shape[order.index(axis)] for axis in range(len(shape)))
    x: Any = region.builder.param("x", tensor(source))
    if order is not None:
        x = region.builder.emit("permute_dims", x, axes=order)
    result = region.builder.emit("nn.resize", x, **attrs)
    assert not isinstance(result, tuple)
    return region.finish(result)


def _check(region: Region, shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> None:
    image = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    image.flat[:3] = [np.nan, np.inf, -0.0]
    given_ = image if order is None else np.ascontiguousarray(image.transpose(np.argsort(order)))
    (found,) = region.run(given_)
    expected = KERNELS["nn.resize"](image, **region.function.bindings[-1].attrs)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    assert "nn.resize  jit" in region.source


TAKEN: list[tuple[tuple[int, ...], dict[str, Any], tuple[int, ...] | None]] = [
    ((2, 16, 9, 8), {"axes": (2, 3), "sizes": (18, 16)}, None),
    ((2, 16, 9, 8), {"axes": (2, 3), "sizes": (18, 32), "coordinates": "asymmetric", "rounding": "floor"}, None),
    ((2, 16, 9, 8), {"axes": (0, 1, 2, 3), "sizes": (2, 16, 27, 8)}, None),
    ((2, 16, 9, 8), {"axes": (2, 3), "sizes": (18, 16)}, (0, 3, 1, 2)),
    ((2, 9, 8, 16), {"axes": (1, 2), "sizes": (18, 24)}, None),
    ((2, 9, 8, 5), {"axes": (1, 2), "sizes": (18, 24)}, None),
    ((2, 3, 8), {"axes": (2,), "sizes": (4,), "rounding": "half_up"}, None),
    ((2, 3, 4, 5, 6), {"axes": (2, 3, 4), "sizes": (8, 10, 12)}, None),
    ((5, 6), {"axes": (0, 1), "sizes": (10, 12)}, None),
    ((2, 3, 2, 5, 6), {"axes": (4,), "sizes": (12,)}, None),
]


@pytest.mark.parametrize(("shape", "attrs", "order"), TAKEN)
def test_elements_are_those_of_the_op(
    shape: tuple[int, ...], attrs: dict[str, Any], order: tuple[int, ...] | None
) -> None:
    region = _region(shape, attrs, order)
    assert isinstance(region.judge(region.function.bindings[-1]), Support)
    _check(region, shape, order)


@given(st.data())
def test_any_sizes_and_rules(data: st.DataObject) -> None:
    """All accepted cases are right, including places in the middle between two elements."""
    old = tuple(data.draw(st.integers(1, 70)) for _ in range(2))
    factor = data.draw(st.sampled_from([None, 2, 3]))
    new = tuple(size * factor if factor else data.draw(st.integers(1, 140)) for size in old)
    rules = st.sampled_from(
        ["half_pixel", "half_pixel_symmetric", "half_pixel_or_first", "align_corners", "asymmetric"]
    )
    attrs = {"axes": (2, 3), "sizes": new, "coordinates": data.draw(rules)}
    attrs["rounding"] = data.draw(st.sampled_from(["half_down", "half_up", "floor", "ceil"]))
    region = _region((1, 2, *old), attrs)
    if old != new and isinstance(region.judge(region.function.bindings[-1]), Support):
        _check(region, (1, 2, *old))


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        (
            {"axes": (2, 3), "sizes": (18, 16), "rounding": "floor"},
            "oneDNN samples other coordinates along axis 2",
        ),
        ({"axes": (2, 3), "sizes": (9, 8)}, "oneDNN resizes one to three axes"),
        ({"axes": (0, 2), "sizes": (4, 18)}, "oneDNN resizes only axes after the axes of images and channels"),
        (
            {"axes": (2, 3), "sizes": (18, 16), "method": "cubic"},
            "oneDNN has no cubic interpolation",
        ),
    ],
)
def test_refusals(attrs: dict[str, Any], text: str) -> None:
    region = Region()
    binding = region.builder.bind("nn.resize", [region.builder.param("x", tensor((2, 16, 9, 8)))], attrs)
    answer = region.judge(binding)
    assert isinstance(answer, Rejection)
    assert answer.text == f"`nn.resize`: {text}"


@pytest.mark.parametrize("order", [None, (0, 3, 1, 2)])
@pytest.mark.parametrize("method", ["nearest", "linear"])
def test_results_larger_than_the_caches_may_start_anywhere(method: str, order: tuple[int, ...] | None) -> None:
    """oneDNN writes these by instructions that fault at addresses not divisible by 64: a copy follows."""
    shape, attrs = (2, 16, 64, 64), {"axes": (2, 3), "sizes": (128, 128), "method": method}
    region, small = _region(shape, attrs, order), _region((2, 16, 4, 4), attrs | {"sizes": (8, 8)}, order)
    steps, small_steps = (_steps_behind_resize(source) for source in (region.source, small.source))
    assert steps == ["reorder"]
    assert small_steps == ([] if order is None else ["reorder"])  # behind channels last a copy follows anyway
    source = shape if order is None else tuple(shape[order.index(axis)] for axis in range(4))
    image = np.random.default_rng(0).standard_normal(source).astype(np.float32)
    buffer = np.empty(2 * 16 * 128 * 128 + 16, np.float32)
    (expected,) = region.run(image)
    for first in range(1, 16, 5):
        out = buffer[first : first + expected.size].reshape(expected.shape)
        region.module.get_function("f")(image, out)
        np.testing.assert_array_equal(out, expected)


def _steps_behind_resize(source: str) -> list[str]:
    titles = [line.split("  ")[0].strip() for line in source.splitlines()]
    (position,) = (index for index, title in enumerate(titles) if title.startswith("nn.resize"))
    return titles[position + 1 :]
