"""ONNX ops of windows, columns and filters, against ONNX Runtime; cases beyond ONNX Runtime against plain formulas."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import VirtualMachine, build
from byoc_core.errors import ExecutionError, FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.module import IRModule
from byoc_core.opset.families import KERNELS
from hypothesis import given
from hypothesis import strategies as st

from core.tests.frontend.conftest import Case, build_node_model, run_onnxruntime

NEWEST_OF = {"MaxRoiPool": 21, "Resize": 19, "MaxUnpool": 22, "DeformConv": 22}

Array = npt.NDArray[Any]
Cases = list[dict[str, Any]]


def _case(*inputs: npt.ArrayLike | None, **attrs: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        name: attrs.pop(name) for name in ("constants", "exact", "terms", "num_outputs") if name in attrs
    }
    return {"inputs": [None if item is None else np.asarray(item) for item in inputs], "attrs": attrs, **own}


def _ints(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def _normal(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _col2im(opset: int) -> Cases:
    image, block = np.array([5, 7]), np.array([2, 3])
    plain = _case(_ints(2, 18, 20), image, block)
    return [
        *({**plain, "constants": constants} for constants in ((), (1, 2), (1,), (2,))),
        _case(_ints(2, 18, 9), image, block, strides=[2, 3], pads=[1, 2, 0, 1], constants=(1, 2)),
        _case(_ints(1, 12, 12), image, block, dilations=[3, 2], pads=[0, 1, 1, 0]),
        _case(_ints(1, 16, 72), np.array([4, 4, 4]), np.array([2, 2, 2]), strides=[1, 1, 2], pads=[1, 2, 1, 0, 1, 1]),
        _case(_ints(2, 6, 6), np.array([8]), np.array([3])),
        _case(_ints(2, 18, 20, dtype="float16"), image, block),
    ]


def _deform_conv(opset: int) -> Cases:
    x, grouped = _normal(2, 4, 7, 8), _normal(6, 2, 3, 2, seed=1)
    offset, mask = 2 * _normal(2, 24, 5, 7, seed=2), _normal(2, 12, 5, 7, seed=3)
    groups = {"group": 2, "offset_group": 2, "exact": False, "terms": 64}
    wide = _case(x, _normal(6, 4, 3, 2), 3 * _normal(2, 12, 4, 4), exact=False, terms=64)
    wide["attrs"] = {"strides": [2, 2], "pads": [1, 0, 1, 1], "dilations": [1, 2], "kernel_shape": [3, 2]}
    still = _case(_ints(2, 4, 7, 8), _ints(6, 4, 3, 2), np.zeros((2, 12, 5, 7), np.float32), _ints(6))
    return [
        _case(x, grouped, offset, **groups),
        _case(x, grouped, offset, _normal(6), mask, **groups),
        _case(x, grouped, offset, None, mask, constants=(1,), **groups),
        wide,
        still,
        _case(*(_normal(*shape, dtype="float64") for shape in ((1, 2, 4, 4), (3, 2, 2, 2), (1, 8, 3, 3))), exact=False),
    ]


def _max_pool(opset: int) -> Cases:
    if opset < 8:
        return []
    dtypes = ("float32", "float64", "float16") + (("int8", "uint8") if opset >= 12 else ())
    attrs: list[dict[str, Any]] = [
        {"kernel_shape": [2, 3]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "storage_order": 1},
        *(
            {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": mode}
            for mode in ("SAME_LOWER", "SAME_UPPER", "VALID")
        ),
    ]
    if opset >= 10:
        attrs.append({"kernel_shape": [2, 3], "ceil_mode": 1, "strides": [2, 3], "dilations": [2, 1]})
    images = [
        _ints(2, 3, 6, 7, dtype=dtype) if dtype != "uint8" else _ints(2, 3, 6, 7).astype(dtype) for dtype in dtypes
    ]
    cases = [_case(x, num_outputs=2, **own) for x in images for own in attrs]
    for order in (0, 1):
        cube = {"kernel_shape": [2, 3, 2], "pads": [1, 1, 0, 0, 1, 1], "strides": [2, 1, 1]}
        cases.append(_case(_ints(2, 3, 4, 5, 6), num_outputs=2, storage_order=order, **cube))
        row = {"kernel_shape": [3], "pads": [1, 1], "strides": [2]}
        cases.append(_case(_ints(2, 3, 14), num_outputs=2, storage_order=order, **row))
    return cases


def _max_unpool(opset: int) -> Cases:
    x, indices = _normal(1, 2, 3, 4), np.random.default_rng(1).permutation(2 * 6 * 8)[:24].reshape(1, 2, 3, 4)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    row = np.array([[[1, 4, 5]]])
    return [
        _case(x, indices, **window),
        *(_case(x, indices, np.array([1, 2, 6, 8]), constants=constants, **window) for constants in ((), (2,))),
        _case(x, indices // 2, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]),
        _case(_normal(1, 1, 3), row, kernel_shape=[2], strides=[2]),
        _case(_normal(1, 1, 1, 2, 2), np.arange(4).reshape(1, 1, 1, 2, 2), kernel_shape=[2, 2, 2]),
    ]


def _max_roi_pool(opset: int) -> Cases:
    generator = np.random.default_rng(4)
    cases = []
    for dtype, size, scale in itertools.product(("float32", "float16"), ([2, 3], [7, 7], [1, 1]), (1.0, 0.5, 0.0625)):
        corners = np.sort(generator.uniform(-4, 30, (20, 2, 2)), axis=1).reshape(20, 4)
        rois = np.concatenate([generator.integers(0, 2, (20, 1)), corners], axis=1).astype(dtype)
        cases.append(_case(_normal(2, 3, 8, 9, dtype=dtype), rois, pooled_shape=size, spatial_scale=scale))
    return cases


def _resize(opset: int) -> Cases:
    if opset < 18:
        return []
    cases = []
    modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    scales = np.array([1, 1, 0.4, 0.7], np.float32)
    for method, exclude, mode in itertools.product(("linear", "cubic"), (0, 1), modes):
        attrs = {"antialias": 1, "mode": method, "exclude_outside": exclude, "coordinate_transformation_mode": mode}
        for constants in ((2,), ()):
            case = _case(_normal(1, 2, 9, 11), None, scales, constants=constants, exact=False, terms=16)
            cases.append({**case, "attrs": attrs})
    for method, known in itertools.product(("linear", "cubic"), ((3,), ())):
        case = _case(_normal(1, 2, 9, 11), None, None, np.array([1, 2, 4, 17]), constants=known, exact=False, terms=16)
        cases.append({**case, "attrs": {"antialias": 1, "mode": method}})
    narrow = _case(_normal(1, 2, 9, 11, dtype="float16"), None, scales, constants=(2,), exact=False)
    return [*cases, {**narrow, "attrs": {"antialias": 1, "mode": "linear"}}]


def _conv_transpose(opset: int) -> Cases:
    cases = []
    modes = ("NOTSET", "SAME_UPPER", "SAME_LOWER") if opset >= 11 else ("NOTSET",)
    for mode, size, extra in itertools.product(modes, (5, 6, 7, 8), (0, 1)):
        attrs = {"strides": [2], "output_shape": [size], "output_padding": [extra], "auto_pad": mode}
        cases.append(_case(_ints(2, 2, 3), _ints(2, 3, 3), **attrs))
    cube = {"strides": [3, 2, 1], "output_shape": [9, 4, 5], "group": 2}
    return [
        *cases,
        _case(_ints(1, 2, 3, 3), _ints(2, 1, 3, 3), _ints(1), strides=[3, 2], output_shape=[10, 8]),
        _case(_ints(1, 2, 3, 2, 4), _ints(2, 2, 2, 2, 2), **cube),
    ]


_CASES: dict[str, Callable[[int], Cases]] = {
    "Col2Im": _col2im,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "MaxPool": _max_pool,
    "MaxRoiPool": _max_roi_pool,
    "MaxUnpool": _max_unpool,
    "Resize": _resize,
}


def test_same_as_onnxruntime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: Callable[..., Any]
) -> None:
    for case in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**case))


def _run(op_type: str, opset: int, *inputs: npt.ArrayLike | None, dynamic: bool = False, **attrs: Any) -> list[Array]:
    """Build a model of one node, and run the compiled model."""
    case = Case(**_case(*inputs, **attrs))
    pairs = enumerate(case.inputs)
    feeds = [array for index, array in pairs if array is not None and index not in case.constants]
    model = build_node_model(op_type, opset, case, dynamic=dynamic)
    results = VirtualMachine(build(from_onnx(model), []))["main"](*feeds)
    return [np.asarray(result) for result in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize(
    ("op_type", "opset", "number", "constants"),
    [
        *(("Col2Im", 18, 0, (1, 2)), ("DeformConv", 22, 1, (1,)), ("MaxPool", 22, 1, ()), ("MaxUnpool", 22, 2, (2,))),
        *(("MaxRoiPool", 21, 4, ()), ("Resize", 19, 32, (3,)), ("ConvTranspose", 22, 0, (1,))),
    ],
)
def test_dynamic_sizes(op_type: str, opset: int, number: int, constants: tuple[int, ...]) -> None:
    """All sizes are unknown while compiling, except the sizes of constants."""
    case = {**_CASES[op_type](opset)[number], "constants": constants}
    if op_type == "ConvTranspose":
        case["attrs"] = {"strides": [4], "auto_pad": "SAME_UPPER"}  # windows of 3 do not reach all elements
    model, attrs = build_node_model(op_type, opset, Case(**case)), case.pop("attrs")
    feeds = {f"i{i}": a for i, a in enumerate(case["inputs"]) if a is not None and i not in constants}
    if op_type == "ConvTranspose":
        expected = _run(op_type, opset, *case["inputs"], strides=[4], output_shape=[12])
    else:
        expected = run_onnxruntime(model, feeds)
    results = _run(op_type, opset, *case.pop("inputs"), dynamic=True, **case, **attrs)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def _unfold(x: Array, block: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """Return the columns of images, by numpy's view of windows."""
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(x, block, axes)
    steps = tuple(slice(None, None, stride) for stride in strides)
    return np.moveaxis(windows[(slice(None), slice(None), *steps)], axes, tuple(range(-len(axes), 0)))


@given(st.data())
def test_columns_summed_are_the_adjoint_of_columns_taken(data: st.DataObject) -> None:
    """``<unfold(x), c> == <x, col2im(c)>``, of small integers, for any number of axes."""
    rank = data.draw(st.integers(1, 4))
    image = tuple(data.draw(st.integers(3, 5)) for _ in range(rank))
    block, strides = (tuple(data.draw(st.integers(1, 3)) for _ in range(rank)) for _ in range(2))
    x = _ints(2, 2, *image, seed=data.draw(st.integers(0, 99)), dtype="float64")
    unfolded = _unfold(x, block, strides)
    columns = _ints(*unfolded.shape, seed=1, dtype="float64")
    attrs = {"strides": strides, "dilation": (1,) * rank, "padding": (0,) * (2 * rank)}
    folded = KERNELS["nn.col2im"](columns, image_size=image, **attrs)
    assert (unfolded * columns).sum() == (x * folded).sum()


@given(st.integers(1, 3), st.integers(0, 99), st.booleans())
def test_whole_offsets_move_the_taps(rank: int, seed: int, is_grouped: bool) -> None:
    """Columns of whole offsets are elements of the image, or zero outside; of any number of axes."""
    generator = np.random.default_rng(seed)
    image, window, groups = (5,) * rank, (2,) * rank, 2 if is_grouped else 1
    x = _ints(2, 4, *image, seed=seed)
    counts, taps = (4,) * rank, 2**rank
    offsets = generator.integers(-3, 4, (2, groups, taps, rank, *counts)).astype(np.float32)
    attrs = {"window": window, "strides": (1,) * rank, "dilation": (1,) * rank, "padding": (0,) * (2 * rank)}
    result = KERNELS["nn.deformable_im2col"](x, offsets, **attrs)
    assert result.shape == (2, 4, taps, *counts)
    for batch, channel, tap, *at in np.ndindex(*result.shape):
        group = channel // (4 // groups)
        moved = offsets[(batch, group, tap, slice(None), *at)]
        position = [int(a + t + m) for a, t, m in zip(at, np.unravel_index(tap, window), moved, strict=True)]
        is_inside = all(0 <= p < 5 for p in position)
        assert result[(batch, channel, tap, *at)] == (x[(batch, channel, *position)] if is_inside else 0)


def test_deformable_convolution_without_offsets_is_a_convolution() -> None:
    """Of three spatial axes, beyond ONNX Runtime; infinite neighbours of weight 0 do not count."""
    x, weight = _ints(1, 2, 4, 4, 4), _ints(3, 2, 2, 2, 2)
    x[0, 0, 1, 1, 1] = np.inf
    (result,) = _run("DeformConv", 19, x, weight, np.zeros((1, 24, 3, 3, 3), np.float32))
    (expected,) = _run("Conv", 19, x, weight)
    np.testing.assert_array_equal(result, expected)


def test_larger_output_shapes_add_zeros_at_the_ends() -> None:
    """As in ONNX's suite; ONNX Runtime takes the indices for those of the larger image."""
    x, indices = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]])
    expected = np.zeros((1, 1, 5, 6), np.float32)
    expected[0, 0, 1::2, 1:4:2] = [[1, 2], [3, 4]]
    for constants in ((), (2,)):
        window: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2], "constants": constants}
        (result,) = _run("MaxUnpool", 11, x, indices, np.array([1, 1, 5, 6]), **window)
        np.testing.assert_array_equal(result, expected)


def test_indices_of_nan_and_of_padding() -> None:
    """NaN is the largest; windows of padding alone have the index -1; an element of -inf is found."""
    x = np.array([[[1, np.nan, np.nan, 2, -np.inf, -np.inf]]], np.float32)
    values, indices = _run("MaxPool", 12, x, kernel_shape=[2], strides=[2], num_outputs=2)
    np.testing.assert_array_equal(values, np.array([[[np.nan, np.nan, -np.inf]]], np.float32))
    np.testing.assert_array_equal(indices, [[[1, 2, 4]]])
    row = np.ones((1, 1, 1), np.float32)
    attrs: dict[str, Any] = {"kernel_shape": [2], "dilations": [3], "pads": [2, 2], "num_outputs": 2}
    _, indices = _run("MaxPool", 12, row, **attrs)
    np.testing.assert_array_equal(indices, [[[-1, -1]]])


@given(st.integers(1, 3), st.integers(0, 99), st.booleans())
def test_pooling_and_unpooling_restores_the_largest(rank: int, seed: int, is_padded: bool) -> None:
    """MaxUnpool of MaxPool keeps the largest elements at their places; indices count all elements."""
    x = np.random.default_rng(seed).permutation(6**rank * 2).astype(np.float32).reshape(1, 2, *[6] * rank)
    pads = (1,) * (2 * rank) if is_padded else (0,) * (2 * rank)
    attrs = {"pool_size": (2,) * rank, "strides": (2,) * rank, "padding": pads, "dilation": (1,) * rank}
    indices = KERNELS[f"nn.argmax_pool{rank}d"](x, **attrs, ceil_mode=False, column_major=False)
    layout = "NC" + "DHW"[-rank:]
    values = KERNELS[f"nn.max_pool{rank}d"](x, **attrs, ceil_mode=False, layout=layout)
    np.testing.assert_array_equal(x.reshape(-1)[indices], values)


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_antialiasing_in_float64(method: str) -> None:
    """Beyond ONNX Runtime, against the definition: a filter stretched by the factor, with weights of sum 1."""
    x, length, size = _normal(3, 40, dtype="float64"), 40, 7
    (result,) = _run("Resize", 19, x, None, None, np.array([3, size]), mode=method, antialias=1, constants=(3,))
    centres = (np.arange(size) + 0.5) * length / size - 0.5
    elements = np.arange(-40, 80)
    distance = np.abs(elements - centres[:, np.newaxis]) * size / length
    near, far = 1.25 * distance**3 - 2.25 * distance**2 + 1, -0.75 * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    cubic = np.where(distance < 1, near, np.where(distance < 2, far, 0))
    weights = np.maximum(1 - distance, 0) if method == "linear" else cubic
    weights /= weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result, x[:, np.clip(elements, 0, 39)] @ weights.T, rtol=1e-12, atol=1e-12)


_X2, _ROIS = np.zeros((1, 2, 4, 4), np.float32), np.zeros((1, 5), np.float32)
_COLUMNS = np.zeros((1, 6, 4), np.float32)
_INDICES = np.zeros((1, 2, 4, 4), np.int64)


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attrs", "problem"),
    [
        ("Col2Im", 18, (_COLUMNS[0], [4], [3]), {}, "has columns of the wrong rank; got [6, 4]"),
        ("Col2Im", 18, (_COLUMNS, [4, 4], [3]), {}, "has image and block of different ranks; got [3], expected 2"),
        ("Col2Im", 18, (_COLUMNS, [4], [4]), {}, "has columns not divided by the block; got 6, expected a multiple"),
        ("Col2Im", 18, (_COLUMNS, [4], [3]), {}, "has another number of blocks than the image; got 4, expected 2"),
        ("Col2Im", 18, (_COLUMNS, [6], [3]), {"strides": [0]}, "attribute `strides` does not fit the axes; got (0,)"),
        (
            "DeformConv",
            22,
            (_X2, np.zeros((2, 2, 2, 2), np.float32), np.zeros((1, 8, 3), np.float32)),
            {},
            "has images, filters and offsets of different ranks; got 4, 4 and 3",
        ),
        (
            "DeformConv",
            22,
            (_X2, np.zeros((2, 2, 2, 2), np.float32), np.zeros((1, 8, 3, 3), np.float32)),
            {"offset_group": 3},
            "attribute `offset_group` does not divide the channels; got 3, expected a divisor of 2",
        ),
        (
            "DeformConv",
            22,
            (_X2, np.zeros((2, 2, 2, 2), np.float32), np.zeros((1, 8, 4, 3), np.float32)),
            {},
            "op `nn.deformable_im2col`, operand `offsets=lv0`: axis 4 has size 4; got (1, 1, 4, 2, 4, 3)",
        ),
        ("MaxPool", 12, (_X2,), {"kernel_shape": [2, 2], "storage_order": 2}, "`storage_order` is unknown; got 2"),
        (
            "MaxUnpool",
            11,
            (_X2, _INDICES, [1, 2, 7, 8]),
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            "has an output shape smaller than the reach of the windows; got [1, 2, 7, 8], expected at least",
        ),
        ("MaxUnpool", 11, (_X2, _INDICES, [8]), {"kernel_shape": [2, 2]}, "has an output shape of the wrong rank"),
        ("MaxUnpool", 11, (_X2, _INDICES), {"kernel_shape": [2]}, "`kernel_shape` has the wrong number of values"),
        ("MaxRoiPool", 11, (_X2, _ROIS[:, :4]), {"pooled_shape": [2, 2]}, "has regions of the wrong shape; got [1, 4]"),
        ("MaxRoiPool", 11, (_X2, _ROIS), {"pooled_shape": [2]}, "attribute `pooled_shape` is no height and width"),
        (
            "Resize",
            19,
            (_X2, None, np.full(4, 0.5, np.float32)),
            {"antialias": 1, "mode": "nearest"},
            "attribute `antialias` has no meaning for the mode; got nearest, expected linear or cubic",
        ),
    ],
)
def test_errors(op_type: str, opset: int, inputs: Any, attrs: dict[str, Any], problem: str) -> None:
    constants = tuple(index for index in range(len(inputs)) if index >= 1 and op_type != "DeformConv")
    model = build_node_model(op_type, opset, Case(**_case(*inputs, constants=constants, **attrs)))
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert problem in str(caught.value)


def test_errors_at_run_time() -> None:
    rois = np.array([[2, 0, 0, 1, 1]], np.float32)
    with pytest.raises(ExecutionError, match="a region is in a missing image"):
        _run("MaxRoiPool", 11, _X2, rois, pooled_shape=[2, 2])
