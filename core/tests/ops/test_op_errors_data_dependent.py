"""The exact texts of type errors of ops with data-dependent sizes."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.errors import IRTypeError
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import TensorType, tensor

_F = tensor(("n", 3))
_BOOL = tensor((3,), "bool")
_SCALAR = tensor((), "int64")

_CASES: list[tuple[str, list[TensorType], dict[str, Any], list[TensorType] | None, str]] = [
    ("nonzero", [_F], {}, None, "op `nonzero`: needs its result types (`out_types=`)"),
    (
        "nonzero",
        [TensorType(None, "float32")],
        {},
        [tensor((2, "k"), "int64")],
        "op `nonzero`, operand `x=a`: needs a known rank",
    ),
    (
        "nonzero",
        [_F],
        {},
        [tensor((2, 5), "int64")],
        (
            "op `nonzero`: needs a fresh symbol for axis 1 of its first result; got "
            'R.Tensor((2, 5), "int64"), expected R.Tensor((2, "k"), "int64")'
        ),
    ),
    (
        "nonzero",
        [_F],
        {},
        [tensor((2, "n"), "int64")],
        (
            "op `nonzero`: needs a fresh symbol for axis 1 of its first result; got "
            'R.Tensor((2, "n"), "int64"), expected R.Tensor((2, "k"), "int64")'
        ),
    ),
    (
        "nonzero",
        [tensor(("k",))],
        {},
        [tensor((1, "2*m"), "int64")],
        (
            "op `nonzero`: needs a fresh symbol for axis 1 of its first result; got "
            'R.Tensor((1, "2*m"), "int64"), expected R.Tensor((1, "k1"), "int64")'
        ),
    ),
    (
        "nonzero",
        [_F],
        {},
        [tensor(("k",), "int64")],
        'op `nonzero`: declares a result of the wrong rank; got R.Tensor(("k",), "int64"), expected a tensor of rank 2',
    ),
    (
        "nonzero",
        [_F],
        {},
        [tensor((2, "k"), "int32")],
        (
            'op `nonzero`: declares results of other types; got R.Tensor((2, "k"), "int32"), '
            'expected R.Tensor((2, "k"), "int64")'
        ),
    ),
    (
        "unique",
        [_F],
        {},
        [tensor(("k",))],
        (
            'op `unique`: declares results of other types; got R.Tensor(("k",), "float32"), expected '
            'R.Tensor(("k",), "float32"), R.Tensor(("k",), "int64"), R.Tensor(("3*n",), "int64"), '
            'R.Tensor(("k",), "int64")'
        ),
    ),
    (
        "unique",
        [_F],
        {"axis": 2},
        [tensor(("k",))],
        "op `unique`: attribute `axis` names no axis of a tensor of rank 2; got 2, expected -2 to 1",
    ),
    (
        "compress",
        [_F, tensor((3,))],
        {"axis": 1},
        [tensor(("n", "k"))],
        (
            "op `compress`, operand `condition=b`: has a dtype not accepted by the op; got float32, expected a dtype "
            "of kind "
            "bool"
        ),
    ),
    (
        "compress",
        [_F, tensor((1, 3), "bool")],
        {"axis": 1},
        [tensor(("n", "k"))],
        "op `compress`, operand `condition=b`: has rank 2; got (1, 3), expected rank 1: (length,)",
    ),
    (
        "compress",
        [_F, tensor((4,), "bool")],
        {"axis": 1},
        [tensor(("n", "k"))],
        "op `compress`, operand `condition=b`: is longer than the axis; got 4, expected 3 or fewer",
    ),
    (
        "compress",
        [_F, _BOOL],
        {"axis": 1},
        [tensor(("m", "k"))],
        (
            'op `compress`: declares results of other types; got R.Tensor(("m", "k"), "float32"), '
            'expected R.Tensor(("n", "k"), "float32")'
        ),
    ),
    (
        "range",
        [_SCALAR, tensor((1,), "int64"), _SCALAR],
        {},
        [tensor(("k",), "int64")],
        "op `range`, operand `limit=b`: has rank 1; got (1,), expected rank 0: a scalar",
    ),
    (
        "range",
        [_SCALAR, tensor((), "int32"), _SCALAR],
        {},
        [tensor(("k",), "int64")],
        "op `range`, operand `limit=b`: differs in dtype from operand `start=a`; got int32, expected int64",
    ),
]


@pytest.mark.parametrize(("name", "operands", "attrs", "declared", "text"), _CASES)
def test_error_text(
    name: str, operands: list[TensorType], attrs: dict[str, Any], declared: list[TensorType] | None, text: str
) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    values = [builder.param(letter, type_) for letter, type_ in zip("abc", operands, strict=False)]
    with pytest.raises(IRTypeError) as caught:
        builder.emit(name, *values, out_types=declared, **attrs)
    assert str(caught.value) == text
