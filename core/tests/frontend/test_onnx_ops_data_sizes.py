"""Shapes, axes and widths computed at run time, against ONNX Runtime: every number is an input of the model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import VirtualMachine, build
from byoc_core.errors import ExecutionError, FrontendError
from byoc_core.frontend.onnx import from_onnx
from hypothesis import given
from hypothesis import strategies as st

from core.tests.frontend.conftest import Case, build_node_model, opsets_of, run_onnxruntime

Cases = list[dict[str, Any]]


def _case(*inputs: npt.ArrayLike | None, constants: tuple[int, ...] = (), outputs: int = 1, **attrs: object) -> Any:
    arrays = [None if item is None else np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants, "num_outputs": outputs}


def _numbers(*values: int, dtype: str = "int64") -> npt.NDArray[Any]:
    return np.array(values, dtype)


def _ints(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


X = _ints(2, 3, 4)


def _reshape(opset: int) -> Cases:
    targets = [(4, 6), (24,), (0, -1), (2, 0, 2, -1), (-1, 3), (1, 1, 24)]
    return [_case(X, _numbers(*target)) for target in targets]


def _expand(opset: int) -> Cases:
    x = _ints(3, 1)
    return [_case(x, _numbers(*target)) for target in ((3, 4), (2, 3, 4), (1, 1), (3, 1), (2, 1, 6))]


def _tile(opset: int) -> Cases:
    return [_case(X, _numbers(*counts)) for counts in ((1, 2, 3), (2, 1, 1), (0, 1, 1))]


def _constant_of_shape(opset: int) -> Cases:
    return [_case(_numbers(*sizes)) for sizes in ((2, 3), (0, 4), (5,))]


def _topk(opset: int) -> Cases:
    x = np.random.default_rng(1).permutation(24).reshape(2, 3, 4).astype("float32")
    return [_case(x, _numbers(k), outputs=2, axis=axis) for k, axis in ((2, -1), (3, 1), (1, 0))] if opset >= 10 else []


def _one_hot(opset: int) -> Cases:
    values = _ints(2)
    depths: list[npt.NDArray[Any]] = [_numbers(6), np.array([5.0], np.float32), np.array(4, np.int64)]
    return [_case(_numbers(0, 2, -1, 3), depth, values, axis=axis) for depth in depths for axis in (-1, 0)]


def _split(opset: int) -> Cases:
    return [_case(X, _numbers(1, 3), outputs=2, axis=2)] if opset >= 13 else []


def _squeeze(opset: int) -> Cases:
    x = _ints(1, 3, 1, 2)
    return [_case(x, _numbers(*axes)) for axes in ((0,), (2, 0), (-2,))] if opset >= 13 else []


def _unsqueeze(opset: int) -> Cases:
    return [_case(X, _numbers(*axes)) for axes in ((0,), (4, 1), (-1,), (0, 1, 2))] if opset >= 13 else []


def _reduction(since: int) -> Callable[[int], Cases]:
    def cases(opset: int) -> Cases:
        if opset < since:
            return []
        axes = [(1,), (0, 2), (-1,), (2, 0, 1)]
        plain = [_case(X, _numbers(*own), keepdims=keepdims) for own in axes for keepdims in (0, 1)]
        none = [_case(X, np.zeros(0, np.int64), noop_with_empty_axes=noop) for noop in (0, 1)]
        return [*plain, *none]

    return cases


def _cumsum(opset: int) -> Cases:
    axes: list[npt.NDArray[Any]] = [np.array(1, np.int64), np.array(-1, np.int32), np.array(0, np.int64)]
    return [_case(X, axis, exclusive=flag, reverse=flag) for axis in axes for flag in (0, 1)]


def _trilu(opset: int) -> Cases:
    x = _ints(3, 4, 5)
    return [_case(x, np.array(k, np.int64), upper=upper) for k in (-2, 0, 1, 7, -9) for upper in (0, 1)]


def _pad(opset: int) -> Cases:
    if opset < 11:
        return []
    widths = [(0, 1, 2, 1, 0, 1), (0, -1, 1, 0, 2, -2)]
    fill = np.float32(7)
    cases = [_case(X, _numbers(*own), fill) for own in widths] + [_case(X, _numbers(*widths[0]))]
    modes = ("edge", "reflect", *(("wrap",) if opset >= 19 else ()))
    cases += [_case(X, _numbers(0, 1, 2, 1, 0, 3), mode=mode) for mode in modes]
    if opset >= 18:
        cases += [_case(X, _numbers(1, 2, 3, 0), fill, _numbers(2, 0)), _case(X, _numbers(1, 2), fill, _numbers(-1))]
    return cases


def _slice(opset: int) -> Cases:
    if opset < 10:
        return []
    numbers = [
        ((0, 1), (2, 3), (1, 2), (1, 1)),
        ((-3,), (1000,), (2,), (2,)),
        ((3, 2), (-100, 0), (2, 1), (-2, -1)),
        ((20,), (-100,), (-1,), (-1,)),
        ((1,), (0,), (0,), (1,)),
    ]
    cases = [_case(X, *(_numbers(*column) for column in columns)) for columns in numbers]
    without = [_case(X, _numbers(0, 1, 1), _numbers(1, 3, 3)), _case(X, _numbers(1), _numbers(3), _numbers(2))]
    return [*cases, *without, _case(X, _numbers(1), _numbers(3), _numbers(2), constants=(1, 2))]


def _resize(opset: int) -> Cases:
    if opset < 11:
        return []
    x = _ints(1, 2, 4, 4)
    roi = None if opset >= 13 else np.zeros(0, np.float32)
    scales = None if opset >= 13 else np.zeros(0, np.float32)
    sizes = [_case(x, roi, scales, _numbers(1, 2, 8, 8), mode=mode, constants=(1, 2)) for mode in ("nearest", "linear")]
    factors = [np.array(own, np.float32) for own in ((1, 1, 2, 2), (1, 1, 0.5, 1.5), (1, 1, 2, 0.75))]
    modes = ("half_pixel", "asymmetric", "pytorch_half_pixel", *(("half_pixel_symmetric",) if opset >= 19 else ()))
    scaled = [
        _case(x, roi, own, mode=mode, coordinate_transformation_mode=coordinates, constants=(1,))
        for own in factors
        for mode in ("nearest", "linear", "cubic")
        for coordinates in modes
    ]
    whole = [
        _case(x, roi, factors[0], coordinate_transformation_mode="asymmetric", nearest_mode=rounding, constants=(1,))
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ]
    integers = [
        _case(_ints(1, 2, 4, 4, dtype=dtype), roi, own, mode="linear", constants=(1,))
        for own in factors[:2]
        for dtype in ("int8", "int32")
    ]
    return [*sizes, *scaled, *whole, *integers]


def _upsample(opset: int) -> Cases:
    x = _ints(1, 2, 3, 4)
    return [_case(x, np.array([1, 1, 2, 3], np.float32), mode="nearest")] if opset == 9 else []


def _center_crop_pad(opset: int) -> Cases:
    x = _ints(5, 4, 6)
    sizes = [_case(x, _numbers(*own)) for own in ((3, 7, 6), (8, 1, 3))]
    return [*sizes, _case(x, _numbers(9, 2), axes=[2, 0])] if opset >= 18 else []


_CASES: dict[str, Callable[[int], Cases]] = {
    "CenterCropPad": _center_crop_pad,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cumsum,
    "Expand": _expand,
    "OneHot": _one_hot,
    "Pad": _pad,
    "ReduceL1": _reduction(18),
    "ReduceMax": _reduction(18),
    "ReduceSum": _reduction(13),
    "ReduceSumSquare": _reduction(18),
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _topk,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
    "Upsample": _upsample,
}


_MANY_CASES = 8
_WITHOUT_RANK = {"ConstantOfShape", "Expand", "Reshape", "Squeeze", "Unsqueeze"}
"""The ops with a rank decided by the count of their numbers."""


def _check(op_type: str, opset: int, case: Case, *, dynamic: bool = False) -> None:
    feeds = {
        f"i{index}": array
        for index, array in enumerate(case.inputs)
        if array is not None and index not in case.constants
    }
    model = build_node_model(op_type, opset, case, dynamic=dynamic)
    results = VirtualMachine(build(from_onnx(model), []))["main"](*feeds.values())
    for found, wanted in zip(
        results if isinstance(results, tuple) else (results,), run_onnxruntime(model, feeds), strict=True
    ):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        # Sums of 16 weighted elements round; the bound of float32 is that of `check_case`.
        is_exact = op_type != "Resize"
        np.testing.assert_allclose(found, wanted, rtol=0 if is_exact else 2**-19, atol=0 if is_exact else 2**-21 * 16)


def test_numbers_computed_at_run_time(op_type: str, opset: int) -> None:
    """Of many cases, each opset in turn takes a part; ``nox -s thorough`` takes all cases in every opset."""
    cases = _CASES[op_type](opset)
    if len(cases) > _MANY_CASES and os.environ.get("BYOC_EXAMPLES") != "thorough":
        opsets = opsets_of(sys.modules[__name__], op_type)
        cases = cases[opsets.index(opset) :: len(opsets)]
    for item in cases:
        _check(op_type, opset, Case(**item))


@pytest.mark.parametrize("op_type", sorted(_CASES.keys() - _WITHOUT_RANK))
def test_numbers_of_an_unknown_count(op_type: str) -> None:
    """The op, or its other inputs, tell the count, except that of axes."""
    opset = 9 if op_type == "Upsample" else 18
    cases = [Case(**item) for item in _CASES[op_type](opset)]
    for case in cases:
        removes_axes = op_type.startswith("Reduce") and not case.attrs.get("keepdims", 1)
        has_counted_axes = op_type == "Pad" and len(case.inputs) == 4
        is_refused_by_oracle = op_type == "Resize" and len(case.inputs) == 4
        if not (removes_axes or has_counted_axes or is_refused_by_oracle):
            _check(op_type, opset, case, dynamic=True)


def test_a_count_other_than_the_op_demands_is_an_error() -> None:
    run = VirtualMachine(build(from_onnx(build_node_model("Tile", 13, Case([X, _numbers(1, 2, 3)]), dynamic=True)), []))
    with pytest.raises(ExecutionError):
        run["main"](X, _numbers(2, 2))


@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_a_reduction_along_computed_axes_is_that_along_constant_axes(shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    signed = [axis - len(shape) * data.draw(st.integers(0, 1)) for axis in axes]
    x, keepdims = _ints(*shape), data.draw(st.integers(0, 1))
    results = []
    for constants in ((), (1,)):
        case = Case([x, _numbers(*signed)], {"keepdims": keepdims}, constants)
        run = VirtualMachine(build(from_onnx(build_node_model("ReduceSum", 18, case)), []))["main"]
        results.append(np.asarray(run(*([x] if constants else [x, _numbers(*signed)]))))
    np.testing.assert_array_equal(results[0], results[1])
    assert results[0].shape == results[1].shape


@given(sizes=st.lists(st.integers(-1, 6), min_size=1, max_size=4))
def test_impossible_shapes_are_errors(sizes: list[int]) -> None:
    """A shape that does not fit is an error of the call, never another result."""
    case = Case([X, _numbers(*sizes)])
    run = VirtualMachine(build(from_onnx(build_node_model("Reshape", 18, case)), []))["main"]
    copied = [X.shape[axis] if size == 0 and axis < 3 else size for axis, size in enumerate(sizes)]
    try:
        expected = X.reshape(copied)
    except ValueError:
        with pytest.raises(ExecutionError):
            run(X, _numbers(*sizes))
    else:
        np.testing.assert_array_equal(run(X, _numbers(*sizes)), expected)


def test_an_unknown_number_of_sizes_is_refused() -> None:
    model = build_node_model("Reshape", 18, Case([X, _numbers(4, 6)]), dynamic=True)
    with pytest.raises(FrontendError, match="of an unknown count"):
        from_onnx(model)


def test_negative_sizes_are_refused_when_run() -> None:
    run = VirtualMachine(build(from_onnx(build_node_model("Tile", 13, Case([X, _numbers(1, 2, 3)]))), []))["main"]
    with pytest.raises(ExecutionError, match="negative size"):
        run(X, _numbers(1, -1, 1))
