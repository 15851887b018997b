"""Every kernel on every dtype permitted by the op: dtype and shape of the type rule, and never a warning."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.ir import TensorType
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, new_function
from byoc_core.opset.families import KERNELS

pytestmark = pytest.mark.interpreter

_EXTREME: dict[str, dict[str, Any]] = {"clip": {"min": -1e40, "max": 1e40}, "nn.pad": {"pad_value": 1e40}}
"""Attributes outside the range of most dtypes, by op name."""


def _array(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Return numbers of both signs, with zero, the smallest integer and, for floats, NaN and infinity."""
    numbers = np.resize(np.array([-8.0, 0.0, np.nan, 2.0, np.inf, -1.0, 7.0]), shape)
    if not np.issubdtype(to_numpy(dtype), np.floating) and dtype not in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        numbers = np.nan_to_num(numbers, nan=3.0, posinf=5.0)
    return np.asarray(np.abs(numbers) if dtype.startswith("uint") else numbers).astype(to_numpy(dtype))


@pytest.mark.parametrize("name", sorted(name for name in KERNELS if not default_ops()[name].declares_results))
def test_a_kernel_gives_the_type_that_its_op_promises(name: str) -> None:
    op = default_ops()[name]
    for dtype, case in itertools.product(all_dtypes(), canonical_cases(default_ops())[name]):
        types, given = case.types(dtype), {**case.attrs, **_EXTREME.get(name, {})}
        try:
            _, binding = new_function(op, types, given)
        except IRTypeError:
            continue  # the op does not take this dtype
        fitting = case.arrays(np.random.default_rng(0), dtype)
        arrays = [
            array if operand.dtype else _array(operand.shape, dtype)
            for array, operand in zip(fitting, case.operands, strict=True)
        ]
        before = [array.tobytes() for array in arrays]
        outputs = KERNELS[name](*arrays, **binding.attrs)
        promised = [result.type for result in binding.results]
        for output, type_ in zip(outputs if isinstance(outputs, tuple) else (outputs,), promised, strict=True):
            assert isinstance(output, np.ndarray)
            assert TensorType(output.shape, output.dtype.name) == type_, f"of {', '.join(map(str, types))}"
        assert [array.tobytes() for array in arrays] == before, f"of {', '.join(map(str, types))}"


_SINGLE: Mapping[str, Callable[..., Any]] = KERNELS
"""The kernels with a single result."""


def test_integers_of_four_bits_wrap_around() -> None:
    x = np.array([-8, 7, -3], ml_dtypes.int4)
    y = np.array([0, -1, 2], ml_dtypes.int4)
    assert _SINGLE["negative"](x).tolist() == [-8, -7, 3]
    assert _SINGLE["abs"](x).tolist() == [-8, 7, 3]
    assert _SINGLE["maximum"](x, y).tolist() == [0, 7, 2]
    assert _SINGLE["divide"](x, y).tolist() == [0, -7, -1]
    assert _SINGLE["power"](x, np.array([1, 2, 3], ml_dtypes.int4)).tolist() == [-8, 1, 5]
    assert _SINGLE["nn.relu"](x).tolist() == [0, 7, 0]


def test_max_pool_of_eight_bit_floats() -> None:
    x = np.arange(16.0).reshape(1, 1, 4, 4).astype(ml_dtypes.float8_e5m2)
    attrs = {"strides": (2, 2), "padding": (0, 0, 0, 0), "dilation": (1, 1), "ceil_mode": False, "layout": "NCHW"}
    result = _SINGLE["nn.max_pool2d"](x, pool_size=(2, 2), **attrs)
    assert result.dtype == x.dtype
    assert result.tolist() == np.array([[[[5.0, 7.0], [13.0, 15.0]]]]).astype(x.dtype).tolist()


def test_an_index_into_an_empty_axis_is_an_error_in_every_mode() -> None:
    for mode in ("fast", "clip"):
        with pytest.raises(ExecutionError) as caught:
            _SINGLE["take"](np.ones((0, 2), np.float32), np.array([0]), axis=0, mode=mode)
        assert str(caught.value) == (
            "op `take`: an index lies outside axis 0; got 0, expected no index at all: the axis is empty"
        )
