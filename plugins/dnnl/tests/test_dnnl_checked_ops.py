"""Ops with oneDNN's meaning for finite numbers only: computed for all numbers, after a check."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection, Support
from byoc_core.ir import Value, tensor
from byoc_core.opset.families import KERNELS
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import UNIT, NDArray, Region, emit

_SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 3e38, -3e38, 1e-45], np.float32)


def _region(
    op: str, arrays: list[NDArray], constants: tuple[int, ...] = (), **attrs: object
) -> tuple[Region, list[NDArray]]:
    """Return a region of a single op; operands with given numbers are constants."""
    region = Region()
    operands: list[Value] = [
        region.builder.const(array) if index in constants else region.builder.param(f"x{index}", tensor(array.shape))
        for index, array in enumerate(arrays)
    ]
    (result,) = region.builder.bind(op, operands, attrs).results
    region.finish(result)
    assert isinstance(region.judge(region.function.bindings[-1]), Support)
    return region, [array for index, array in enumerate(arrays) if index not in constants]


def _spoilt(array: NDArray) -> NDArray:
    changed = array.copy()
    changed.flat[: len(_SPECIAL)] = _SPECIAL[: changed.size]
    return np.random.default_rng(changed.size).permutation(changed.ravel()).reshape(changed.shape)


EXTREMES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("max", (4, 33), {"axis": (1,)}),
    ("max", (4, 33), {"axis": (0,)}),
    ("max", (2, 16, 5, 5), {"axis": (0, 2, 3), "keepdims": True}),
    ("max", (3, 4), {}),
    ("min", (4, 33), {"axis": (-1,)}),
    ("min", (2, 3, 4), {}),
    ("nn.max_pool2d", (1, 16, 9, 9), {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}),
    ("nn.max_pool2d", (1, 8, 8, 16), {"pool_size": (2, 2), "layout": "NHWC"}),
    ("nn.max_pool1d", (2, 3, 9), {"pool_size": (2,)}),
    ("nn.adaptive_max_pool2d", (2, 16, 9, 8), {"output_size": (3, 4)}),
    ("nn.adaptive_max_pool1d", (2, 9, 16), {"output_size": (1,), "layout": "NWC"}),
]


@pytest.mark.parametrize(("op", "shape", "attrs"), EXTREMES)
def test_extremes_are_elements(op: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    region, (x,) = _region(op, [Region(seed=3).draw(*shape)], **attrs)
    for image in (x, -np.abs(x), _spoilt(x), np.full_like(x, -np.inf), np.full_like(x, np.nan)):
        expected = KERNELS[op](image, **region.function.bindings[-1].attrs)
        np.testing.assert_array_equal(region.run(image)[0], expected)
    assert "check for finite numbers" in region.source
    assert f"{op}  jit" in region.source or f"{op}  simple_nchw" in region.source


@given(st.data())
def test_means_of_windows_to_a_given_size(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    counts = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    image = tuple(count * data.draw(st.integers(1, 4)) for count in counts)
    region, (x,) = _region(f"nn.adaptive_avg_pool{rank}d", [Region().draw(2, 3, *image)], output_size=counts)
    length = int(np.prod(image)) + 2
    (found,), (exact,) = region.run(x), region.oracle(x)
    assert (np.abs(found - exact) <= length * UNIT / (1 - length * UNIT) * region.oracle(x, magnitudes=True)[0]).all()


@given(st.integers(1, 40), st.integers(1, 40))
def test_windows_are_alike_exactly_where_one_primitive_pools(size: int, count: int) -> None:
    starts = [index * size // count for index in range(count)]
    lengths = {-(-(index + 1) * size // count) - start for index, start in enumerate(starts)}
    steps = {after - before for before, after in itertools.pairwise(starts)}
    region = Region()
    x = region.builder.param("x", tensor((1, 2, size)))
    answer = region.judge(region.builder.bind("nn.adaptive_avg_pool1d", [x], {"output_size": (count,)}))
    assert isinstance(answer, Support) == (len(lengths) == 1 and len(steps) < 2 and steps != {0})


def test_windows_without_number_are_refused_at_once() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 2, 8)))
    answer = region.judge(region.builder.bind("nn.adaptive_avg_pool1d", [x], {"output_size": (2**61,)}))
    assert isinstance(answer, Rejection)


def test_uneven_windows_are_refused() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 2, 8)))
    answer = region.judge(region.builder.bind("nn.adaptive_avg_pool1d", [x], {"output_size": (3,)}))
    assert isinstance(answer, Rejection)
    assert answer.text == "`nn.adaptive_avg_pool1d`: windows of several sizes, or at uneven steps"


SLOPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 4, 5), (3, 1, 1)),
    ((2, 3), (3,)),
    ((2, 16, 4), (2, 16, 4)),
    ((7,), (7,)),
]


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize(("shape", "slopes"), SLOPES)
def test_slopes(shape: tuple[int, ...], slopes: tuple[int, ...], constants: tuple[int, ...]) -> None:
    draw = Region(seed=5).draw
    region, inputs = _region("nn.prelu", [draw(*shape), draw(*slopes)], constants)
    given_ = draw(*slopes) if not constants else region.builder.constants[next(iter(region.builder.constants))]
    images = inputs[0], _spoilt(inputs[0])
    tilted = [given_] if constants else [given_, _spoilt(given_), np.full_like(given_, np.inf)]
    for image in images:
        for slope in tilted:
            with np.errstate(all="ignore"):
                expected = KERNELS["nn.prelu"](image, slope)
            np.testing.assert_array_equal(region.run(*([image] if constants else [image, slope]))[0], expected)
    assert "nn.prelu  jit" in region.source
    # What is known of a constant needs no check.
    assert ("check for" in region.source) is not bool(constants)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_slopes_of_channels_in_any_layout(order: tuple[int, ...]) -> None:
    region, sizes = Region(), (2, 16, 5, 7)
    x = region.builder.param("x", tensor([sizes[axis] for axis in order]))
    turned = emit(region, "permute_dims", x, axes=tuple(order.index(axis) for axis in range(4)))
    value = emit(region, "nn.prelu", emit(region, "negative", turned), region.builder.const(region.draw(16, 1, 1)))
    region.finish(value)
    drawn = region.draw(*(sizes[axis] for axis in order))
    np.testing.assert_array_equal(region.run(drawn)[0], region.oracle(drawn)[0].astype(np.float32))


def test_constant_slopes_that_are_not_finite_are_refused() -> None:
    """The values of a binding's constants are known when a region is compiled."""
    region = Region()
    x = region.builder.param("x", tensor((2, 3)))
    slope = region.builder.const(np.array([1, np.inf, 2], np.float32))
    result = region.builder.emit("nn.prelu", x, slope)
    assert not isinstance(result, tuple)
    region.finish(result)
    from byoc_core.backend.hooks import CompileContext
    from byoc_dnnl.backend import byoc_codegen

    answer = byoc_codegen([region.function], CompileContext("dnnl", None, region.builder.constants))
    (rejection,) = answer.rejections.values()
    assert rejection.text == "`nn.prelu`: oneDNN multiplies slopes by 0, and a constant slope is not finite"


@pytest.mark.parametrize(
    ("op", "attrs", "ulps"), [("nn.softsign", {}, 2), ("reciprocal", {}, 1), ("nn.celu", {"alpha": 1.0}, 8)]
)
def test_functions_of_each_element(op: str, attrs: dict[str, Any], ulps: float) -> None:
    x = np.concatenate([_SPECIAL, np.linspace(-30, 30, 999, dtype=np.float32), Region().draw(99)])
    region, _ = _region(op, [x], **attrs)
    for given_ in (x, x[len(_SPECIAL) :]):
        padded = np.resize(given_, x.shape)
        (found,), (exact,) = region.run(padded), region.oracle(padded)
        with np.errstate(over="ignore"):
            exact = exact.astype(np.float32)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
        infinite = np.isinf(exact)
        np.testing.assert_array_equal(found[infinite], exact[infinite])
        fine = np.isfinite(exact)
        largest = np.maximum(np.abs(exact[fine]), 1 if op == "nn.celu" else 0)
        assert (np.abs(found[fine] - exact[fine]) <= 2 * ulps * UNIT * largest + 2.0**-126).all()


def test_celu_of_another_scale_is_refused() -> None:
    region = Region()
    answer = region.judge(region.builder.bind("nn.celu", [region.builder.param("x", tensor((4,)))], {"alpha": 2.0}))
    assert isinstance(answer, Rejection)
    assert answer.text == "`nn.celu`: oneDNN's ELU has no factor within the exponential"


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((2, 16, 9, 8), {"axes": (2, 3), "sizes": (18, 16)}),
        ((1, 3, 16, 8), {"axes": (2, 3), "sizes": (64, 4)}),
        ((2, 9, 8, 16), {"axes": (1, 2), "sizes": (18, 32)}),
        ((2, 3, 5), {"axes": (2,), "sizes": (10,)}),
        ((1, 2, 3, 4, 5), {"axes": (2, 3, 4), "sizes": (6, 8, 10)}),
    ],
)
def test_linear_interpolation(shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    region, (x,) = _region("nn.resize", [Region().draw(*shape)], method="linear", **attrs)
    (found,), (exact,) = region.run(x), region.oracle(x)
    # Along each axis two weights that are within two units, two products and a sum; weights add up to 1.
    allowed = len(attrs["axes"]) * 7 * UNIT * 1.01 * np.abs(x).max()
    assert (np.abs(found - exact) <= allowed).all()
    spoilt = _spoilt(x)
    with np.errstate(all="ignore"):
        expected = KERNELS["nn.resize"](spoilt, **region.function.bindings[-1].attrs)
    np.testing.assert_array_equal(region.run(spoilt)[0], expected)
    assert "nn.resize  jit" in region.source


def test_linear_interpolation_at_other_places_is_refused() -> None:
    for attrs in ({"coordinates": "align_corners"}, {"coordinates": "asymmetric"}, {"scales": (1.9, 2.0)}):
        region = Region()
        x = region.builder.param("x", tensor((2, 16, 9, 8)))
        how = {"axes": (2, 3), "sizes": (18, 16), "method": "linear", **attrs}
        answer = region.judge(region.builder.bind("nn.resize", [x], how))
        assert isinstance(answer, Rejection)
        assert answer.text == "`nn.resize`: oneDNN samples other coordinates along axis 2"
