"""Results of type rules are stored in a single form, for any spelling by the rule; other values are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from byoc_core.dims import DimExpr, symbol
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.errors import ByocError, IRTypeError
from byoc_core.ir import FunctionBuilder, IRModule, ObjectType, OpDef, OperandSpec, TensorType, tensor
from byoc_core.ir.infer import infer_results
from byoc_core.ir.verifier import verify
from byoc_core.ops import default_ops
from byoc_core.script import parse
from hypothesis import given
from hypothesis import strategies as st

_INTEGERS: Sequence[Callable[[int], Any]] = (int, np.int8, np.int32, np.int64, np.uint64, np.array)
_SHAPES: Sequence[Callable[[list[Any]], Any]] = (tuple, list, iter, lambda sizes: (size for size in sizes))
_DTYPES: Sequence[Callable[[str], Any]] = (str, np.str_, to_numpy, lambda name: to_numpy(name).type)
_RESULTS: Sequence[Callable[[list[TensorType]], Any]] = (tuple, list, iter, lambda types: (item for item in types))


def op_of(infer: Callable[[Any], Any]) -> OpDef:
    return OpDef("mynpu.make", (OperandSpec("x"),), infer=infer)


def module_of(op: OpDef) -> IRModule:
    fb = FunctionBuilder("main", ops=default_ops())
    x = fb.param("x", tensor(("n", 3)))
    binding = fb.bind(op, [x], {})
    return IRModule({"main": fb.finish(*binding.results)}, fb.constants)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 100), st.sampled_from(_INTEGERS)), max_size=3),
    shape=st.sampled_from(_SHAPES),
    dtype=st.sampled_from(all_dtypes()),
    dtype_form=st.sampled_from(_DTYPES),
    count=st.integers(1, 3),
    form=st.sampled_from(_RESULTS),
)
def test_the_spelling_of_a_result_does_not_matter(
    sizes: list[tuple[int, Callable[[int], Any]]],
    shape: Callable[[list[Any]], Any],
    dtype: str,
    dtype_form: Callable[[str], Any],
    count: int,
    form: Callable[[list[TensorType]], Any],
) -> None:
    def infer(context: object) -> Any:
        return form([TensorType(shape([make(n) for n, make in sizes]), dtype_form(dtype)) for _ in range(count)])

    op = op_of(infer)
    module = verify(module_of(op))
    expected = TensorType(tuple(n for n, _ in sizes), dtype)
    (binding,) = module["main"].bindings
    assert [result.type for result in binding.results] == [expected] * count
    for type_ in (result.type for result in binding.results):
        assert isinstance(type_, TensorType)
        assert type(type_.shape) is tuple
        assert type(type_.dtype) is str
        assert [type(dim) for dim in type_.shape] == [int] * len(sizes)
        assert hash(type_) == hash(expected)
    assert parse(str(module), ops=default_ops().extended([op])) == module


def test_a_rule_may_give_the_one_type_alone_and_symbols_as_text() -> None:
    shape: Any = [symbol("n"), "2*n", np.int64(3)]
    dtype: Any = np.float16
    op = op_of(lambda context: TensorType(shape, dtype))
    (result,) = verify(module_of(op))["main"].results
    assert result.type == tensor(("n", "2*n", 3), "float16")
    assert isinstance(result.type, TensorType)
    assert result.type.shape is not None
    assert isinstance(result.type.shape[1], DimExpr)
    assert TensorType((2,), cast("Any", ml_dtypes.bfloat16)) == TensorType((2,), "bfloat16")


@pytest.mark.parametrize(
    ("given_result", "text"),
    [
        (None, "does not return types; got None (NoneType), expected a tuple of TensorType"),
        (3, "does not return types; got 3 (int), expected a tuple of TensorType"),
        ((3,), "does not return types; got 3 (int), expected a tuple of TensorType"),
        ("float32", "does not return types; got 'f' (str), expected a tuple of TensorType"),
        ([(2, 3)], "does not return types; got (2, 3) (tuple), expected a tuple of TensorType"),
    ],
)
def test_what_is_no_type_is_refused(given_result: object, text: str) -> None:
    with pytest.raises(IRTypeError) as caught:
        module_of(op_of(lambda context: given_result))
    assert str(caught.value) == f"op `mynpu.make`: the type rule {text}"


def test_a_rule_without_results_is_refused() -> None:
    with pytest.raises(IRTypeError, match="has no result"):
        module_of(op_of(lambda context: iter(())))


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [
        ((2.0,), "float32", "axis 0 has no size; got 2.0 (float), expected an integer or an expression over symbols"),
        ((2, None), "float32", "axis 1 has no size; got None (NoneType), "),
        ((True,), "float32", "axis 0 has no size; got True (bool), "),
        ((np.bool_(1),), "float32", "axis 0 has no size; got "),
        ((np.array([2, 3]),), "float32", "axis 0 has no size; got array([2, 3]) (numpy.ndarray), "),
        (("n m",), "float32", "dim"),
        (4, "float32", "the shape is not a sequence of sizes; got 4 (int)"),
        ("n", "float32", "the shape is not a sequence of sizes; got 'n' (str)"),
        ((np.int64(-1),), "float32", "axis 0 has a negative size; got -1"),
        ((2,), None, "the dtype has the wrong type; got None (NoneType), expected the name of a dtype"),
        ((2,), float, "the dtype has the wrong type; got <class 'float'> (type), expected the name of a dtype"),
        ((2,), np.datetime64, "numpy dtype dtype('<M8') has no byoc counterpart"),
        ((2,), "flaot32", "unknown dtype 'flaot32'. Did you mean 'float32'"),
    ],
)
def test_what_is_no_size_and_no_dtype_is_refused(shape: Any, dtype: Any, text: str) -> None:
    with pytest.raises(IRTypeError) as caught:
        TensorType(shape, dtype)
    assert text in str(caught.value)


def test_types_of_stored_form_are_taken_as_they_are() -> None:
    shape = (2, symbol("n"))
    dtype = "float32"
    type_ = TensorType(shape, dtype)
    assert type_.shape is shape
    assert type_.dtype is dtype


# Messages


class Twin:
    def __str__(self) -> str:
        return "X"


@dataclass(frozen=True)
class Box:
    content: object

    def __str__(self) -> str:
        return "X"

    __repr__ = __str__


def _pairs() -> Iterator[tuple[object, object]]:
    yield "X", Twin()
    yield Box((1,)), Box([1])
    yield Box(np.int64(1)), Box(1)
    yield "1", 1
    yield np.int64(3), 3
    yield np.float32(1), np.float64(1)
    yield Box(1), Box(1)
    yield "X", "X"


@pytest.mark.parametrize(("got", "expected"), list(_pairs()))
def test_a_message_never_says_that_it_got_what_it_expected(got: object, expected: object) -> None:
    text = str(ByocError("op `x`", "has another type", got=got, expected=expected))
    found = text.removeprefix("op `x`: has another type; got ")
    before, _, after = found.partition(", expected ")
    assert after
    assert before != after


def test_what_tells_values_apart_is_said() -> None:
    error = ByocError("w", "p", got=Box([1]), expected=Box((1,)))
    module = Box.__module__
    assert str(error) == (
        f"w: p; got X ({module}.Box[content: list[int]]), expected X ({module}.Box[content: tuple[int]])"
    )
    assert str(ByocError("w", "p", got=1, expected="1")) == "w: p; got 1 (int), expected 1 (str)"
    assert str(ByocError("w", "p", got=1, expected=2)) == "w: p; got 1, expected 2"


@given(st.recursive(st.integers() | st.text(max_size=3) | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_any_two_values_are_told_apart(value: object) -> None:
    text = str(ByocError("w", "p", got=value, expected=value))
    if value is not None:
        before, _, after = text.removeprefix("w: p; got ").rpartition(", expected ")
        assert before != after


def test_infer_results_and_the_verifier_share_the_form() -> None:
    op = op_of(lambda context: [context.tensor(0)])
    module = module_of(op)
    (binding,) = module["main"].bindings
    assert infer_results(op, binding.operands, {}) == (binding.results[0].type,)
    assert str(ObjectType("sequence")) == 'R.Object("sequence")'
