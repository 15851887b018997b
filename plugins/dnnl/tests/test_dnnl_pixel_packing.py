"""Convolutions of few outputs, computing several pixels of a row at once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.dtypes import float_limits
from byoc_core.errors import ArtifactError, ExecutionError
from byoc_core.ir import Value, tensor
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import RuntimeModule
from byoc_dnnl.capi import Argument
from byoc_dnnl.derived_constants import ShiftedRows
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.engine import open_engine
from byoc_dnnl.plan import Step
from byoc_dnnl.precision import lacks_instructions
from byoc_dnnl.program import Program
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import NDArray, Region, check_sums, emit, need_avx512
from plugins.dnnl.tests.narrow_oracle import gamma


def _convolution(
    image: tuple[int, ...], weights: tuple[int, ...], *, bias: bool = True, **attrs: object
) -> tuple[Region, NDArray]:
    """Return a region of a single convolution, with an image."""
    region = Region()
    builder = region.builder
    x: Value = builder.param("x", tensor(image))
    value = emit(region, f"nn.conv{len(image) - 2}d", x, builder.const(region.draw(*weights)), **attrs)
    if bias:
        value = emit(region, "nn.bias_add", value, builder.const(region.draw(weights[0])), axis=1)
    region.finish(value)
    return region, region.draw(*image)


def _written(region: Region, *inputs: NDArray) -> list[tuple[int, ...]]:
    """Return the sizes written by each convolution, as seen by the primitive."""
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    program = built.program(1, tuple(array.shape for array in (*inputs, *region.oracle(*inputs))))
    assert isinstance(program, Program)
    steps = [step for step in program.plan.steps if isinstance(step, Step) and step.title.startswith("nn.conv")]
    return [step.arguments[Argument.DST].desc.sizes for step in steps]


TAKEN: list[tuple[Any, ...]] = [
    # The image, the weights, attributes, what the primitive writes.
    ((1, 1, 28, 28), (6, 1, 5, 5), {"padding": (2, 2, 2, 2)}, (1, 12, 28, 14)),
    ((2, 32, 9, 16), (3, 32, 3, 3), {"padding": (1, 1, 1, 1)}, (2, 12, 9, 4)),
    ((1, 32, 6, 32), (1, 32, 3, 3), {"padding": (0, 1, 0, 1)}, (1, 8, 4, 4)),
    ((1, 16, 8, 20), (2, 16, 9, 9), {"padding": (4, 4, 4, 4)}, (1, 10, 8, 4)),
    ((1, 16, 8, 21), (4, 16, 5, 5), {"padding": (2, 0, 1, 3), "strides": (1, 2)}, (1, 8, 7, 5)),
    ((1, 16, 10, 18), (4, 16, 3, 3), {"dilation": (2, 1)}, (1, 16, 6, 4)),
    ((1, 16, 64), (2, 16, 5), {"padding": (2, 2)}, (1, 16, 8)),
    ((1, 8, 4, 5, 8), (2, 8, 3, 3, 3), {"padding": (1,) * 6}, (1, 16, 4, 5, 1)),
]


@pytest.mark.parametrize(("image", "weights", "attrs", "written"), TAKEN)
@pytest.mark.parametrize("bias", [True, False])
def test_neighbours_become_channels(
    image: tuple[int, ...], weights: tuple[int, ...], attrs: Mapping[str, Any], written: tuple[int, ...], bias: bool
) -> None:
    need_avx512()
    region, x = _convolution(image, weights, bias=bias, **attrs)
    check_sums(region, [x], 2 * int(np.prod(weights[1:])) + 4)
    assert _written(region, x) == [written]


LEFT: list[tuple[Any, ...]] = [
    ((1, 16, 9, 16), (16, 16, 3, 3), {"padding": (1, 1, 1, 1)}),  # a vector is full
    ((1, 16, 9, 16), (12, 16, 3, 3), {"padding": (1, 1, 1, 1)}),  # or nearly so
    ((1, 16, 9, 16), (3, 16, 1, 1), {}),  # windows of one column share nothing
    ((1, 16, 9, 16), (3, 16, 3, 2), {"strides": (1, 2)}),  # nor do those that do not overlap
    ((1, 16, 9, 17), (3, 16, 3, 3), {"padding": (1, 1, 1, 1)}),  # 17 pixels are more than a vector has lanes
    ((1, 16, 9, 16), (4, 8, 3, 3), {"padding": (1, 1, 1, 1), "groups": 2}),
    ((1, 16, 9, 20), (3, 16, 3, 3), {"dilation": (1, 2)}),
]


@pytest.mark.parametrize(("image", "weights", "attrs"), LEFT)
def test_where_it_is_no_gain_pixels_stay_pixels(
    image: tuple[int, ...], weights: tuple[int, ...], attrs: Mapping[str, Any]
) -> None:
    need_avx512()
    region, x = _convolution(image, weights, **attrs)
    check_sums(region, [x], 2 * int(np.prod(weights[1:])) + 4)
    assert _written(region, x) == [region.oracle(x)[0].shape]


@pytest.mark.parametrize("free", ["weights", "bias"])
def test_what_is_no_constant_is_left(free: str) -> None:
    need_avx512()
    region = Region()
    shapes = {"weights": (3, 32, 3, 3), "bias": (3,)}
    x = region.builder.param("x", tensor((1, 32, 9, 16)))
    given: dict[str, Value] = {name: region.builder.const(region.draw(*shape)) for name, shape in shapes.items()}
    given[free] = region.builder.param(free, tensor(shapes[free]))
    value = emit(region, "nn.conv2d", x, given["weights"], padding=(1,) * 4)
    region.finish(emit(region, "nn.bias_add", value, given["bias"], axis=1))
    inputs = [region.draw(1, 32, 9, 16), region.draw(*shapes[free])]
    check_sums(region, inputs, 2 * 288 + 4)
    assert _written(region, *inputs) == [(1, 3, 9, 16)]


def test_weights_of_several_convolutions_are_made_once() -> None:
    need_avx512()
    region = Region()
    x = region.builder.param("x", tensor((1, 32, 9, 16)))
    weight, bias = region.builder.const(region.draw(3, 32, 3, 3)), region.builder.const(region.draw(3))
    values = [x, emit(region, "nn.relu", x)]
    results = [emit(region, "nn.conv2d", value, weight, padding=(1,) * 4) for value in values]
    region.finish(*(emit(region, "nn.bias_add", result, bias, axis=1) for result in results))
    image = region.draw(1, 32, 9, 16)
    check_sums(region, [image], 2 * 288 + 4)
    assert region.source.count("pack ") == 1
    assert _written(region, image) == [(1, 12, 9, 4)] * 2


def test_what_is_added_to_the_image_is_a_post_op() -> None:
    need_avx512()
    region = Region()
    builder, image = region.builder, (1, 3, 16, 32)
    x = builder.param("x", tensor(image))
    first = emit(region, "nn.conv2d", x, builder.const(region.draw(32, 3, 1, 1)))
    value = emit(region, "nn.conv2d", first, builder.const(region.draw(3, 32, 3, 3)), padding=(1,) * 4)
    value = emit(region, "nn.relu", emit(region, "add", value, x))
    region.finish(value)
    drawn = region.draw(*image)
    check_sums(region, [drawn], 2 * (288 + 3) + 6)
    assert "nn.conv2d + add + nn.relu" in region.source
    assert _written(region, drawn) == [(1, 32, 16, 32), (1, 12, 16, 8)]


@pytest.mark.parametrize("shape", [(3, 9, 16), (9, 16), (1, 3, 9, 16), (3, 1, 1), (16,), ()])
def test_numbers_that_are_added_may_have_fewer_axes(shape: tuple[int, ...]) -> None:
    region = Region()
    builder, image = region.builder, (1, 32, 9, 16)
    x = builder.param("x", tensor(image))
    value = emit(region, "nn.conv2d", x, builder.const(region.draw(3, 32, 3, 3)), padding=(1,) * 4)
    value = emit(region, "add", value, builder.const(region.draw(*shape)))
    region.finish(emit(region, "multiply", value, builder.const(region.draw(*shape))))
    drawn = region.draw(*image)
    check_sums(region, [drawn], 2 * 288 + 8)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_does_not_reach_its_neighbours(number: float) -> None:
    region, x = _convolution((1, 32, 9, 16), (3, 32, 3, 3), padding=(1, 1, 1, 1))
    x[0, 5, 4, 6] = number
    (found,), (exact,) = region.run(x), region.oracle(x)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(exact))
    assert 0 < (~np.isfinite(found)).sum() <= 27


def test_with_factors_of_bfloat16() -> None:
    engine = open_engine()
    if lacks_instructions(engine.isa, "bfloat16"):
        pytest.skip("oneDNN has no instructions for bfloat16 here")
    region, x = _convolution((1, 32, 9, 16), (3, 32, 3, 3), padding=(1, 1, 1, 1))
    made = byoc_core.build(region.ir, ["dnnl"], fallback="error", options={"dnnl": {"precision": "bfloat16"}})
    (found,) = byoc_core.VirtualMachine(made)["f"](x)
    (exact,), (magnitude,) = region.oracle(x), region.oracle(x, magnitudes=True)
    # Both factors are rounded to 8 bits; sums are those of float32.
    bound = (1 + float_limits("bfloat16").unit_roundoff) ** 2 * (1 + gamma(2 * 288 + 1)) - 1
    assert (np.abs(np.asarray(found) - exact) <= bound * magnitude).all()
    # oneDNN's names of its implementations tell of bfloat16, or of the units that multiply it.
    assert re.search("bf16|amx", made.modules[0].get_source())


def _load(document: object, region: Region) -> RuntimeModule:
    return byoc_load_module(json.dumps(document).encode(), LoadContext(constants=region.builder.constants))


FORGED = [
    ("result", [1, 4, 9, 16]),
    ("result", [1, 16, 9, 16]),
    ("result", [1, 3, 9, 15]),
    ("result", [1, 3, 9, 1600]),
    ("image", [1, 32, 9, 8]),
    ("image", [1, 32, 9, 17]),
    ("padding", [1, 1, 1, 2**70]),
    ("padding", [1, 2**70, 1, 1]),
    ("padding", [1, 1, 1, -4]),
    ("strides", [1, 2]),
    ("strides", [1, -1]),
    ("strides", [1, 0]),
]


@pytest.mark.parametrize(("what", "value"), FORGED)
def test_documents_whose_sizes_do_not_fit_are_refused(what: str, value: list[int]) -> None:
    region, image = _convolution((1, 32, 9, 16), (3, 32, 3, 3), bias=False, padding=(1, 1, 1, 1))
    document = json.loads(byoc_save_module(region.module))
    (function,) = document["functions"]
    (node,) = function["nodes"]
    if what == "result":
        node["outputs"][0]["shape"] = value
    elif what == "image":
        function["inputs"][0]["shape"], image = value, region.draw(*value)
    else:
        node["attrs"][what] = value
    result = np.zeros(node["outputs"][0]["shape"], np.float32)
    with pytest.raises((ArtifactError, ExecutionError)):
        _load(document, region).get_function("f")(image, result)


@given(
    rank=st.integers(1, 3),
    inputs=st.integers(1, 5),
    outputs=st.integers(1, 9),
    taps=st.integers(1, 6),
    stride=st.integers(1, 3),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    length=st.integers(8, 24),
    bias=st.booleans(),
)
def test_all_geometries(
    rank: int,
    inputs: int,
    outputs: int,
    taps: int,
    stride: int,
    padding: tuple[int, int],
    length: int,
    bias: bool,
) -> None:
    before, after = padding
    side = 3 if rank > 1 else length
    image = (1, inputs, *(side,) * (rank - 1), length)
    weights = (outputs, inputs, *(2,) * (rank - 1), taps)
    attrs = {
        "strides": (*(1,) * (rank - 1), stride),
        "padding": (*(0,) * (rank - 1), before, *(1,) * (rank - 1), after),
    }
    region, x = _convolution(image, weights, bias=bias, **attrs)
    check_sums(region, [x], 2 * int(np.prod(weights[1:])) + 4)


@given(rows=st.integers(1, 4), taps=st.integers(1, 5), count=st.integers(1, 4), step=st.integers(1, 3))
def test_shifted_rows(rows: int, taps: int, count: int, step: int) -> None:
    array = np.arange(1, 1 + rows * taps, dtype=np.float32)
    derivation = ShiftedRows((rows, taps), count, step)
    made = derivation.apply(array)
    assert made.shape == derivation.result_sizes
    for number, copy in enumerate(made):
        start = number * step
        np.testing.assert_array_equal(copy[:, start : start + taps], array.reshape(rows, taps))
        assert copy.sum() == array.sum()
