"""Kernels working in blocks of their operands: the block size changes no bit, and memory stays bounded."""

from __future__ import annotations

import tracemalloc
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from byoc_core.kernels.memory import BLOCK_ELEMENTS
from byoc_core.opset.families import KERNELS
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

Array = np.ndarray[Any, Any]

LAYOUTS = {1: ("NCW", "NWC", "OIW"), 2: ("NCHW", "NHWC", "OIHW"), 3: ("NCDHW", "NDHWC", "OIDHW")}


def blocks_of(nbytes: int) -> ExitStack:
    """Set the number of bytes of a block."""
    stack = ExitStack()
    for module in ("opset.families.convolution_kernels", "kernels.windows"):
        stack.enter_context(patch(f"byoc_core.{module}.BLOCK_BYTES", nbytes))
    return stack


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[str, list[Array], dict[str, Any]]:
    """Draw the name, operands and attributes of a convolution with exact sums."""
    rank = draw(st.integers(1, 3))

    def sizes(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    first, last, filters = LAYOUTS[rank]
    layout = draw(st.sampled_from([first, last]))
    groups, per_group, out_per_group = draw(st.sampled_from([(1, 1, 1), (1, 3, 2), (2, 2, 3), (4, 1, 1), (4, 1, 2)]))
    window = sizes(1, 3)
    attrs: dict[str, Any] = {
        "strides": sizes(1, 3),
        "padding": (*sizes(0, 3), *sizes(0, 3)),
        "dilation": sizes(1, 2),
        "groups": groups,
        "data_layout": layout,
        "kernel_layout": filters,
    }
    shape = dict(zip("DHW"[3 - rank :], (size + 4 for size in sizes(1, 4)), strict=True))
    shape |= {"N": draw(st.integers(0, 3)), "C": groups * per_group}
    dtype = draw(st.sampled_from(["float32", "float64", "float16", "int32"]))
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, [shape[axis] for axis in layout]).astype(dtype)
    weight = rng.integers(-4, 5, (groups * out_per_group, per_group, *window)).astype(dtype)
    return f"nn.conv{rank}d", [x, weight], attrs


def called_with_scratch(name: str, arrays: list[Array], attrs: dict[str, Any], like: Array) -> Array:
    """Return the result of a kernel's form with memory from the caller, and check the memory used."""
    form = KERNELS[name].form_for([a.dtype for a in arrays], [a.ndim for a in arrays], attrs)
    assert form.takes_out
    assert form.scratch is not None
    nbytes = form.scratch([a.shape for a in arrays], [a.dtype for a in arrays], attrs)
    assert isinstance(nbytes, int)
    room = np.full(nbytes + 192, 0xA5, np.uint8)
    start = 64 - room.ctypes.data % 64
    out = np.empty_like(like)
    is_direct = attrs.get("data_layout", attrs.get("layout", ""))[1] == "C" and like.dtype != np.float16
    own = AssertionError("memory of its own") if is_direct else None
    with patch("byoc_core.kernels.memory.np.empty", side_effect=own, wraps=np.empty):
        result: Array = form.call(*arrays, **attrs, out=out, scratch=room[start : start + nbytes])
    assert result is out
    assert (room[:start] == 0xA5).all()
    assert (room[start + nbytes :] == 0xA5).all()
    return result


@settings(max_examples=300, deadline=None)
@given(convolutions(), st.sampled_from([1, 100, 1000, 5000]))
def test_the_size_of_blocks_changes_no_bit_of_a_convolution(
    case: tuple[str, list[Array], dict[str, Any]], nbytes: int
) -> None:
    name, arrays, attrs = case
    expected = KERNELS[name](*arrays, **attrs)
    with blocks_of(nbytes):
        for result in (KERNELS[name](*arrays, **attrs), called_with_scratch(name, arrays, attrs, expected)):
            assert result.dtype == expected.dtype
            assert result.tobytes() == expected.tobytes()


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(["max", "avg"]), st.sampled_from([1, 100, 1000]))
def test_the_size_of_blocks_changes_no_bit_of_a_pooling(data: st.DataObject, kind: str, nbytes: int) -> None:
    rank = data.draw(st.integers(1, 3))

    def sizes(least: int, most: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(least, most)) for _ in range(rank))

    window = sizes(1, 3)
    attrs: dict[str, Any] = {
        "pool_size": window,
        "strides": sizes(1, 3),
        "padding": tuple(data.draw(st.integers(0, size - 1)) for size in (*window, *window)),
        "dilation": sizes(1, 2),
        "ceil_mode": data.draw(st.booleans()),
        "layout": data.draw(st.sampled_from(LAYOUTS[rank][:2])),
    }
    if kind == "avg":
        attrs["count_include_pad"] = data.draw(st.booleans())
    shape = dict(zip("DHW"[3 - rank :], (size + 4 for size in sizes(1, 4)), strict=True))
    shape |= {"N": data.draw(st.integers(0, 3)), "C": 3}
    dtype = data.draw(st.sampled_from(["float32", "float64", "float16", "int32"]))
    x = np.random.default_rng(0).integers(-9, 9, [shape[axis] for axis in attrs["layout"]]).astype(dtype)
    name = f"nn.{kind}_pool{rank}d"
    expected = KERNELS[name](x, **attrs)
    with blocks_of(nbytes), patch("byoc_core.opset.families.pooling_kernels.BLOCK_BYTES", nbytes):
        for result in (KERNELS[name](x, **attrs), called_with_scratch(name, [x], attrs, expected)):
            assert result.dtype == expected.dtype
            assert result.tobytes() == expected.tobytes()


ELEMENTWISE: list[tuple[str, dict[str, Any]]] = [
    ("erf", {}), ("sigmoid", {}), ("nn.gelu", {"approximate": "none"}), ("nn.gelu", {"approximate": "tanh"}),
    ("nn.mish", {}), ("nn.elu", {"alpha": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs"), ELEMENTWISE)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_long_vectors_are_computed_as_short_ones(name: str, attrs: dict[str, Any], dtype: str) -> None:
    x = (np.random.default_rng(0).standard_normal(3 * BLOCK_ELEMENTS + 5) * 3).astype(dtype)
    x[:5] = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    parts = [KERNELS[name](x[i : i + BLOCK_ELEMENTS], **attrs) for i in range(0, x.size, BLOCK_ELEMENTS)]
    expected = np.concatenate(parts)
    form = KERNELS[name].form_for([x.dtype], [1], attrs)
    with np.errstate(all="ignore"):
        results = [KERNELS[name](x, **attrs), form.call(x, **attrs, out=np.empty_like(x))] if form.takes_out else []
        results += [form.call(y := x.copy(), **attrs, out=y)] if form.takes_out else [form.call(x, **attrs)]
    for result in results:
        assert result.dtype == x.dtype
        assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("name", "attrs"), ELEMENTWISE)
def test_long_vectors_need_no_more_than_the_result_and_a_block(name: str, attrs: dict[str, Any]) -> None:
    x = np.ones(1 << 20, np.float32)
    KERNELS[name](x, **attrs)
    tracemalloc.start()
    try:
        KERNELS[name](x, **attrs)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Some temporaries of float64.
    assert peak < x.nbytes + 13 * 8 * BLOCK_ELEMENTS
