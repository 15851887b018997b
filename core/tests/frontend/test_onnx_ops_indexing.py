"""Gathers, scatters and moves of slices of ONNX, at every changing opset, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.module import IRModule
from byoc_core.opset.types import tensor
from onnx import TensorProto, helper, numpy_helper

NEWEST = 26  # the newest opset of the oracle
NEWEST_OF = {"Scatter": 10}  # deprecated since

Cases = list[dict[str, Any]]
CheckCase = Callable[..., IRModule]
MakeCase = Callable[..., Any]
Run = Callable[..., Sequence[Any]]
NodeModel = Callable[..., onnx.ModelProto]


def _ints(*shape: int, seed: int = 0, low: int = -4, high: int = 5, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def _places(*shape: int, size: int, dtype: str = "int64", seed: int = 3) -> Any:
    """Return indices into an axis, including negative indices."""
    return _ints(*shape, low=-size, high=size, dtype=dtype, seed=seed)


def _case(*inputs: npt.ArrayLike | None, constants: tuple[int, ...] = (), **attrs: object) -> dict[str, Any]:
    arrays = [None if item is None else np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants}


_DTYPES = ("float64", "float16", "int8", "uint16", "int32", "uint64", "bool")


def _gather_elements(opset: int) -> Cases:
    x = _ints(4, 5, 6)
    return [
        _case(x, _places(3, 5, 6, size=4)),
        _case(x, _places(4, 9, 6, size=5, dtype="int32"), axis=1),
        _case(x, _places(2, 3, 2, size=6), axis=-1, constants=(1,)),
        *(_case(x.astype(dtype), _places(2, 5, 6, size=4)) for dtype in _DTYPES),
    ]


def _gather_nd(opset: int) -> Cases:
    x = _ints(4, 4, 6)
    cases = [
        _case(x, _places(7, 1, size=4), constants=(1,)),
        _case(x, _places(2, 3, 2, size=4), constants=(1,)),
        _case(x, _places(3, size=4), constants=(1,)),
        *(_case(x.astype(dtype), _places(5, 2, size=4), constants=(1,)) for dtype in _DTYPES),
    ]
    if opset >= 12:
        cases += [
            _case(x, _places(4, 1, size=4), batch_dims=1, constants=(1,)),
            _case(x, _places(4, 3, 2, size=4), batch_dims=1, constants=(1,)),
            _case(x, _places(4, 4, 2, 1, size=6), batch_dims=2, constants=(1,)),
        ]
    return cases


def _reductions(opset: int) -> list[dict[str, Any]]:
    # The specification has extremes since opset 18; PyTorch and ONNX Runtime write and read both since 16.
    names = [] if opset < 16 else ["none", "add", "mul", "max", "min"]
    return [{}, *({"reduction": name} for name in names)]


def _scatter_elements(opset: int) -> Cases:
    x, updates = _ints(4, 5, 6), _ints(3, 5, 2, seed=1)
    indices = _places(3, 5, 2, size=4)
    cases = [
        *(_case(x, indices, updates, **attrs) for attrs in _reductions(opset)),
        *(_case(x, _places(3, 5, 2, size=6), updates, axis=-1, **attrs) for attrs in _reductions(opset)),
        _case(x, _places(4, 9, 6, size=5, dtype="int32"), _ints(4, 9, 6, seed=1), axis=1, constants=(1,)),
        *(_case(x.astype(dtype), indices, updates.astype(dtype)) for dtype in _DTYPES),
    ]
    for attrs in _reductions(opset):
        # The oracle has float16 for extremes only, and bool for sums and products only.
        more = {"add": ("bool",), "mul": ("bool",), "max": ("float16",), "min": ("float16",)}
        dtypes = ("float64", "int32", "uint8", "int64", *more.get(attrs.get("reduction", ""), ()))
        cases += [_case(x.astype(dtype), indices, updates.astype(dtype), **attrs) for dtype in dtypes]
    return cases


def _scatter_nd(opset: int) -> Cases:
    x = _ints(4, 4, 6)
    cases = [_case(x, _places(3, size=4), _ints(), constants=(1,))]
    for attrs in _reductions(opset):
        cases += [
            _case(x, _places(7, 1, size=4), _ints(7, 4, 6, seed=1), constants=(1,), **attrs),
            _case(x, _places(5, 2, 2, size=4), _ints(5, 2, 6, seed=1), constants=(1,), **attrs),
            _case(x, _places(50, 3, size=4), _ints(50, seed=1), constants=(1,), **attrs),
        ]
        for dtype in ("float64", "int32", "uint8"):
            arrays = x.astype(dtype), _ints(7, 6, seed=1).astype(dtype)
            cases.append(_case(arrays[0], _places(7, 2, size=4), arrays[1], constants=(1,), **attrs))
    return cases


def _one_hot(opset: int) -> Cases:
    indices, values = _ints(3, 4, low=-7, high=8, dtype="int64"), np.array([2, 5], np.float32)
    return [
        _case(indices, np.array(6), values, constants=(1, 2)),
        _case(indices, np.array([6]), values, axis=0, constants=(1,)),
        _case(indices, np.array(6), values, axis=-2, constants=(1,)),
        _case(indices, np.array(6), values.astype(np.int64), constants=(1, 2)),
        _case(indices.astype(np.int32), np.array(6, np.int32), values, constants=(1, 2)),
        _case(indices.astype(np.float32), np.array(6.0, np.float32), values, constants=(1, 2)),
        _case(indices, np.array([6.0], np.float32), values.astype(np.int32), constants=(1, 2)),
    ]


def _reverse_sequence(opset: int) -> Cases:
    x, lengths = _ints(4, 5, 3), np.array([0, 4, 1, 3, 2])
    return [
        _case(x, lengths),
        _case(x, lengths[[0, 1, 3, 2]], batch_axis=0, time_axis=1),
        *(_case(x.astype(dtype), lengths, constants=(1,)) for dtype in _DTYPES),
    ]


def _tensor_scatter(opset: int) -> Cases:
    cache, new = _ints(3, 2, 7, 4), _ints(3, 2, 3, 4, seed=1)
    return [
        _case(cache, new),
        _case(cache, new, np.array([0, 4, 2])),
        _case(cache, new, np.array([6, 0, 12]), mode="circular"),
        _case(cache, _ints(3, 2, 7, 2, seed=1), np.array([0, 2, 1]), axis=-1),
        _case(cache, _ints(3, 1, 7, 4, seed=1), np.array([0, 1, 1]), axis=1, constants=(2,)),
        *(_case(cache.astype(dtype), new.astype(dtype), np.array([4, 3, 0])) for dtype in _DTYPES),
    ]


def _tile(opset: int) -> Cases:
    x = _ints(2, 3)
    return [
        _case(x, np.array([3, 2]), constants=(1,)),
        _case(x, np.array([1, 0]), constants=(1,)),
        _case(x, np.array([1, 1]), constants=(1,)),
        _case(np.float32(3), np.zeros(0, np.int64), constants=(1,)),
        *(_case(x.astype(dtype), np.array([1, 2]), constants=(1,)) for dtype in _DTYPES),
    ]


_CASES: dict[str, Callable[[int], Cases]] = {
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "Tile": _tile,
}


def _newest(op_type: str) -> int:
    return NEWEST_OF.get(op_type, NEWEST)


def test_op_equals_onnx_runtime(op_type: str, opset: int, check_case: CheckCase, make_case: MakeCase) -> None:
    for arguments in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**arguments))


@pytest.mark.parametrize("op_type", sorted(_CASES))
def test_op_imports_with_dynamic_sizes(op_type: str, check_case: CheckCase, make_case: MakeCase) -> None:
    for arguments in _CASES[op_type](_newest(op_type)):
        check_case(op_type, _newest(op_type), make_case(**arguments), dynamic=True)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_gather_counts_from_the_end(dtype: str, check_case: CheckCase, make_case: MakeCase) -> None:
    indices = _places(3, 2, size=5, dtype=dtype)
    assert indices.min() < 0
    check_case("Gather", NEWEST, make_case([_ints(4, 5, 6), indices], {"axis": 1}))


def test_one_hot_rounds_indices_towards_zero(node_model: NodeModel, make_case: MakeCase, run: Run) -> None:
    """By the specification; ONNX Runtime takes these indices for indices out of range."""
    inputs = [np.array([0.9, -0.9, 1.5, -1.5], np.float32), np.array(3.7, np.float32), np.array([0, 1], np.float32)]
    module = from_onnx(node_model("OneHot", NEWEST, make_case(inputs, constants=(1, 2))))
    expected = np.eye(3, dtype=np.float32)[[0, 0, 1, -1]]
    np.testing.assert_array_equal(run(module, {"i0": inputs[0]})[0], expected, strict=True)


def _computed(op_type: str, inputs: list[str], weights: dict[str, Any]) -> onnx.ModelProto:
    """Return a model with a node taking `n`, the size of axis 0 of `x`, as a tensor of a single element."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "two"], ["counts"], axis=0),
        helper.make_node(op_type, inputs, ["y"]),
    ]
    constants = {"first": np.array([0]), "two": np.array([2]), **weights}
    graph = helper.make_graph(
        nodes,
        "computed",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("i", TensorProto.INT64, ["m"]),
        ],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("op_type", "inputs", "shape"),
    [("OneHot", ["i", "n", "values"], ("m", "n")), ("Tile", ["x", "counts"], ("n*n", 6))],
)
def test_counts_computed_from_shapes_stay_symbolic(
    op_type: str, inputs: list[str], shape: tuple[str | int, ...], check_model: Callable[..., IRModule]
) -> None:
    model = _computed(op_type, inputs, {"values": np.array([0, 1], np.float32)})
    for n in (1, 4):
        module = check_model(model, {"x": _ints(n, 3), "i": np.array([0, 3, -1, 5, -4])})
    assert [result.type for result in module["main"].results] == [tensor(shape)]


_X = np.zeros((2, 3), np.float32)
_REFUSED: list[tuple[str, int, list[Any], dict[str, Any], tuple[int, ...], str]] = [
    (
        "Scatter",
        11,
        [_X, np.zeros((1, 1), int), _X[:1, :1]],
        {},
        (),
        "the op is deprecated since operator set 11. Use ScatterElements.",
    ),
    ("Scatter", 8, [_X, np.zeros((1, 1), int), _X[:1, :1]], {}, (), "the op does not exist in operator set 8"),
    (
        "ScatterElements",
        17,
        [_X, np.zeros((1, 1), int), _X[:1, :1]],
        {"reduction": "mean"},
        (),
        "attribute `reduction` is unknown; got mean, expected none or add or mul or max or min",
    ),
    (
        "ScatterND",
        13,
        [_X, np.zeros((1, 1), int), _X[:1]],
        {"reduction": "add"},
        (),
        "has unsupported attributes; got reduction",
    ),
    (
        "GatherND",
        11,
        [_X, np.zeros((2, 1), int)],
        {"batch_dims": 1},
        (),
        "has unsupported attributes; got batch_dims",
    ),
    (
        "OneHot",
        11,
        [np.zeros(3, int), np.array([3, 3]), np.ones(2, np.float32)],
        {},
        (1,),
        "the depth is not a single number; got 2 numbers",
    ),
    (
        "OneHot",
        11,
        [np.zeros(3, int), np.array(3), np.ones(3, np.float32)],
        {},
        (1, 2),
        (
            "op `reshape`: attribute `shape` holds 2 elements, operand `x` has 3; got (2,), expected a shape with as "
            "many elements as (3,)"
        ),
    ),
    (
        "OneHot",
        11,
        [np.zeros(3, int), np.array(-3), np.ones(2, np.float32)],
        {},
        (1, 2),
        "op `one_hot`: attribute `depth` is negative; got -3, expected 0 or more",
    ),
    (
        "Tile",
        13,
        [_X, np.array([2])],
        {},
        (1,),
        "op `tile`: attribute `repeats` has 1 values; expected a value for each of 2 axes",
    ),
    (
        "TensorScatter",
        24,
        [_X, _X],
        {},
        (),
        "attribute `axis` is the batch axis; got 0, expected 1 to 1",
    ),
    (
        "TensorScatter",
        24,
        [_X, _X],
        {"axis": 1, "mode": "ring"},
        (),
        "op `scatter_slice`, attribute `mode`: value not permitted; got 'ring', expected 'linear' or 'circular'",
    ),
    (
        "ReverseSequence",
        10,
        [_X, np.ones(2, int)],
        {"batch_axis": 0},
        (),
        "op `reverse_sequence`: attributes `batch_axis` and `seq_axis` name the same axis; got 0",
    ),
]


@pytest.mark.parametrize(("op_type", "opset", "inputs", "attrs", "constants", "text"), _REFUSED)
def test_variant_is_refused(
    op_type: str,
    opset: int,
    inputs: list[Any],
    attrs: dict[str, Any],
    constants: tuple[int, ...],
    text: str,
    node_model: NodeModel,
    make_case: MakeCase,
) -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(node_model(op_type, opset, make_case(inputs, attrs, constants)))
    assert str(caught.value).partition("\n")[0] == f"ONNX model, node `the_node` ({op_type}): {text}"
