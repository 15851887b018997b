"""The exact texts of type errors of ops making tensors of given sizes, and of slices and splits between sizes."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.errors import IRTypeError
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import TensorType, tensor

_CASES: list[tuple[str, list[TensorType], dict[str, Any], str]] = [
    ("arange", [], {"stop": 3, "step": 0}, "op `arange`: attribute `step` is 0; expected another number"),
    (
        "arange",
        [],
        {"stop": 3, "dtype": "bool"},
        (
            "op `arange`: attribute `dtype` is not available as a result; got bool, expected a dtype of kind "
            "floating-point or integer or unsigned integer"
        ),
    ),
    ("arange", [tensor((2,))], {"stop": 3}, "op `arange`: takes 0 operands (); got 1"),
    (
        "full",
        [tensor((2,))],
        {"shape": (3,)},
        "op `full`, operand `fill_value=a`: has rank 1; got (2,), expected rank 0: one element",
    ),
    (
        "full",
        [tensor(())],
        {"shape": ("n", -1)},
        "op `full`: attribute `shape` has a negative size; got (n, -1), expected 0 or more",
    ),
    ("shape_of", [TensorType(None, "int8")], {}, "op `shape_of`, operand `x=a`: needs a known rank"),
    (
        "strided_slice",
        [tensor((8,))],
        {"axes": (0,), "begin": ("n+9",), "end": ("n+m+9",), "strides": (1,), "mode": "strict"},
        "op `strided_slice`: attribute `begin` lies outside axis 0 of size 8; got n+9",
    ),
    (
        "strided_slice",
        [tensor(("n",))],
        {"axes": (0,), "begin": (0,), "end": ("n+1",), "strides": (1,), "mode": "strict"},
        "op `strided_slice`: attribute `end` lies outside axis 0 of size n; got n+1",
    ),
    (
        "split",
        [tensor(("n",))],
        {"sections": ("n", 1)},
        (
            "op `split`: attribute `sections` sums to n+1; got (n, 1), expected n, the size of axis 0. "
            "`sections` are sizes; to cut at indices write `indices_or_sections=(n, 1)`."
        ),
    ),
]


@pytest.mark.parametrize(("op", "operands", "attrs", "text"), _CASES)
def test_a_misfit_names_what_is_wrong(op: str, operands: list[TensorType], attrs: dict[str, Any], text: str) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    values = [builder.param(name, type_) for name, type_ in zip("abc", operands, strict=False)]
    with pytest.raises(IRTypeError) as caught:
        builder.bind(op, values, attrs)
    assert str(caught.value) == text
