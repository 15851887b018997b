"""Every imported ONNX op, at every changing opset, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.frontend.onnx.ops import NODE_IMPORTERS, SHAPE_IMPORTERS
from byoc_core.ir import IRModule
from byoc_core.ops import default_ops
from onnx import TensorProto, helper, numpy_helper

from core.tests.frontend.conftest import Case

NEWEST = 26  # the newest opset of the oracle

Cases = list[dict[str, Any]]


def _ints(*shape: int, seed: int = 0, low: int = -4, high: int = 5, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def _floats(*shape: int, low: float = -3.0, high: float = 3.0) -> Any:
    return np.random.default_rng(1).uniform(low, high, shape).astype(np.float32)


def _i64(*values: int) -> Any:
    return np.array(values, np.int64)


def _case(
    *inputs: npt.ArrayLike | None,
    constants: tuple[int, ...] = (),
    outputs: int = 1,
    exact: bool = True,
    **attrs: object,
) -> dict[str, Any]:
    arrays = [None if item is None else np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants, "num_outputs": outputs, "exact": exact}


def _binary(opset: int) -> Cases:
    return [_case(_ints(3, 1, 4), _ints(2, 1, seed=1, low=1)), _case(_ints(4), _ints(4, seed=1, low=1), constants=(1,))]


def _comparison(opset: int) -> Cases:
    dtypes = ["float32", "int32"] if opset >= 9 else ["float32"]
    return [_case(_ints(3, 4, dtype=d), _ints(4, seed=1, dtype=d)) for d in dtypes]


def _equal(opset: int) -> Cases:
    return [_case(_ints(3, 4, dtype="int32"), _ints(4, seed=1, dtype="int32"))]


def _logic(opset: int) -> Cases:
    return [_case(_ints(3, 4, low=0, high=2, dtype="bool"), _ints(4, seed=1, low=0, high=2, dtype="bool"))]


def _smooth(low: float = -3.0, high: float = 3.0, **attrs: Any) -> Callable[[int], Cases]:
    return lambda opset: [_case(_floats(3, 4, low=low, high=high), exact=False, **attrs)]


def _exact_unary(opset: int) -> Cases:
    return [_case(_ints(3, 4))]


def _relu(opset: int) -> Cases:
    return [_case(_ints(3, 4)), *([_case(_ints(3, 4, dtype="int32"))] if opset >= 14 else [])]


def _variadic(opset: int) -> Cases:
    a, b, c = _ints(3, 4), _ints(4, seed=1), _ints(1, 4, seed=2)
    if opset < 8:  # no broadcasting yet
        b, c = _ints(3, 4, seed=1), _ints(3, 4, seed=2)
    return [_case(a), _case(a, b), _case(a, b, c)]


def _mean(opset: int) -> Cases:
    return [{**case, "exact": False} for case in _variadic(opset)]  # a third is rounded


def _power(opset: int) -> Cases:
    cases = [_case(_floats(3, 4, low=0.5), _floats(4), exact=False)]
    if opset >= 12:
        cases.append(_case(_ints(3, 4), _i64(2), constants=(1,)))
        cases.append(_case(_ints(3, 4), np.array(3, np.int32)))
        cases.append(_case(_ints(3, 4, dtype="int32"), np.float32(2)))
    return cases


def _clip(opset: int) -> Cases:
    x = _ints(3, 4)
    if opset < 11:
        return [_case(x), _case(x, min=-1.0, max=2.0), _case(x, max=0.5)]
    low, high = np.float32(-1), np.float32(2)
    cases = [_case(x), _case(x, low, high), _case(x, low, high, constants=(1, 2)), _case(x, None, high, constants=(2,))]
    if opset >= 12:
        cases.append(_case(x.astype("int32"), np.int32(-1), np.int32(2), constants=(1, 2)))
    return cases


def _cast(opset: int) -> Cases:
    types = [TensorProto.INT32, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.FLOAT, TensorProto.FLOAT16]
    return [_case(_floats(3, 4), to=to) for to in types]


def _dropout(opset: int) -> Cases:
    x = _ints(3, 4)
    if opset < 12:
        return [_case(x), _case(x, ratio=0.3)]
    return [_case(x), _case(x, np.float32(0.3), np.array(False), constants=(1, 2), seed=3)]


def _where(opset: int) -> Cases:
    return [_case(_ints(3, 1, low=0, high=2, dtype="bool"), _ints(1, 4), _ints(3, 4, seed=1))]


def _matmul(opset: int) -> Cases:
    return [
        _case(_ints(3, 4), _ints(4, 5, seed=1), constants=(1,)),
        _case(_ints(2, 3, 4), _ints(4, 5, seed=1)),
        _case(_ints(4), _ints(4, 5, seed=1)),
    ]


def _gemm(opset: int) -> Cases:
    a, b, c = _ints(3, 4), _ints(4, 5, seed=1), _ints(5, seed=2)
    cases = [
        _case(a, b, c, constants=(1, 2)),
        _case(a, b.T.copy(), c, transB=1),
        _case(a.T.copy(), b, _ints(3, 1, seed=3), transA=1, alpha=0.5, beta=2.0),
        _case(a, b, c, beta=0.0),
        _case(a, b, np.float32(3)),
    ]
    return [*cases, *([_case(a, b)] if opset >= 11 else [])]


def _conv(opset: int) -> Cases:
    x, w, b = _ints(2, 4, 9, 8), _ints(6, 4, 3, 2, seed=1), _ints(6, seed=2)
    return [
        _case(x, w),
        _case(x, w, b, constants=(1, 2), pads=(1, 0, 2, 1), strides=(2, 1), dilations=(1, 2), kernel_shape=(3, 2)),
        _case(x, _ints(6, 2, 3, 2, seed=1), group=2, constants=(1,)),
        _case(x, _ints(4, 1, 3, 3, seed=1), group=4),
        _case(x, w, auto_pad="VALID"),
        _case(x, w, auto_pad="SAME_UPPER"),
        _case(x, w, auto_pad="SAME_UPPER", strides=(2, 3)),
        _case(x, w, auto_pad="SAME_LOWER", strides=(2, 3)),
    ]


def _max_pool(opset: int) -> Cases:
    x = _ints(2, 3, 9, 8)
    cases = [
        _case(x, kernel_shape=(3, 2)),
        _case(x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 0, 1)),
        _case(x, kernel_shape=(3, 3), strides=(2, 2), auto_pad="SAME_UPPER"),
        _case(x, kernel_shape=(2, 2), strides=(2, 2), auto_pad="SAME_LOWER"),
    ]
    if opset >= 8:
        cases.append(_case(x, kernel_shape=(2, 2), storage_order=0))
    if opset >= 10:
        cases.append(_case(x, kernel_shape=(2, 2), strides=(2, 3), dilations=(2, 1), ceil_mode=1))
    return cases


def _average_pool(opset: int) -> Cases:
    x = _ints(2, 3, 9, 8, low=-64, high=64)
    cases = [
        _case(x, kernel_shape=(2, 2), exact=False),
        _case(x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 0, 1), exact=False),
        _case(x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 0, 1), count_include_pad=1, exact=False),
        _case(x, kernel_shape=(3, 3), strides=(2, 2), auto_pad="SAME_UPPER", exact=False),
    ]
    if opset >= 10:
        cases.append(_case(x, kernel_shape=(3, 3), strides=(2, 3), ceil_mode=1, exact=False))
    if opset >= 19:
        cases.append(_case(x, kernel_shape=(2, 2), dilations=(2, 2), exact=False))
    return cases


def _global_pool(opset: int) -> Cases:
    return [_case(_ints(2, 3, 4, 4)), _case(_ints(2, 3, 8))]


def _batch_norm(opset: int) -> Cases:
    parameters = [_floats(3), _floats(3), _floats(3), _floats(3, low=0.1)]
    cases = [
        _case(_floats(2, 3, 4, 5), *parameters, constants=(1, 2, 3, 4), exact=False),
        _case(_floats(2, 3), *parameters, epsilon=1e-2, momentum=0.5, exact=False),
    ]
    if opset < 9:
        cases.append(_case(_floats(2, 3, 4, 5), *parameters, spatial=1, exact=False))
    if opset >= 14:
        cases.append(_case(_floats(2, 3, 4, 5), *parameters, training_mode=0, exact=False))
    return cases


def _layer_norm(opset: int) -> Cases:
    x = _floats(2, 3, 8)
    return [
        _case(x, _floats(8), _floats(8), exact=False),
        _case(x, _floats(3, 8), axis=1, epsilon=1e-3, exact=False),
        _case(x, _floats(8), stash_type=1, axis=-1, constants=(1,), exact=False),
    ]


def _softmax(opset: int) -> Cases:
    x = _floats(3, 4, 5)
    return [_case(x, exact=False), *(_case(x, axis=axis, exact=False) for axis in (0, 1, 2))]


def _reshape(opset: int) -> Cases:
    x = _ints(2, 3, 4)
    cases = [_case(x, _i64(*shape), constants=(1,)) for shape in ((6, 4), (0, -1), (-1,), (2, 1, 3, 4), (0, 0, 2, 2))]
    if opset >= 14:
        cases.append(_case(_ints(0, 3), _i64(3, 0), constants=(1,), allowzero=1))
    return cases


def _flatten(opset: int) -> Cases:
    axes = [0, 1, 2, 3] + ([-1] if opset >= 11 else [])
    return [_case(_ints(2, 3, 4)), *(_case(_ints(2, 3, 4), axis=axis) for axis in axes)]


def _squeeze(opset: int) -> Cases:
    x = _ints(1, 3, 1)
    if opset < 13:
        return [_case(x), _case(x, axes=(0,)), _case(x, axes=(0, 2))]
    return [_case(x), _case(x, _i64(-1), constants=(1,)), _case(x, _i64(0, 2), constants=(1,))]


def _unsqueeze(opset: int) -> Cases:
    x = _ints(2, 3)
    if opset < 13:
        return [_case(x, axes=(0,)), _case(x, axes=(1, 3))]
    return [_case(x, _i64(-1), constants=(1,)), _case(x, _i64(3, 0), constants=(1,))]


def _transpose(opset: int) -> Cases:
    return [_case(_ints(2, 3, 4)), _case(_ints(2, 3, 4), perm=(1, 2, 0))]


def _concat(opset: int) -> Cases:
    axes = [0, 1] + ([-1] if opset >= 11 else [])
    return [_case(_ints(2, 3), _ints(2, 3, seed=1), _ints(2, 3, seed=2), axis=axis) for axis in axes]


def _split(opset: int) -> Cases:
    x = _ints(4, 6)
    if opset < 13:
        return [_case(x, outputs=2), _case(x, outputs=3, axis=1), _case(x, outputs=2, axis=1, split=(1, 5))]
    given = _case(x, _i64(1, 5), constants=(1,), outputs=2, axis=-1)
    if opset < 18:
        return [given, _case(x, outputs=2)]
    return [given, _case(x, outputs=2, num_outputs=2), _case(_ints(2, 7), outputs=4, num_outputs=4, axis=1)]


def _expand(opset: int) -> Cases:
    return [_case(_ints(3, 1), _i64(*shape), constants=(1,)) for shape in ((2, 1, 4), (3, 4), (1,), (3, 1))]


def _slice(opset: int) -> Cases:
    x = _ints(5, 6)
    if opset < 10:
        return [_case(x, starts=(1,), ends=(4,)), _case(x, starts=(-3, 0), ends=(1000, -1), axes=(1, 0))]
    return [
        _case(x, _i64(1), _i64(4), constants=(1, 2)),
        _case(x, _i64(-3, 0), _i64(2**63 - 1, -1), _i64(1, 0), constants=(1, 2, 3)),
        _case(x, _i64(-1, 0), _i64(-100, 5), _i64(0, -1), _i64(-2, 2), constants=(1, 2, 3, 4)),
    ]


def _gather(opset: int) -> Cases:
    indices = [_i64(0, 2, 1), np.array([[0], [1]], np.int32), np.array(1, np.int64)]
    return [_case(_ints(3, 4), index, axis=axis) for index in indices for axis in (0, 1)]


def _pad(opset: int) -> Cases:
    x = _ints(2, 3)
    if opset < 11:
        return [_case(x, pads=(0, 1, 2, 0)), _case(x, pads=(0, 1, 2, 0), value=2.0, mode="constant")]
    cases = [
        _case(x, _i64(0, 1, 2, 0), constants=(1,)),
        _case(x, _i64(0, 1, 2, 0), np.float32(2), constants=(1, 2), mode="constant"),
    ]
    if opset >= 18:
        cases.append(_case(x, _i64(1, 2), np.float32(7), _i64(-1), constants=(1, 2, 3)))
    return cases


def _reduction(since: int) -> Callable[[int], Cases]:
    def cases(opset: int) -> Cases:
        x = _ints(2, 4, 4)
        if opset < since:
            return [_case(x), _case(x, axes=(1,)), _case(x, axes=(0, 2), keepdims=0)]
        return [
            _case(x),
            _case(x, noop_with_empty_axes=1),
            _case(x, _i64(-1), constants=(1,)),
            _case(x, _i64(0, 2), constants=(1,), keepdims=0),
        ]

    return cases


def _extreme(opset: int) -> Cases:
    truth = _ints(3, 2, 2, low=0, high=2, dtype="bool")
    bools = [_case(truth, _i64(1), constants=(1,), keepdims=keepdims) for keepdims in (0, 1)]
    return [*_reduction(18)(opset), *([*bools, _case(truth)] if opset >= 20 else [])]


def _log_sum_exp(opset: int) -> Cases:
    return [{**case, "exact": False} for case in _reduction(18)(opset)]


def _argmax(opset: int) -> Cases:
    x = _ints(3, 4)
    return [_case(x), _case(x, axis=1, keepdims=0), *([_case(x, axis=-1)] if opset >= 11 else [])]


def _constant(opset: int) -> Cases:
    cases = [_case(value=numpy_helper.from_array(_ints(2, 3)))]
    if opset >= 12:
        values: list[dict[str, Any]] = [
            {"value_int": 3},
            {"value_ints": [1, 2]},
            {"value_float": 0.5},
            {"value_floats": [0.5, 1.5]},
        ]
        cases += [_case(**attrs) for attrs in values]
    return cases


def _constant_of_shape(opset: int) -> Cases:
    value = helper.make_tensor("value", TensorProto.INT32, [1], [7])
    return [
        _case(_i64(2, 3), constants=(0,)),
        _case(_i64(2, 3), constants=(0,), value=value),
        _case(_i64(), constants=(0,)),
    ]


def _shape(opset: int) -> Cases:
    x = _ints(2, 3, 4)
    return [_case(x), *([_case(x, start=1), _case(x, start=-2, end=-1)] if opset >= 15 else [])]


_CASES: dict[str, Callable[[int], Cases]] = {
    **dict.fromkeys(["Add", "Sub", "Mul", "Div"], _binary),
    **dict.fromkeys(["And", "Or"], _logic),
    **dict.fromkeys(["Greater", "Less", "GreaterOrEqual", "LessOrEqual"], _comparison),
    **dict.fromkeys(["Max", "Min", "Sum"], _variadic),
    "Mean": _mean,
    **dict.fromkeys(["Exp", "Tanh", "Sigmoid", "Erf"], _smooth()),
    **dict.fromkeys(["Log", "Sqrt"], _smooth(low=0.1)),
    **dict.fromkeys(["Abs", "Neg", "Identity"], _exact_unary),
    **dict.fromkeys(["GlobalAveragePool", "GlobalMaxPool"], _global_pool),
    **dict.fromkeys(["ReduceMean", "ReduceProd"], _reduction(18)),
    **dict.fromkeys(["ReduceMax", "ReduceMin"], _extreme),
    "ArgMax": _argmax,
    "ArgMin": _argmax,
    "ReduceLogSumExp": _log_sum_exp,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "Dropout": _dropout,
    "Equal": _equal,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": lambda opset: [*_smooth()(opset), *_smooth(approximate="tanh")(opset)],
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda opset: [_case(_ints(3, 4), exact=False), _case(_ints(3, 4), alpha=0.25)],
    "MatMul": _matmul,
    "MaxPool": _max_pool,
    "Not": lambda opset: [_case(np.array([True, False]))],
    "Pad": _pad,
    "Pow": _power,
    "ReduceSum": _reduction(13),
    "Relu": _relu,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda opset: [_case(_ints(2, 3))],
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}


_ON_TEXTS = {"StringNormalizer", "TfIdfVectorizer"}
"""The ops in `test_onnx_string_normalizer.py` and `test_onnx_texts.py`."""


def test_every_imported_op_has_cases(all_import_cases: Callable[[], set[str]]) -> None:
    spelled = {op.onnx.op_type for op in default_ops().values() if op.onnx is not None}
    assert set(NODE_IMPORTERS) <= all_import_cases() | _ON_TEXTS <= set(NODE_IMPORTERS) | spelled
    assert set(SHAPE_IMPORTERS) <= set(NODE_IMPORTERS) | spelled


def test_op_equals_onnx_runtime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for arguments in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**arguments))


@pytest.mark.parametrize("op_type", sorted(set(_CASES) - {"Constant", "ConstantOfShape", "Shape", "Size"}))
def test_op_imports_with_dynamic_sizes(
    op_type: str, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    """All sizes are symbols; ops imported with known sizes only are in the list below."""
    for arguments in _CASES[op_type](NEWEST):
        attrs = arguments["attrs"]
        if op_type == "Split" and len(arguments["inputs"]) == 1:
            continue  # equal parts of an unknown size
        if op_type == "Squeeze" and len(arguments["inputs"]) == 1:
            continue  # which sizes are 1 is unknown
        if op_type == "Conv" and 1 not in arguments["constants"]:
            continue  # filters have a known size
        if attrs.get("auto_pad", "").startswith("SAME"):
            continue  # the padding depends on the size
        if op_type == "Expand":
            continue  # whether a size is 1 is unknown
        check_case(op_type, NEWEST, make_case(**arguments), dynamic=True)
