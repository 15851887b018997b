"""Shapes as data: what becomes of ``shape_of``, ``size``, ``full`` and other ops without operands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from byoc_core.ir import IRModule
from byoc_core.transform import FoldConstants, FoldShapes, RemoveDeadCode, Sequential

X = 'x: R.Tensor(("n", 3), "float32")'


def test_sizes_no_longer_need_the_tensor(rewrites: Callable[..., None]) -> None:
    rewrites(
        FoldShapes(),
        X,
        "a = R.exp(x)\nb = R.shape_of(a)\nc = R.size(a)\nreturn b, c",
        (
            'b = R.shape_to_tensor(sizes=("n", 3))\nc = R.shape_to_tensor(sizes=("3*n",))\n'
            "c_1 = R.reshape(c, shape=())\nreturn b, c_1"
        ),
    )


def test_a_filled_tensor_is_a_broadcast_number(rewrites: Callable[..., None]) -> None:
    rewrites(
        FoldShapes(),
        'x: R.Tensor((), "float32"), y: R.Tensor(("n",), "float32")',
        'a = R.full(x, shape=("n", 2))\nreturn a',
        'a = R.broadcast_to(x, shape=("n", 2))\nreturn a',
    )


def test_sizes_that_the_parameters_do_not_determine_stay_with_their_tensor(leaves: Callable[..., None]) -> None:
    leaves(FoldShapes(), 'x: R.Tensor(("m*n",), "float32")', "a = R.shape_of(x)\nb = R.size(x)\nreturn a, b")
    leaves(
        FoldShapes(),
        X,
        'a = R.call_packed("f", (x,), out_types=[R.Tensor(("k",), "int64")])\nb = R.shape_of(a)\nreturn b',
    )


def test_sizes_that_follow_from_two_parameters_are_known(rewrites: Callable[..., None]) -> None:
    rewrites(
        FoldShapes(),
        'x: R.Tensor(("past+seq",), "float32"), y: R.Tensor(("past",), "float32")',
        'a = R.strided_slice(x, axes=(0,), begin=("past",), end=("past+seq",), strides=(1,))\n'
        "b = R.shape_of(a)\nreturn b",
        'b = R.shape_to_tensor(sizes=("seq",))\nreturn b',
    )


def test_known_sizes_become_constants(main: Callable[[str, str], IRModule]) -> None:
    body = (
        'a = R.shape_of(x)\nb = R.size(x)\nc = R.arange(stop=3, dtype="int32")\nd = R.shape_to_tensor(sizes=(7,))\n'
        "return a, b, c, d"
    )
    module = main('x: R.Tensor((2, 3), "float32")', body)
    after = Sequential([FoldShapes(), FoldConstants(), RemoveDeadCode()])(module)["main"]
    assert after.bindings == ()
    assert [str(result.type) for result in after.results] == [
        'R.Tensor((2,), "int64")',
        'R.Tensor((), "int64")',
        'R.Tensor((3,), "int32")',
        'R.Tensor((1,), "int64")',
    ]


def test_what_depends_on_a_symbol_is_no_constant(main: Callable[[str, str], IRModule]) -> None:
    module = main(X, 'a = R.shape_to_tensor(sizes=("n",))\nb = R.arange(stop="n")\nreturn a, b')
    assert FoldConstants()(module) is module


def test_a_large_range_stays_an_op(main: Callable[[str, str], IRModule]) -> None:
    module = main(X, "a = R.arange(stop=1000000)\nreturn a")
    assert FoldConstants()(module) is module
    assert np.dtype(np.int64).itemsize * 1_000_000 > FoldConstants().max_growth_nbytes
