"""Indices and sizes without an element: the call fails, and names the op and the index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.ir import TensorType, tensor

from plugins.ccompiler.tests.bench import Bench
from plugins.ccompiler.tests.edge_values import floats, ints

NDArray = npt.NDArray[Any]
I64 = "int64"


FAILING: list[tuple[str, tuple[TensorType, ...], Mapping[str, Any], tuple[NDArray, ...], str]] = [
    (
        "take",
        (tensor((2, "n")), tensor(("k",), I64)),
        {"axis": 1},
        (floats(2, 4), ints(I64, [0, -5, 9])),
        "op `take`: an index lies outside axis 1; got -5, expected -4 to 3",
    ),
    (
        "take",
        (tensor((4,)), tensor((1,), "uint64")),
        {"axis": 0},
        (floats(4), ints("uint64", [2**64 - 1])),
        "op `take`: an index lies outside axis 0; got 18446744073709551615, expected -4 to 3",
    ),
    *(
        (
            "take",
            (tensor(("n",)), tensor((1,), "int8")),
            {"axis": 0, "mode": mode},
            (floats(0), ints("int8", [1])),
            "op `take`: an index lies outside axis 0; got 1, expected no index at all: the axis is empty",
        )
        for mode in ("fast", "clip")
    ),
    (
        "gather_elements",
        (tensor((3, 2)), tensor((1, 2), I64)),
        {"axis": 0},
        (floats(3, 2), ints(I64, [[0, 3]])),
        "op `gather_elements`: an index lies outside axis 0; got 3, expected -3 to 2",
    ),
    (
        "gather_nd",
        (tensor((3, "n")), tensor((2, 2), "int32")),
        {},
        (floats(3, 2), ints("int32", [[0, 2], [0, 0]])),
        "op `gather_nd`: an index lies outside axis 1; got 2, expected -2 to 1",
    ),
    (
        "scatter_elements",
        (tensor((3,)), tensor((1,), I64), tensor((1,))),
        {"axis": 0},
        (floats(3), ints(I64, [-4]), floats(1)),
        "op `scatter_elements`: an index lies outside axis 0; got -4, expected -3 to 2",
    ),
    (
        "scatter_nd",
        (tensor((3, 2)), tensor((1, 1), I64), tensor((1, 2))),
        {},
        (floats(3, 2), ints(I64, [[3]]), floats(1, 2)),
        "op `scatter_nd`: an index lies outside axis 0; got 3, expected -3 to 2",
    ),
    (
        "scatter_slice",
        (tensor((2, 5)), tensor((2, "m")), tensor((), I64)),
        {"axis": 1},
        (floats(2, 5), floats(2, 3), ints(I64, 3)),
        "op `scatter_slice`: the updates do not fit axis 1 from a start on; got 3, expected 0 to 2",
    ),
    (
        "reverse_sequence",
        (tensor((2, 5)), tensor((2,), I64)),
        {},
        (floats(2, 5), ints(I64, [5, 6])),
        "op `reverse_sequence`: a length does not fit axis 1; got 6, expected 0 to 5",
    ),
    (
        "nn.rnn",
        (tensor((5, 2, 3)), tensor((1, 4, 3)), tensor((1, 4, 4)), tensor((1, 8)), tensor((1, 2, 4)), tensor((2,), I64)),
        {},
        (*[floats(*s) for s in ((5, 2, 3), (1, 4, 3), (1, 4, 4), (1, 8), (1, 2, 4))], ints(I64, [5, -1])),
        "op `nn.rnn`: a length does not fit the steps; got -1, expected 0 to 5",
    ),
    # Sizes that symbols hid from the type rules.
    (
        "squeeze",
        (tensor(("n", 2)),),
        {"axis": (0,)},
        (floats(3, 2),),
        "op `squeeze`, operand `x`: wrong size of axis 0; got 3, expected 1",
    ),
    (
        "topk",
        (tensor((2, "n")),),
        {"k": 3},
        (floats(2, 2),),
        "op `topk`: axis 1 of operand `x` is too small; got 2, expected 3 or more",
    ),
    (
        "argmax",
        (tensor((2, "n")),),
        {"axis": 1},
        (floats(2, 0),),
        "op `argmax`: axis 1 of operand `x` is too small; got 0, expected 1 or more",
    ),
    (
        "nn.border_pad",
        (tensor(("n",)),),
        {"pad_width": (1, 1), "mode": "edge"},
        (floats(0),),
        "op `nn.border_pad`: axis 0 of operand `x` is too small; got 0, expected 1 or more",
    ),
    (
        "depth_to_space",
        (tensor((1, "c", 1, 1)),),
        {"block_size": 2},
        (floats(1, 6, 1, 1),),
        "op `depth_to_space`, operand `x`: wrong size of axis 0; got 6, expected 4",
    ),
]


@pytest.fixture(scope="module")
def compiled(module_bench: Bench) -> Bench:
    """Return all functions, by their place in the table, compiled at once."""
    for name, types, attrs, _, _ in FAILING:
        module_bench.op(name, types, **attrs)
    return module_bench


@pytest.mark.parametrize("index", range(len(FAILING)), ids=lambda index: f"{index}-{FAILING[index][0]}")
def test_what_means_no_element_is_an_error_that_names_it(compiled: Bench, index: int) -> None:
    *_, inputs, text = FAILING[index]
    function = compiled.functions[index]
    with pytest.raises(ExecutionError) as caught:
        compiled.run(function, *inputs)
    assert str(caught.value) == f"function `{function.name}`, {text}"


def test_a_function_that_failed_works_again(compiled: Bench) -> None:
    """The memory of the failed call is freed, the message does not appear in later calls."""
    index = next(number for number, entry in enumerate(FAILING) if entry[0] == "take")
    function = compiled.functions[index]
    x = floats(2, 4)
    for _ in range(3):
        with pytest.raises(ExecutionError):
            compiled.run(function, x, ints(I64, [7]))
        np.testing.assert_array_equal(compiled.run(function, x, ints(I64, [-1]))[0], x[:, [-1]])
