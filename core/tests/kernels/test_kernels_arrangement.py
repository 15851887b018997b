"""Kernels of triangles, blocks of pixels and borders against numpy's own functions, and laws between kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

RunNode = Callable[..., list[Any]]
_DTYPES = st.sampled_from([np.float32, np.float16, np.int64, np.uint8, np.bool_, ml_dtypes.bfloat16, ml_dtypes.int4])
_MODES = st.sampled_from(["DCR", "CRD"])


def _call(name: str, x: NDArray, **attrs: object) -> Any:
    return KERNELS[name](x, **default_ops()[name].normalise_attrs(attrs))


def _counted(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    return (np.arange(1, 1 + np.prod(shape, dtype=int)) % 7).reshape(shape).astype(dtype)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.lists(st.integers(0, 5), min_size=2, max_size=4),
    k=st.integers(-8, 8) | st.sampled_from([2**63 - 1, -(2**63)]),
    upper=st.booleans(),
    dtype=_DTYPES,
)
def test_trilu_is_numpys_triangle(shape: list[int], k: int, upper: bool, dtype: npt.DTypeLike) -> None:
    x = _counted(tuple(shape), dtype)
    near = max(min(k, 9), -9)  # numpy's own arithmetic overflows beyond
    wanted = np.triu(x, near) if upper else np.tril(x, near)
    result = _call("trilu", x, k=k, upper=upper)
    assert (result.dtype, result.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(result, wanted)


def test_trilu_puts_zeros_where_nan_was() -> None:
    x = np.full((2, 2), np.nan, np.float32)
    np.testing.assert_array_equal(_call("trilu", x), np.array([[np.nan, np.nan], [0, np.nan]], np.float32))


@settings(max_examples=60, deadline=None)
@given(sizes=st.tuples(*[st.integers(0, 3)] * 4), block=st.integers(1, 3), mode=_MODES, dtype=_DTYPES)
def test_space_to_depth_undoes_depth_to_space(
    sizes: tuple[int, ...], block: int, mode: str, dtype: npt.DTypeLike
) -> None:
    n, c, h, w = sizes
    x = _counted((n, c * block * block, h, w), dtype)
    spread = _call("depth_to_space", x, block_size=block, mode=mode)
    assert (spread.dtype, spread.shape) == (x.dtype, (n, c, h * block, w * block))
    back = _call("space_to_depth", spread, block_size=block, mode=mode)
    np.testing.assert_array_equal(back, x)
    for channel in range(c * block * block):
        if mode == "DCR":
            place, depth = divmod(channel, max(c, 1))
        else:
            depth, place = divmod(channel, block * block)
        row, column = divmod(place, block)
        np.testing.assert_array_equal(spread[:, depth, row::block, column::block], x[:, channel])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_equal_onnx_runtime(mode: str, run_node: RunNode) -> None:
    x = np.arange(2 * 18 * 2 * 4, dtype=np.float32).reshape(2, 18, 2, 4)
    (wanted,) = run_node("DepthToSpace", [x], opset=13, blocksize=3, mode=mode)
    np.testing.assert_array_equal(_call("depth_to_space", x, block_size=3, mode=mode), wanted)
    (wanted,) = run_node("SpaceToDepth", [x], opset=13, blocksize=2)
    np.testing.assert_array_equal(_call("space_to_depth", x, block_size=2), wanted)


@pytest.mark.parametrize(("name", "got", "divisor"), [("depth_to_space", 6, 4), ("space_to_depth", 3, 2)])
def test_blocks_that_do_not_fit_are_an_error(name: str, got: int, divisor: int) -> None:
    with pytest.raises(ExecutionError) as caught:
        _call(name, np.zeros((1, 6, 3, 2)), block_size=2)
    assert str(caught.value) == (
        f"op `{name}`: an axis is not divisible into blocks; got {got}, expected a multiple of {divisor}"
    )


@settings(max_examples=150, deadline=None)
@given(data=st.data(), mode=st.sampled_from(["edge", "reflect", "wrap"]), dtype=_DTYPES)
def test_border_pad_is_numpys_pad(
    data: st.DataObject, mode: Literal["edge", "reflect", "wrap"], dtype: npt.DTypeLike
) -> None:
    """Widths beyond the size, too."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=3)))
    widths = [tuple(data.draw(st.integers(0, 9)) for _ in range(2)) for _ in shape]
    x = _counted(shape, dtype)
    result = _call("nn.border_pad", x, pad_width=tuple(w for pair in widths for w in pair), mode=mode)
    wanted = np.pad(x, widths, mode=mode) if shape else x
    assert (result.dtype, result.shape) == (x.dtype, wanted.shape)
    np.testing.assert_array_equal(result, wanted)


def test_an_empty_axis_has_no_border() -> None:
    attrs = {"pad_width": (1, 0, 0, 0), "mode": "wrap"}
    with pytest.raises(ExecutionError) as caught:
        _call("nn.border_pad", np.zeros((0, 2)), **attrs)
    assert str(caught.value) == "op `nn.border_pad`: axis 0 is empty and has no element to repeat"
    assert _call("nn.border_pad", np.zeros((2, 0)), **attrs).shape == (3, 0)
