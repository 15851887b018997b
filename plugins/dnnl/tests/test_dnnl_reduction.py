"""Reductions over any axes of tensors in any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection, Support
from byoc_core.ir import tensor
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import UNIT, Region, check_sums, emit


def _region(op: str, shape: tuple[int, ...], order: tuple[int, ...], **attrs: object) -> Region:
    """Return a region of a single op with the input's axes in another order."""
    region = Region()
    x: Any = region.builder.param("x", tensor(shape))
    if order != tuple(range(len(shape))):
        x = region.builder.emit("permute_dims", x, axes=order)
    (result,) = region.builder.bind(op, [x], attrs).results
    return region.finish(result)


@given(st.data())
def test_means_and_sums_along_any_axes(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5)))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True, min_size=1))
    negative = data.draw(st.booleans())
    turned = [shape[axis] for axis in order]
    if all(turned[axis] == 1 for axis in axes):
        return
    attrs = {"axis": tuple(axis - len(shape) if negative else axis for axis in axes)}
    op = data.draw(st.sampled_from(["mean", "sum"]))
    region = _region(op, shape, order, **attrs, keepdims=data.draw(st.booleans()))
    assert isinstance(region.judge(region.function.bindings[-1]), Support)
    # Each of up to five partial means has a quotient, and the product that makes a sum of it.
    check_sums(region, [region.draw(*shape)], int(np.prod([turned[axis] for axis in axes])) + 10)
    assert "ref" not in region.source


def test_channels_last_are_not_reordered() -> None:
    region = _region("mean", (2, 7, 7, 16), (0, 3, 1, 2), axis=(2, 3))
    check_sums(region, [region.draw(2, 7, 7, 16)], 60)
    (line,) = region.source.splitlines()[1:]
    assert line.startswith("mean  jit:")


@pytest.mark.parametrize("attrs", [{"axis": (1,)}, {}, {"axis": (-1,), "keepdims": True}])
def test_products(attrs: dict[str, Any]) -> None:
    region = _region("prod", (3, 7), (0, 1), **attrs)
    x = region.draw(3, 7)
    (found,), (exact,) = region.run(x), region.oracle(x)
    assert (np.abs(found - exact) <= 21 * UNIT * 1.01 * np.abs(exact)).all()
    assert "prod  jit" in region.source


@pytest.mark.parametrize(
    ("op", "axes", "titles"),
    [
        ("prod", (1,), ["prod"]),
        ("prod", (2, 3), ["reorder", "prod"]),
        ("min", (3,), ["check for finite numbers", "reorder", "min"]),
    ],
)
def test_axes_innermost_only_in_row_major_order_are_made_innermost(
    op: str, axes: tuple[int, ...], titles: list[str]
) -> None:
    region = _region(op, (2, 4, 5, 3), (0, 3, 1, 2), axis=axes)
    x = region.draw(2, 4, 5, 3)
    (found,), (exact,) = region.run(x), region.oracle(x)
    assert (np.abs(found - exact) <= 20 * UNIT * 1.01 * np.abs(exact)).all()
    assert [line.partition("  ")[0] for line in region.source.splitlines()[1:]] == titles


def test_nan_and_infinities_go_on() -> None:
    for op, shape, axis in (
        ("sum", (4, 5), (1,)),
        ("mean", (5, 4), (0,)),
        ("sum", (2, 5, 4), (1,)),
        ("prod", (4, 5), (1,)),
    ):
        region = _region(op, shape, tuple(range(len(shape))), axis=axis)
        x = np.ones(shape, np.float32)
        moved = np.moveaxis(x, axis[0], -1)
        moved[..., 0, 0], moved[..., 1, 1], moved[..., 2, :2] = np.nan, -np.inf, (np.inf, -np.inf)
        np.testing.assert_array_equal(region.run(x)[0], region.oracle(x)[0].astype(np.float32))


@pytest.mark.parametrize(
    ("op", "shape", "attrs", "text"),
    [
        ("prod", (3, 7), {"axis": (0,)}, "oneDNN has only a reference implementation"),
        ("sum", (3, 1), {"axis": (1,)}, "all reduced axes have size 1"),
        ("sum", (), {}, "all reduced axes have size 1"),
    ],
)
def test_refusals(op: str, shape: tuple[int, ...], attrs: dict[str, Any], text: str) -> None:
    region = Region()
    answer = region.judge(region.builder.bind(op, [region.builder.param("x", tensor(shape))], attrs))
    assert isinstance(answer, Rejection)
    assert answer.text == f"`{op}`: {text}"


@pytest.mark.parametrize("axes", [(1,), (1, 2)])
def test_a_mean_of_what_lies_in_blocks_reads_it_row_major(axes: tuple[int, ...]) -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 2, 7, 15)))
    weight = region.builder.const(region.draw(32, 2, 3, 1))
    region.finish(emit(region, "mean", emit(region, "nn.conv2d", x, weight), axis=axes, keepdims=True))
    check_sums(region, [region.draw(1, 2, 7, 15)], 2 * (32 * 5 + 6))
