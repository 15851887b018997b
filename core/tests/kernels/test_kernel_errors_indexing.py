"""The exact texts of runtime refusals by kernels of gathers, scatters and moves of slices."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS

pytestmark = pytest.mark.lowest

_X = np.zeros((2, 3), np.float32)
_ERRORS: list[tuple[str, list[Any], dict[str, Any], str]] = [
    (
        "take",
        [_X, np.array([1, -4])],
        {"axis": -1},
        "op `take`: an index lies outside axis 1; got -4, expected -3 to 2",
    ),
    (
        "take",
        [_X, np.array(2**64 - 1, np.uint64)],
        {},
        "op `take`: an index lies outside axis 0; got 18446744073709551615, expected -2 to 1",
    ),
    (
        "take",
        [_X[:0], np.array([0], ml_dtypes.int4)],
        {},
        "op `take`: an index lies outside axis 0; got 0, expected no index at all: the axis is empty",
    ),
    (
        "gather_elements",
        [_X, np.array([[0], [3]])],
        {"axis": 1},
        "op `gather_elements`: an index lies outside axis 1; got 3, expected -3 to 2",
    ),
    (
        "gather_elements",
        [_X[:1], np.array([[0], [1]])],
        {"axis": 1},
        "op `gather_elements`, operand `indices`: axis 0 is too large; got 2, expected at most 1",
    ),
    (
        "gather_nd",
        [_X, np.array([[1, 2], [0, 3]])],
        {},
        "op `gather_nd`: an index lies outside axis 1; got 3, expected -3 to 2",
    ),
    (
        "gather_nd",
        [_X, np.array([[0]])],
        {"batch_dims": 1},
        "op `gather_nd`, operand `indices`: has the wrong shape; got (1, 1), expected (2, 1)",
    ),
    (
        "scatter_elements",
        [_X, np.array([[0, -3]]), _X[:1, :2]],
        {},
        "op `scatter_elements`: an index lies outside axis 0; got -3, expected -2 to 1",
    ),
    (
        "scatter_elements",
        [_X, np.array([[0, 0, 0, 0]]), np.zeros((1, 4), np.float32)],
        {},
        "op `scatter_elements`, operand `indices`: axis 1 is too large; got 4, expected at most 3",
    ),
    (
        "scatter_elements",
        [_X, np.array([[0, 0]]), np.zeros((2, 1), np.float32)],
        {},
        "op `scatter_elements`, operand `updates`: has the wrong shape; got (2, 1), expected (1, 2)",
    ),
    (
        "scatter_nd",
        [_X, np.array([[2]]), _X[:1]],
        {},
        "op `scatter_nd`: an index lies outside axis 0; got 2, expected -2 to 1",
    ),
    (
        "scatter_nd",
        [_X, np.array([[1], [0], [1]]), _X],
        {},
        "op `scatter_nd`, operand `updates`: has the wrong shape; got (2, 3), expected (3, 3)",
    ),
    (
        "scatter_slice",
        [_X, _X[:, :2], np.array([1, 2])],
        {"axis": 1},
        "op `scatter_slice`: the updates do not fit axis 1 from a start on; got 2, expected 0 to 1",
    ),
    (
        "scatter_slice",
        [_X, _X[:, :2], np.array(-1)],
        {"axis": 1},
        "op `scatter_slice`: the updates do not fit axis 1 from a start on; got -1, expected 0 to 1",
    ),
    (
        "scatter_slice",
        [_X[:, :2], _X, np.array(0)],
        {"axis": 1, "mode": "circular"},
        "op `scatter_slice`, operand `updates`: is longer than axis 1; got 3, expected at most 2",
    ),
    (
        "scatter_slice",
        [_X, _X[:1], np.array(0)],
        {"axis": 1},
        "op `scatter_slice`, operand `updates`: has the wrong shape; got (1, 3), expected (2, 3)",
    ),
    (
        "scatter_slice",
        [_X, _X, np.array([0])],
        {"axis": 1},
        "op `scatter_slice`, operand `starts`: has the wrong shape; got (1,), expected (2,)",
    ),
    ("stack", [_X, _X, _X.T], {}, "op `stack`, operand `parts[2]`: has the wrong shape; got (3, 2), expected (2, 3)"),
    (
        "reverse_sequence",
        [_X, np.array([0, 4])],
        {},
        "op `reverse_sequence`: a length does not fit axis 1; got 4, expected 0 to 3",
    ),
    (
        "reverse_sequence",
        [_X, np.array([1])],
        {},
        "op `reverse_sequence`, operand `lengths`: has the wrong shape; got (1,), expected (2,)",
    ),
]


@pytest.mark.parametrize(("name", "inputs", "attrs", "text"), _ERRORS)
def test_what_does_not_fit_is_named_while_running(
    name: str, inputs: list[Any], attrs: dict[str, Any], text: str
) -> None:
    with pytest.raises(ExecutionError) as caught:
        KERNELS[name](*inputs, **default_ops()[name].normalise_attrs(attrs))
    assert str(caught.value) == text
