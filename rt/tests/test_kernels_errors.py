"""Run-time errors of kernels in C: each names the function, the node and the fault, as the errors of Python do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, IRModule, Var, tensor
from byoc_core.ops import default_ops
from byoc_core.ops.cases import function_of
from byoc_core.transform import evaluate_function

from rt.tests.kernel_programs import executable_of
from rt.tests.runner import NativeError, NativeLibrary, Status
from rt.tests.saved import load_saved

OPS = default_ops()

F = np.float32
Case = tuple[str, Sequence[str], Sequence[Any], Mapping[str, Any], str]


def zeros(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


CASES: tuple[Case, ...] = (
    ("take", ["n", "k"], [zeros(3), np.array([0, 3])], {}, "an index lies outside axis 0; got 3, expected -3 to 2"),
    ("take", ["n", "k"], [zeros(3), np.array([-4])], {}, "an index lies outside axis 0; got -4, expected -3 to 2"),
    (
        "take",
        ["n", "k"],
        [zeros(0), np.array([0])],
        {},
        "an index lies outside axis 0; got 0, expected no index at all: the axis is empty",
    ),
    (
        "gather_elements",
        ["n", "k"],
        [zeros(3), np.array([2, 7], np.uint8)],
        {},
        "an index lies outside axis 0; got 7, expected -3 to 2",
    ),
    (
        "gather_nd",
        ["n", "k,1"],
        [zeros(3), np.array([[5]])],
        {},
        "an index lies outside axis 0; got 5, expected -3 to 2",
    ),
    (
        "scatter_elements",
        ["n", "k", "k"],
        [zeros(3), np.array([3]), zeros(1)],
        {},
        "an index lies outside axis 0; got 3, expected -3 to 2",
    ),
    (
        "scatter_nd",
        ["n", "k,1", "k"],
        [zeros(3), np.array([[-4]]), zeros(1)],
        {},
        "an index lies outside axis 0; got -4, expected -3 to 2",
    ),
    (
        "scatter_slice",
        ["n", "m", ""],
        [zeros(5), zeros(3), np.array(3)],
        {"axis": 0},
        "the updates do not fit axis 0 from a start on; got 3, expected 0 to 2",
    ),
    (
        "reverse_sequence",
        ["n,m", "n"],
        [zeros(2, 3), np.array([1, 4])],
        {},
        "a length does not fit axis 1; got 4, expected 0 to 3",
    ),
    (
        "compress",
        ["n", "k"],
        [zeros(2), np.array([False, False, True])],
        {"axis": 0},
        "the condition holds beyond the end of the axis; got 2, expected < 2",
    ),
    ("range", ["", "", ""], [np.array(0), np.array(3), np.array(0)], {}, "has a step of zero"),
    (
        "range",
        ["", "", ""],
        [F(0), F("inf"), F(1)],
        {},
        "has no finite number of steps; got 0 to inf by 1",
    ),
    ("as_size", [""], [np.array(-2)], {}, "has a negative size; got -2"),
    (
        "ragged_take",
        ["n", "r", "k"],
        [zeros(3), np.array([2, 2]), np.array([0])],
        {},
        "has rows beyond the elements; expected at most 3",
    ),
    (
        "ragged_take",
        ["n", "r", "k"],
        [zeros(3), np.array([2, 1]), np.array([2])],
        {},
        "has an index outside the rows; got 2, expected 0 to 1",
    ),
    *(
        (
            "strings.key_index",
            ["n", "k", "m", "l"],
            [np.zeros(3, np.uint8), np.array(lengths), np.zeros(2, np.uint8), np.array([1, 1])],
            {},
            "has lengths that do not fit the bytes; expected 3 in all",
        )
        for lengths in ([2, 2], [4, -1], [1, 1])
    ),
    ("argmax", ["n"], [zeros(0)], {"axis": 0}, "axis 0 is empty and has no element to find"),
    (
        "topk",
        ["n"],
        [zeros(2)],
        {"k": 3},
        "attribute `k` is out of range for the axis; got 3, expected 0 to 2",
    ),
    (
        "split",
        ["n"],
        [zeros(4)],
        {"sections": (2, 3)},
        "the sizes of the parts do not add up to the size of the axis; expected 4",
    ),
    (
        "strided_slice",
        ["n"],
        [zeros(4)],
        {"axes": (0,), "begin": (0,), "end": (5,), "strides": (1,), "mode": "strict"},
        "a bound lies outside axis 0 of size 4; got 5",
    ),
    (
        "nn.border_pad",
        ["n"],
        [zeros(0)],
        {"pad_width": (1, 0), "mode": "edge"},
        "axis 0 is empty and has no element to repeat",
    ),
    (
        "nn.roi_max_pool",
        ["n,1,2,2", "r,4", "r"],
        [zeros(1, 1, 2, 2), zeros(1, 4), np.array([1])],
        {"size": (1, 1)},
        "has a region in a missing image; got 1, expected < 1",
    ),
    (
        "nn.roi_align",
        ["n,1,2,2", "r,4", "r"],
        [zeros(1, 1, 2, 2), np.array([[0, 0, 1e30, 1]], np.float32), np.array([0])],
        {"size": (1, 1)},
        "has a region far larger than an image; got 1e+30",
    ),
    (
        "random.uniform",
        ["k"],
        [np.array([-1])],
        {"shape": (2,)},
        "has an invalid seed; expected words from 0 to 2**32-1",
    ),
    (
        "depth_to_space",
        ["1,n,2,2"],
        [zeros(1, 6, 2, 2)],
        {"block_size": 2},
        "an axis is not divisible into blocks; got 6, expected a multiple of 4",
    ),
    (
        "nn.max_pool1d",
        ["1,1,n"],
        [zeros(1, 1, 2)],
        {"pool_size": (3,)},
        "an axis of the padded image is smaller than the window; got 2, expected 3 or more",
    ),
    (
        "dft",
        ["2,n,c"],
        [zeros(2, 3, 3)],
        {},
        "has a last axis of a wrong size; got 3, expected 1 (real) or 2 (complex)",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_values_refused_by_an_op(native: NativeLibrary, tmp_path: Path, case: Case) -> None:
    op, texts, values, attrs, problem = case
    arrays = [np.asarray(value) for value in values]
    params = [
        Var(
            f"x{index}",
            tensor([part if part.isidentifier() else int(part) for part in text.split(",") if part], str(a.dtype)),
        )
        for index, (text, a) in enumerate(zip(texts, arrays, strict=True))
    ]
    module = IRModule({"main": function_of(OPS[op], params, attrs, "main")[0]}, ConstantStore())
    with pytest.raises(ByocError):
        evaluate_function(module, "main", arrays)
    function = load_saved(executable_of(module), native, tmp_path)["main"]
    for _ in range(2):
        with pytest.raises(NativeError) as error:
            function(*arrays)
        assert error.value.status is Status.EXECUTION
        assert str(error.value).endswith(f"graph function `main_region`, node 0 (`{op}`): {problem}")


def test_operands_without_a_common_shape(native: NativeLibrary, tmp_path: Path) -> None:
    params = [Var("x", tensor(["n"])), Var("y", tensor(["m"]))]
    module = IRModule({"main": function_of(OPS["add"], params, {}, "main")[0]}, ConstantStore())
    function = load_saved(executable_of(module), native, tmp_path)["main"]
    np.testing.assert_array_equal(function(zeros(3), zeros(1))[0], zeros(3))
    with pytest.raises(NativeError):
        function(zeros(3), zeros(2))
    np.testing.assert_array_equal(function(zeros(1), zeros(2))[0], zeros(2))
