"""Shapes as data: rewrites of ``shape_of``, ``size``, ``full`` and other ops without operands."""

from __future__ import annotations

import numpy as np
from byoc_core.ir import IRModule, TensorType, Value, tensor, verify
from byoc_core.ops import FunctionBuilder
from byoc_core.transform import FoldConstants, FoldShapes, RemoveDeadCode, Sequential
from hypothesis import given
from hypothesis import strategies as st

from core.tests.ir_text import check_pass, check_unchanged
from core.tests.transform.random_modules import check_same_bits

X = 'x: R.Tensor(("n", 3), "float32")'


def test_sizes_no_longer_need_the_tensor() -> None:
    check_pass(
        FoldShapes(),
        X,
        "a = R.exp(x)\nb = R.shape_of(a)\nc = R.size(a)\nreturn b, c",
        (
            'b = R.shape_to_tensor(sizes=("n", 3))\nc = R.shape_to_tensor(sizes=("3*n",))\n'
            "c_1 = R.reshape(c, shape=())\nreturn b, c_1"
        ),
    )


def test_a_filled_tensor_is_a_broadcast_number() -> None:
    check_pass(
        FoldShapes(),
        'x: R.Tensor((), "float32"), y: R.Tensor(("n",), "float32")',
        'a = R.full(x, shape=("n", 2))\nreturn a',
        'a = R.broadcast_to(x, shape=("n", 2))\nreturn a',
    )


def test_sizes_that_the_parameters_do_not_determine_stay_with_their_tensor() -> None:
    check_unchanged(FoldShapes(), 'x: R.Tensor(("m*n",), "float32")', "a = R.shape_of(x)\nb = R.size(x)\nreturn a, b")
    check_unchanged(
        FoldShapes(),
        X,
        'a = R.call_packed("f", (x,), out_types=[R.Tensor(("k",), "int64")])\nb = R.shape_of(a)\nreturn b',
    )


def test_sizes_that_follow_from_two_parameters_are_known() -> None:
    check_pass(
        FoldShapes(),
        'x: R.Tensor(("past+seq",), "float32"), y: R.Tensor(("past",), "float32")',
        'a = R.strided_slice(x, axes=(0,), begin=("past",), end=("past+seq",), strides=(1,))\n'
        "b = R.shape_of(a)\nreturn b",
        'b = R.shape_to_tensor(sizes=("seq",))\nreturn b',
    )


def test_known_sizes_become_constants() -> None:
    body = (
        'a = R.shape_of(x)\nb = R.size(x)\nc = R.arange(stop=3, dtype="int32")\nd = R.shape_to_tensor(sizes=(7,))\n'
        "return a, b, c, d"
    )
    after = 'return R.const([2, 3], "int64"), R.const(6, "int64"), R.const([0, 1, 2], "int32"), R.const([7], "int64")'
    steps = Sequential([FoldShapes(), FoldConstants(), RemoveDeadCode()])
    check_pass(steps, 'x: R.Tensor((2, 3), "float32")', body, after)


def test_what_depends_on_a_symbol_is_no_constant() -> None:
    check_unchanged(FoldConstants(), X, 'a = R.shape_to_tensor(sizes=("n",))\nb = R.arange(stop="n")\nreturn a, b')


def test_a_large_range_stays_an_op() -> None:
    check_unchanged(FoldConstants(), X, "a = R.arange(stop=1000000)\nreturn a")
    assert np.dtype(np.int64).itemsize * 1_000_000 > FoldConstants().max_growth_nbytes


def test_axes_of_size_1_are_a_matter_of_shape() -> None:
    check_pass(
        FoldShapes(),
        X,
        "a = R.expand_dims(x, axis=(0, 3))\nb = R.squeeze(a, axis=(0,))\nreturn b",
        'a = R.reshape(x, shape=(1, "n", 3, 1))\nb = R.reshape(a, shape=("n", 3, 1))\nreturn b',
    )


def test_an_axis_that_may_have_another_size_stays_to_be_checked() -> None:
    check_unchanged(FoldShapes(), X, "a = R.squeeze(x, axis=(0,))\nreturn a")


@given(data=st.data())
def test_every_bit_stays(data: st.DataObject) -> None:
    builder = FunctionBuilder("main")
    x, number = builder.param("x", tensor(("n", 1, 2), "float32")), builder.param("number", tensor((), "float32"))
    values: list[Value] = [x]
    results: list[Value] = []
    for _ in range(data.draw(st.integers(1, 6))):
        value = data.draw(st.sampled_from(values))
        assert isinstance(value.type, TensorType)
        shape = value.type.shape or ()
        ones = [axis for axis, size in enumerate(shape) if size == 1]
        op = data.draw(st.sampled_from(["shape_of", "size", "full", "expand_dims", *(["squeeze"] if ones else [])]))
        if op in ("shape_of", "size"):
            results.append(builder.bind(op, [value], {}).result)
        elif op == "full":
            results.append(builder.bind(op, [number], {"shape": shape}).result)
        else:
            places = ones if op == "squeeze" else list(range(len(shape) + 1))
            axis = data.draw(st.sampled_from(places))
            values.append(builder.bind(op, [value], {"axis": (axis,)}).result)
    module = IRModule({"main": builder.finish(*results, *values)}, builder.constants)
    after = verify(FoldShapes()(module))
    assert {binding.op.name for binding in after["main"].bindings} <= {"shape_to_tensor", "broadcast_to", "reshape"}
    assert FoldShapes()(after) is after
    count = data.draw(st.integers(0, 3))
    array = np.arange(2 * count, dtype=np.float32).reshape(count, 1, 2)
    check_same_bits(module, after, [array, np.array(-0.0, np.float32)])
