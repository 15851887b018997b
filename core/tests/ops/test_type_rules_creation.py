"""Type rules of ops making tensors of given sizes, and of ops with symbolic sizes in attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import evaluate, parse_dim
from byoc_core.errors import IRTypeError
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.module import Var
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.opset.types import TensorType, tensor
from byoc_core.transform.evaluate import resolve_dims
from hypothesis import given
from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

_SIZES = st.integers(0, 5)
_DTYPES = st.sampled_from(["float32", "float16", "int64", "int8", "uint8", "bool"])


def _arange(draw: Draw) -> Case:
    bound, step = st.integers(-9, 9), st.integers(-3, 3).filter(bool)
    dtype = draw(st.sampled_from(["int64", "int32", "int8", "uint8", "float32", "float64", "bfloat16"]))
    return [], {"start": draw(bound), "stop": draw(bound), "step": draw(step), "dtype": dtype}


def _full(draw: Draw) -> Case:
    return [((), draw(_DTYPES))], {"shape": tuple(draw(st.lists(_SIZES, max_size=3)))}


def _any(draw: Draw) -> Case:
    return [(tuple(draw(st.lists(_SIZES, max_size=4))), draw(_DTYPES))], {}


def _shape_to_tensor(draw: Draw) -> Case:
    return [], {"sizes": tuple(draw(st.lists(st.integers(-9, 9), max_size=4)))}


_CASES: dict[str, Callable[[Draw], Case]] = {
    "arange": _arange,
    "full": _full,
    "shape_of": _any,
    "shape_to_tensor": _shape_to_tensor,
    "size": _any,
}


def _types(name: str, operands: list[TensorType], **attrs: object) -> list[str]:
    builder = FunctionBuilder("f", ops=default_ops())
    values = [builder.param(f"x{index}", type_) for index, type_ in enumerate(operands)]
    return [str(result.type) for result in builder.bind(name, values, attrs).results]


@pytest.mark.parametrize(
    ("attrs", "size"),
    [
        ({"stop": "n"}, "n"),
        ({"start": "past", "stop": "past + seq"}, "seq"),
        ({"start": 2, "stop": "2*n + 2", "step": 2}, "n"),
        ({"start": "n", "stop": 0, "step": -1}, "n"),
        ({"start": 1, "stop": "n"}, "max(0, n-1)"),
    ],
)
def test_a_range_of_sizes_has_the_length_that_follows(attrs: dict[str, Any], size: str) -> None:
    assert _types("arange", [], **attrs) == [str(tensor((size,), "int64"))]


@pytest.mark.parametrize(
    ("size", "begin", "end", "stride", "mode", "result"),
    [
        ("past + seq", "past", "past + seq", 1, "clip", "seq"),
        ("past + seq", 0, "seq", 1, "clip", "seq"),
        ("past + seq", "-seq - 1", 1 << 62, 1, "clip", "past + seq - max(0, past - 1)"),
        (1024, "past", "past + seq", 1, "strict", "seq"),
        (1024, 0, "n", 1, "strict", "n"),
        (1024, 0, "n", 1, "clip", "min(n, 1024)"),
        (1024, "past", 1 << 62, 1, "strict", "max(0, 1024 - past)"),
        ("n", "n + m", -(1 << 62), -1, "clip", "n"),
        ("4*n", 0, "2*n", 2, "clip", "n"),
    ],
)
def test_bounds_may_be_sizes(
    size: int | str, begin: int | str, end: int | str, stride: int, mode: str, result: str
) -> None:
    attrs = {"axes": (0,), "begin": (begin,), "end": (end,), "strides": (stride,), "mode": mode}
    assert _types("strided_slice", [tensor((size,))], **attrs) == [str(tensor((parse_dim(result),)))]


_BOUNDS = st.sampled_from(["n", "m", "n + m", "n - 1", "m - n", "-n", "2*n", "n - m - 1", "0", "3", "-2"])


@given(
    st.sampled_from(["n", "m", "n + m", "5"]),
    _BOUNDS,
    _BOUNDS,
    st.sampled_from([-2, -1, 1, 2]),
    st.fixed_dictionaries({"n": st.integers(0, 6), "m": st.integers(0, 6)}),
)
def test_a_slice_between_sizes_has_the_size_that_the_rule_gives(
    size: str, begin: str, end: str, stride: int, values: dict[str, int]
) -> None:
    op = default_ops()["strided_slice"]
    attrs = op.normalise_attrs({"axes": (0,), "begin": (begin,), "end": (end,), "strides": (stride,)})
    builder = FunctionBuilder("f", ops=default_ops())
    (result,) = builder.bind(op, [builder.param("x", tensor((size,)))], attrs).results
    x = np.zeros(evaluate(parse_dim(size), values), np.float32)
    taken = KERNELS["strided_slice"](x, **resolve_dims(attrs, values))
    assert isinstance(taken, np.ndarray)
    assert isinstance(result, Var)
    assert isinstance(result.type, TensorType)
    assert result.type.substitute(values) == TensorType(taken.shape, "float32")


def test_sections_may_be_sizes() -> None:
    types = _types("split", [tensor((2, "past + seq"))], sections=("past", "seq"), axis=1)
    assert types == [str(tensor((2, "past"))), str(tensor((2, "seq")))]


def test_a_reshape_divides_symbolic_products_exactly() -> None:
    for shape, target, last in (
        (("batch", "seq", 768), ("batch", "seq", 12, -1), 64),
        (("batch", 12, "past + seq", 64), ("batch", 12, -1, 64), "past + seq"),
        (("batch*past + batch*seq", 64), ("past + seq", -1), "64*batch"),
    ):
        axis = target.index(-1)
        wanted = tensor((*target[:axis], last, *target[axis + 1 :]))
        assert _types("reshape", [tensor(shape)], shape=target) == [str(wanted)]


def test_sizes_that_are_spelled_in_two_ways_are_equal() -> None:
    left, right = tensor(("b", 12, "seq", "past + seq")), tensor(("b", 1, "1*seq", "seq + past"))
    assert _types("add", [left, right]) == [str(left)]
    value = tensor(("b", 12, "(2*past + 2*seq)//2", 64))
    assert _types("matmul", [left, value]) == [str(tensor(("b", 12, "seq", 64)))]
    assert _types("concat", [value, value], axis=0) == [str(tensor(("2*b", 12, "past + seq", 64)))]
    assert _types("where", [tensor((1, 1, "seq", "seq + past"), "bool"), left, tensor(())]) == [str(left)]


def test_the_ops_of_attention_take_a_cache_of_any_spelling() -> None:
    query, total = tensor(("b", 8, "seq", 64)), "seq + past"
    key, value = tensor(("b", 2, "past + seq", 64)), tensor(("b", 2, total, 32))
    mask = tensor((1, 1, "seq", "(2*past + 2*seq)//2"))
    assert _types("nn.attention", [query, key, value, mask]) == [str(tensor(("b", 8, "seq", 32)))]
    angles = tensor(("b", "past + seq - past", 32))
    assert _types("nn.rotary_embedding", [query, angles, angles]) == [str(query)]
    scores = _types("einsum", [query, tensor(("b", 8, total, 64))], equation="bhqd,bhkd->bhqk")
    assert scores == [str(tensor(("b", 8, "seq", "past + seq")))]
    assert _types("nn.softmax", [tensor(("b", 8, "seq", total))], axis=-1) == scores
    with pytest.raises(IRTypeError) as caught:
        _types("nn.attention", [query, key, tensor(("b", 2, "past + seq + 1", 32))])
    assert str(caught.value) == (
        "op `nn.attention`, operand `value=x2`: axis 2 has size past+seq+1; got (b, 2, past+seq+1, 32), "
        "expected past+seq as axis 2 of operand `key`"
    )
