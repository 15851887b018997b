"""Ranges of constants at every opset, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Cases = list[dict[str, Any]]


def _range(opset: int) -> Cases:
    return [
        {"inputs": [np.array(bound, dtype) for bound in bounds], "constants": (0, 1, 2)}
        for bounds, dtype in (
            ((0, 5, 1), "int64"),
            ((7, -3, -2), "int32"),
            ((4, 4, 1), "int64"),
            ((0, 3.5, 0.5), "float32"),
            ((1.0, 10.0, 3.0), "float64"),
            ((5, 1, 1), "int16"),
        )
    ]


_CASES: dict[str, Callable[[int], Cases]] = {"Range": _range}


@pytest.mark.parametrize("opset", [11, 26])
def test_op_equals_onnx_runtime(opset: int, check_case: Callable[..., Any], make_case: Callable[..., Any]) -> None:
    for arguments in _CASES["Range"](opset):
        check_case("Range", opset, make_case(**arguments))
