"""Adaptive pooling and axes of size 1 against plain numpy."""

from __future__ import annotations

import itertools
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.ir import IRModule, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

ORACLES = {
    "expand_dims": "numpy.squeeze undone",
    "nn.adaptive_avg_pool1d": "numpy over each window",
    "nn.adaptive_avg_pool2d": "numpy over each window",
    "nn.adaptive_avg_pool3d": "numpy over each window",
    "nn.adaptive_max_pool1d": "numpy over each window",
    "nn.adaptive_max_pool2d": "numpy over each window",
    "nn.adaptive_max_pool3d": "numpy over each window",
    "squeeze": "numpy.squeeze",
}
"""The oracles of ops missing in ONNX Runtime."""

_POOLS = [
    ("nn.adaptive_max_pool1d", "nn.adaptive_avg_pool1d"),
    ("nn.adaptive_max_pool2d", "nn.adaptive_avg_pool2d"),
    ("nn.adaptive_max_pool3d", "nn.adaptive_avg_pool3d"),
]
_UNIT = float(np.finfo(np.float32).eps) / 2


def _windows(x: NDArray, output_size: tuple[int, ...]) -> Any:
    """Yield the place of each window in the result, and the window's elements."""
    sizes = x.shape[2:]
    for place in itertools.product(*map(range, output_size)):
        begins = [i * size // count for i, size, count in zip(place, sizes, output_size, strict=True)]
        ends = [-(-(i + 1) * size // count) for i, size, count in zip(place, sizes, output_size, strict=True)]
        yield place, x[:, :, *map(slice, begins, ends)]


@pytest.mark.parametrize("rank", [1, 2, 3])
@given(data=st.data())
def test_windows_are_those_of_the_definition(rank: int, data: st.DataObject) -> None:
    sizes = st.lists(st.integers(1, 7), min_size=rank, max_size=rank)
    shape, output_size = (2, 3, *data.draw(sizes)), tuple(data.draw(sizes))
    x = np.random.default_rng(data.draw(st.integers(0, 9))).normal(size=shape).astype(np.float32)
    layout = "NC" + "DHW"[-rank:]
    largest, mean = (KERNELS[op](x, output_size=output_size, layout=layout) for op in _POOLS[rank - 1])
    assert isinstance(largest, np.ndarray)
    assert isinstance(mean, np.ndarray)
    for place, window in _windows(x, output_size):
        axes = tuple(range(2, 2 + rank))
        np.testing.assert_array_equal(largest[(..., *place)], window.max(axis=axes))
        exact = window.astype(np.float64).mean(axis=axes)
        # A sum and a quotient along each axis, so rank + elements roundings at the most.
        roundings = rank + int(np.prod(window.shape[2:]))
        bound = roundings * _UNIT / (1 - roundings * _UNIT) * np.abs(window.astype(np.float64)).mean(axis=axes)
        assert (np.abs(mean[(..., *place)] - exact) <= bound).all()


def test_nan_wins_and_spreads() -> None:
    x = np.array([[[1.0, np.nan, 3.0, 4.0]]], np.float32)
    for kind, last in (("max", 4.0), ("avg", 3.5)):
        result = KERNELS[f"nn.adaptive_{kind}_pool1d"](x, output_size=(2,), layout="NCW")
        np.testing.assert_array_equal(result, np.array([[[np.nan, last]]], np.float32))


def test_an_axis_that_is_empty_at_run_time() -> None:
    with pytest.raises(ExecutionError) as caught:
        KERNELS["nn.adaptive_max_pool1d"](np.zeros((1, 2, 0), np.float32), output_size=(1,), layout="NCW")
    assert str(caught.value) == "op `adaptive pooling`: spatial axis 2 is empty; got (1, 2, 0)"


@given(data=st.data())
def test_squeeze_and_expand_dims_are_numpys(data: st.DataObject) -> None:
    x = np.arange(24).reshape(data.draw(st.permutations([1, 2, 3, 1, 4])))
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    chosen = tuple(data.draw(st.sets(st.sampled_from(ones), min_size=1)))
    squeezed = KERNELS["squeeze"](x, axis=chosen)
    np.testing.assert_array_equal(squeezed, np.squeeze(x, chosen))
    np.testing.assert_array_equal(KERNELS["squeeze"](x, axis=None), np.squeeze(x))
    np.testing.assert_array_equal(KERNELS["expand_dims"](squeezed, axis=chosen), x)


def test_an_axis_that_turns_out_not_to_have_size_1() -> None:
    builder = FunctionBuilder("main")
    x = builder.param("x", tensor(("n", 3)))
    squeezed = builder.bind("squeeze", [x], {"axis": (0,)}).result
    wide = builder.bind("expand_dims", [squeezed], {"axis": (0, 2)}).result
    pooled = builder.bind("nn.adaptive_avg_pool1d", [wide], {"output_size": (1,), "layout": "NWC"}).result
    module = IRModule({"main": builder.finish(wide, pooled)}, builder.constants)
    assert byoc_core.parse(str(module)) == module
    machine = byoc_core.VirtualMachine(byoc_core.build(module, []))
    array = np.arange(3, dtype=np.float32)[np.newaxis]
    same, mean = machine["main"](array)
    np.testing.assert_array_equal(same, array[..., np.newaxis])
    np.testing.assert_array_equal(mean, [[[1.0]]])
    with pytest.raises(ExecutionError, match="axis 0 does not have size 1; got 2"):
        machine["main"](np.zeros((2, 3), np.float32))
