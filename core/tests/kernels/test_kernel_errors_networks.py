"""The exact texts of what kernels of networks' layers refuse while running."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.kernels import KERNELS
from byoc_core.ops import default_ops


def _zeros(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


_LAYER = [_zeros(3, 2, 1), _zeros(1, 1, 1), _zeros(1, 1, 1), _zeros(1, 2), _zeros(1, 2, 1)]
_ERRORS: list[tuple[str, list[Any], dict[str, Any], str]] = [
    (
        "quantize",
        [_zeros(4, 1), _zeros(3), _zeros(3, dtype="int8")],
        {},
        "op `quantize`, operand `scale`: has the wrong shape; got (3,), expected (1,)",
    ),
    (
        "quantize",
        [_zeros(4, 5), _zeros(3, 5), _zeros(2, 5, dtype="int8")],
        {"axis": 0, "block_size": 2},
        "op `quantize`, operand `scale`: has the wrong shape; got (3, 5), expected (2, 5)",
    ),
    (
        "dequantize",
        [_zeros(4, 5, dtype="int8"), _zeros(2, 5), _zeros(2, 1, dtype="int8")],
        {"axis": -2, "block_size": 3},
        "op `dequantize`, operand `zero_point`: has the wrong shape; got (2, 1), expected (2, 5)",
    ),
    (
        "nn.rnn",
        [*_LAYER, np.array([1])],
        {},
        "op `nn.rnn`, operand `lengths`: has the wrong shape; got (1,), expected (2,)",
    ),
    (
        "nn.rnn",
        [*_LAYER, np.array([3, 4])],
        {},
        "op `nn.rnn`: a length does not fit the steps; got 4, expected 0 to 3",
    ),
    (
        "nn.gru",
        [_zeros(3, 2, 1), _zeros(1, 3, 1), _zeros(1, 3, 1), _zeros(1, 6), _zeros(1, 2, 1), np.array([-1, 2])],
        {},
        "op `nn.gru`: a length does not fit the steps; got -1, expected 0 to 3",
    ),
    (
        "nn.lstm",
        [_zeros(3, 2, 1), _zeros(1, 4, 1), _zeros(1, 4, 1), _zeros(1, 8), *[_zeros(1, 2, 1)] * 2, np.array([[1, 2]])],
        {},
        "op `nn.lstm`, operand `lengths`: has the wrong shape; got (1, 2), expected (2,)",
    ),
    ("argmax", [_zeros(2, 0)], {"axis": -1}, "op `argmax`: axis 1 is empty and has no element to find"),
    ("argmin", [_zeros(0, 2)], {"axis": 0}, "op `argmin`: axis 0 is empty and has no element to find"),
]


@pytest.mark.parametrize(("name", "inputs", "attrs", "text"), _ERRORS)
def test_what_does_not_fit_is_named_while_running(
    name: str, inputs: list[Any], attrs: dict[str, Any], text: str
) -> None:
    with pytest.raises(ExecutionError) as caught:
        KERNELS[name](*inputs, **default_ops()[name].normalise_attrs(attrs))
    assert str(caught.value) == text
