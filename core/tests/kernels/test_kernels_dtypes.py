"""Every kernel on every dtype that its op takes: dtype and shape of the type rule, and never a warning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.ir import TensorType, Var, infer_results
from byoc_core.kernels import KERNELS
from byoc_core.ops import default_ops

_CASES: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "matmul": ([(2, 3), (3, 4)], {}),
    "nn.dense": ([(2, 3), (4, 3)], {}),
    "nn.bias_add": ([(2, 3), (3,)], {}),
    "nn.conv2d": ([(1, 2, 5, 5), (4, 2, 3, 3)], {"padding": (1, 1, 1, 1)}),
    "nn.max_pool2d": ([(1, 2, 5, 5)], {"pool_size": (2, 2), "strides": (2, 2), "padding": (1, 1, 1, 1)}),
    "nn.avg_pool2d": ([(1, 2, 5, 5)], {"pool_size": (2, 2), "strides": (2, 2), "padding": (1, 1, 1, 1)}),
    "nn.batch_norm": ([(1, 2, 3, 3), (2,), (2,), (2,), (2,)], {}),
    "nn.layer_norm": ([(2, 3), (3,), (3,)], {}),
    "cast": ([(2, 3)], {"dtype": "int8"}),
    "clip": ([(2, 3)], {"min": -1e40, "max": 1e40}),
    "reshape": ([(2, 3)], {"shape": (3, 2)}),
    "broadcast_to": ([(2, 3)], {"shape": (4, 2, 3)}),
    "split": ([(3, 2)], {"sections": (1, 2), "axis": 0}),
    "concat": ([(2, 3), (2, 3)], {"axis": 0}),
    "argmax": ([(2, 3)], {"axis": 1}),
    "nn.pad": ([(2,)], {"pad_width": (1, 1), "pad_value": 1e40}),
    "topk": ([(2, 3)], {"k": 2}),
    "cumsum": ([(2, 3)], {"axis": 1, "exclusive": True}),
    "cumprod": ([(2, 3)], {"axis": 0, "reverse": True}),
    "depth_to_space": ([(1, 8, 1, 2)], {"block_size": 2}),
    "space_to_depth": ([(1, 2, 4, 2)], {"block_size": 2, "mode": "CRD"}),
    "nn.border_pad": ([(2, 3)], {"pad_width": (1, 2, 4, 0), "mode": "reflect"}),
    "strided_slice": ([(4,)], {"axes": (0,), "begin": (0,), "end": (2,), "strides": (1,)}),
    "take": ([(2, 3), (4,)], {"axis": 1}),
    "gather_elements": ([(2, 3), (2, 4)], {"axis": 1}),
    "gather_nd": ([(2, 3), (4, 1)], {}),
    "scatter_elements": ([(2, 3), (2, 4), (2, 4)], {"axis": 1, "reduction": "add"}),
    "scatter_nd": ([(2, 3), (4, 1), (4, 3)], {"reduction": "min"}),
    "scatter_slice": ([(2, 4, 3), (2, 2, 3), (2,)], {"axis": 1}),
    "one_hot": ([(2, 3), (), ()], {"depth": 4}),
    "tile": ([(2, 3)], {"repeats": (2, 1)}),
    "flip": ([(2, 3)], {"axis": 0}),
    "roll": ([(2, 3)], {"shift": (1,), "axis": (1,)}),
    "stack": ([(2, 3), (2, 3)], {"axis": 1}),
    "reverse_sequence": ([(2, 3), (2,)], {}),
}
_GIVEN_DTYPES: dict[str, dict[int, str]] = {
    "where": {0: "bool"},
    "one_hot": {0: "int64"},
    "scatter_slice": {2: "int64"},
    **{name: {1: "int64"} for name in ("take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd")},
    "reverse_sequence": {1: "int64"},
}
"""Operands that do not have the dtype under test, by op name; integers among them are indices, all of them 1."""
_SHAPES = [(), (0,), (2, 0, 3), (2, 3)]


def _array(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Gives numbers of both signs, zero, the smallest integer and, in floats, NaN and infinity among them."""
    numbers = np.resize(np.array([-8.0, 0.0, np.nan, 2.0, np.inf, -1.0, 7.0]), shape)
    if not np.issubdtype(to_numpy(dtype), np.floating) and dtype not in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        numbers = np.nan_to_num(numbers, nan=3.0, posinf=5.0)
    return np.asarray(np.abs(numbers) if dtype.startswith("uint") else numbers).astype(to_numpy(dtype))


@pytest.mark.parametrize("dtype", all_dtypes())
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_gives_the_type_that_its_op_promises(name: str, dtype: str) -> None:
    op, given_dtypes = default_ops()[name], _GIVEN_DTYPES.get(name, {})
    shapes, given = _CASES.get(name, ([], {}))
    for operand_shapes in [shapes] if shapes else [[shape] * len(op.operands) for shape in _SHAPES]:
        dtypes = [given_dtypes.get(index, dtype) for index in range(len(operand_shapes))]
        values = [Var(f"x{i}", TensorType(s, d)) for i, (s, d) in enumerate(zip(operand_shapes, dtypes, strict=True))]
        try:
            attrs = op.normalise_attrs(given)
            types = infer_results(op, values, attrs)
        except IRTypeError:
            continue  # the op does not take this dtype or rank
        arrays = [_array(s, d) for s, d in zip(operand_shapes, dtypes, strict=True)]
        arrays = [np.ones_like(a) if given_dtypes.get(i) == "int64" else a for i, a in enumerate(arrays)]
        before = [array.tobytes() for array in arrays]
        outputs = KERNELS[name](*arrays, **attrs)
        for output, type_ in zip(outputs if isinstance(outputs, tuple) else (outputs,), types, strict=True):
            assert isinstance(output, np.ndarray)
            assert TensorType(output.shape, output.dtype.name) == type_
        assert [array.tobytes() for array in arrays] == before


_SINGLE: Mapping[str, Callable[..., Any]] = KERNELS
"""The kernels, for those with one result."""


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
