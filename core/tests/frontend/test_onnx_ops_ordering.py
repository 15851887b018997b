"""Ordering, cumulative ops and reductions of ONNX, at every changing opset, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule
from onnx import TensorProto, helper, numpy_helper

from core.tests.frontend.conftest import Array, Case

NEWEST = 26  # the newest opset of the oracle

Cases = list[dict[str, Any]]


def _ints(*shape: int, seed: int = 0, low: int = -4, high: int = 5, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def _floats(*shape: int, low: float = -3.0, high: float = 3.0) -> Any:
    return np.random.default_rng(1).uniform(low, high, shape).astype(np.float32)


def _i64(*values: int) -> Any:
    return np.array(values, np.int64)


def _case(
    *inputs: npt.ArrayLike, constants: tuple[int, ...] = (), outputs: int = 1, exact: bool = True, **attrs: object
) -> dict[str, Any]:
    arrays = [np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants, "num_outputs": outputs, "exact": exact}


def _topk(opset: int) -> Cases:
    """Among equal elements, the first are taken."""
    x = _ints(3, 20, 4)
    if opset < 10:
        return [_case(x, outputs=2, k=2), _case(x, outputs=2, k=7, axis=1), _case(x, outputs=2, k=1, axis=0)]
    cases = [_case(x, _i64(k), constants=(1,), outputs=2, axis=axis) for k, axis in ((2, -1), (7, 1), (20, 1), (0, 0))]
    if opset >= 11:
        for dtype in ("int32", "int64", "float64"):
            y = _ints(3, 20, 4, dtype=dtype)
            cases.append(_case(y, _i64(9), constants=(1,), outputs=2, axis=-2, largest=0, sorted=1))
    return cases


def _cumulative(opset: int) -> Cases:
    """Small integers with exact sums and products."""
    cases = []
    for dtype in ("float32", "float64", "int32", "int64"):
        x = _ints(2, 5, 3, low=-3, high=4, dtype=dtype)
        cases += [_case(x, axis, constants=(1,)) for axis in (np.array(1), np.array(-1, np.int32), np.array([0]))]
        flags = ((0, 1), (1, 0), (1, 1))
        cases += [_case(x, np.array(1), constants=(1,), exclusive=a, reverse=b) for a, b in flags]
    return cases


def _reduction(low: float, high: float, *, exact: bool) -> Callable[[int], Cases]:
    """Return cases of a reduction of float32 and of integers."""

    def cases(opset: int) -> Cases:
        x = _ints(2, 3, 4, low=int(low), high=int(high)) if exact else _floats(2, 3, 4, low=low, high=high)
        y = _ints(2, 3, 4, low=max(int(low), 1), high=4, dtype="int32")
        found: Cases = [_case(x, exact=exact), _case(x, exact=exact, keepdims=0), _case(y)]
        if opset < 18:
            found.append(_case(x, exact=exact, axes=(0, 2)))
            found.append(_case(y, axes=(-1,) if opset >= 11 else (1,), keepdims=0))
        else:
            found.append(_case(x, _i64(0, -1), constants=(1,), exact=exact))
            found.append(_case(y, _i64(1), constants=(1,), keepdims=0))
            found.append(_case(x, exact=exact, noop_with_empty_axes=1))
            found.append(_case(x, _i64(), constants=(1,), exact=exact, noop_with_empty_axes=1))
            found.append(_case(x, _i64(), constants=(1,), exact=exact))
        return found

    return cases


def _hardmax(opset: int) -> Cases:
    x = _ints(3, 4, 5, low=0, high=4)
    axes = (0, 1, 2, *((-1, -2) if opset >= 11 else ()))
    return [_case(x), *(_case(x, axis=axis) for axis in axes)]


def _lp_norm(opset: int) -> Cases:
    x = _floats(3, 4, 5)
    x[1, 2] = 0  # has no length
    cases = [_case(x, exact=False), _case(x, exact=False, p=1)]
    cases += [_case(x, exact=False, axis=axis, p=p) for axis in (1, -2) for p in (1, 2)]
    return [*cases, _case(x.astype(np.float64), exact=False)]


_CASES: dict[str, Callable[[int], Cases]] = {
    **dict.fromkeys(["CumProd", "CumSum"], _cumulative),
    "Hardmax": _hardmax,
    "LpNormalization": _lp_norm,
    "ReduceL1": _reduction(-4, 5, exact=True),
    "ReduceL2": _reduction(-3, 3, exact=False),
    "ReduceLogSum": _reduction(1, 5, exact=False),
    "ReduceLogSumExp": lambda opset: [
        case for case in _reduction(-3, 3, exact=False)(opset) if case["inputs"][0].dtype == np.float32
    ],
    "ReduceSumSquare": _reduction(-4, 5, exact=True),
    "TopK": _topk,
}


def test_op_equals_onnx_runtime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for arguments in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**arguments))


@pytest.mark.parametrize("op_type", sorted(_CASES))
def test_op_imports_with_dynamic_sizes(
    op_type: str, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for arguments in _CASES[op_type](NEWEST):
        check_case(op_type, NEWEST, make_case(**arguments), dynamic=True)


def test_logarithm_of_a_sum_of_exponentials_of_integers_is_truncated(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    """ONNX Runtime truncates the exponentials too, each by itself."""
    x = _ints(4, 6, dtype="int32")
    (result,) = run(from_onnx(node_model("ReduceLogSumExp", 13, make_case([x], {"axes": (1,)}))), {"i0": x})
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, np.trunc(np.log(np.exp(x.astype(np.float64)).sum(axis=1, keepdims=True))))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_means_and_shrinking_of_integers_truncate(
    dtype: str, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    x = _ints(4, 3, low=-9, high=10, dtype=dtype)
    check_case("ReduceMean", 13, make_case([x], {"axes": (1,)}))
    check_case("ReduceMean", 13, make_case([np.full_like(x, 2**25 + 1)], {"keepdims": 0}))  # float32 has no such number
    check_case("Shrink", 9, make_case([x], {"lambd": 2.5, "bias": 1.5}))


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("opset", [12, 13])
def test_the_last_of_equal_elements(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    x = _ints(4, 9, low=0, high=3)
    for attrs in ({"axis": 1}, {"axis": -2, "keepdims": 0}):
        for dynamic in (False, True):
            check_case(op_type, opset, make_case([x], {**attrs, "select_last_index": 1}), dynamic=dynamic)


def test_unsorted_topk_takes_the_same_elements(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    """ONNX leaves the order open."""
    x = _ints(5, 40)
    model = node_model("TopK", 24, make_case([x, _i64(11)], {"sorted": 0}, (1,), 2))
    for result, wanted in zip(run(from_onnx(model), {"i0": x}), run(model, {"i0": x}), strict=True):
        np.testing.assert_array_equal(np.sort(result, axis=-1), np.sort(wanted, axis=-1))


@pytest.mark.parametrize("op_type", ["ReduceL2", "ReduceLogSum", "ReduceSumSquare", "LpNormalization"])
def test_half_precision_computes_in_float32(
    op_type: str, node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    """Squares and sums outside float16: the result is computed in float32 and rounded once."""
    x = np.repeat([[300.0], [0.375], [1e-4], [3e4]], 64, axis=1)
    x[0, :3] = 400, 1200, 5
    attrs: dict[str, Any] = {"axis": 1} if op_type == "LpNormalization" else {"axes": (1,)}
    model = node_model(op_type, 13, make_case([x.astype(np.float16)], attrs))
    (result,) = run(from_onnx(model), {"i0": x.astype(np.float16)})
    wide = node_model(op_type, 13, make_case([x.astype(np.float32)], attrs))
    (wanted,) = run(wide, {"i0": x.astype(np.float32)})
    assert result.dtype == np.float16
    with np.errstate(over="ignore"):
        rounded = wanted.astype(np.float16)
    # ONNX Runtime may be an ULP of float32 off, which is an ULP of float16 where the two lie about a boundary.
    np.testing.assert_array_max_ulp(result, rounded, maxulp=1)


def _symbolic_topk(op_type: str, *numbers: int) -> onnx.ModelProto:
    """Return a model taking a number of elements of the last axis, computed by an op from axis size and numbers."""
    names = [f"number{index}" for index in range(len(numbers))]
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Gather", ["shape", "last"], ["size"]),
            helper.make_node(op_type, ["size", *names], ["k"]),
            helper.make_node("TopK", ["x", "k"], ["values", "indices"]),
        ],
        "some",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", "n"])],
        [onnx.ValueInfoProto(name=name) for name in ("values", "indices")],
        [
            numpy_helper.from_array(_i64(value), name)
            for value, name in ((1, "last"), *zip(numbers, names, strict=True))
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


@pytest.mark.parametrize("n", [2, 7, 30])
@pytest.mark.parametrize(
    ("op_type", "numbers", "k"),
    [("Div", (2,), "n//2"), ("Min", (5,), "min(5, n)"), ("Min", (9, 4), "min(4, n)")],
)
def test_topk_of_a_symbolic_number(
    n: int, op_type: str, numbers: tuple[int, ...], k: str, check_model: Callable[..., Any]
) -> None:
    module = check_model(_symbolic_topk(op_type, *numbers), {"x": _ints(3, n)})
    (binding,) = module["main"].bindings
    assert str(binding.attrs["k"]) == k


def test_hardmax_marks_the_first_nan(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    x = np.array([[1.0, np.nan, 3.0, np.nan]], np.float32)
    (result,) = run(from_onnx(node_model("Hardmax", 13, make_case([x]))), {"i0": x})
    np.testing.assert_array_equal(result, [[0, 1, 0, 0]])


_REFUSED: list[tuple[str, int, list[Any], dict[str, Any], str]] = [
    ("TopK", 11, [_ints(4), _i64(1, 2)], {}, "`k` is not a single number; got [1, 2]"),
    (
        "TopK",
        11,
        [_ints(4), _i64(5)],
        {},
        ("op `topk`: attribute `k` is out of range for axis 0; got 5, expected 0 to 4"),
    ),
    ("TopK", 9, [_ints(4)], {}, "lacks attribute `k`"),
    ("CumSum", 14, [_ints(4), _i64(0, 0)], {}, "the axis is not a single number; got (0, 0)"),
    ("LpNormalization", 22, [_ints(4)], {"p": 3}, "attribute `p` is unknown; got 3, expected 1 or 2"),
]


@pytest.mark.parametrize(("op_type", "opset", "inputs", "attrs", "text"), _REFUSED)
def test_variant_is_refused(
    op_type: str,
    opset: int,
    inputs: list[Any],
    attrs: dict[str, Any],
    text: str,
    node_model: Callable[..., onnx.ModelProto],
    make_case: type[Case],
) -> None:
    model = node_model(op_type, opset, make_case(inputs, attrs, range(1, len(inputs))))
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == f"ONNX model, node `the_node` ({op_type}): {text}"
