"""The exact texts of type errors of gathers, scatters and moves of slices."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.errors import IRTypeError
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import TensorType, tensor

_X = tensor((4, 5, 6))
_SCALAR = tensor(())


def _ints(*shape: int | str) -> TensorType:
    return tensor(shape, "int64")


_CASES: list[tuple[str, list[TensorType], dict[str, Any], str]] = [
    (
        "gather_elements",
        [_X, _X],
        {},
        (
            "op `gather_elements`, operand `indices=b`: has a dtype not accepted by the op; got float32, expected "
            "a dtype of kind integer or unsigned integer"
        ),
    ),
    (
        "gather_elements",
        [_X, _ints(4, 5)],
        {},
        ("op `gather_elements`, operand `indices=b`: has rank 2; got (4, 5), expected rank 3: as operand `x`"),
    ),
    (
        "gather_elements",
        [_X, _ints(4, 5, 6)],
        {"axis": 3},
        ("op `gather_elements`: attribute `axis` names no axis of a tensor of rank 3; got 3, expected -3 to 2"),
    ),
    (
        "gather_elements",
        [_X, _ints(9, 5, 7)],
        {"axis": 0},
        (
            "op `gather_elements`, operand `indices=b`: axis 2 has size 7; got (9, 5, 7), expected at most 6 "
            "as operand `x`"
        ),
    ),
    (
        "gather_elements",
        [tensor(("n", 5)), _ints("n+1", 5)],
        {"axis": 1},
        (
            "op `gather_elements`, operand `indices=b`: axis 0 has size n+1; got (n+1, 5), expected at most n "
            "as operand `x`"
        ),
    ),
    (
        "gather_nd",
        [_X, _ints()],
        {},
        "op `gather_nd`, operand `indices=b`: has rank 0; expected a last axis with an index for each indexed axis",
    ),
    (
        "gather_nd",
        [TensorType((), "float32"), _ints(7, 1)],
        {},
        'op `gather_nd`, operand `x=a`: has no axis to index; got R.Tensor((), "float32")',
    ),
    (
        "gather_nd",
        [_X, _ints(7, "k")],
        {},
        (
            "op `gather_nd`, operand `indices=b`: needs a known size of the last axis, because the rank "
            "depends on this size; got k"
        ),
    ),
    (
        "gather_nd",
        [_X, _ints(7, 4)],
        {},
        "op `gather_nd`, operand `indices=b`: axis 1 has size 4; expected 1 to 3, the number of axes",
    ),
    (
        "gather_nd",
        [_X, _ints(7, 0)],
        {},
        "op `gather_nd`, operand `indices=b`: axis 1 has size 0; expected 1 to 3, the number of axes",
    ),
    (
        "gather_nd",
        [_X, _ints(4, 5, 2)],
        {"batch_dims": 2},
        "op `gather_nd`, operand `indices=b`: axis 2 has size 2; expected 1 to 1, the number of axes",
    ),
    (
        "gather_nd",
        [_X, _ints(4, 1)],
        {"batch_dims": 2},
        "op `gather_nd`: attribute `batch_dims` is out of range; got 2, expected 0 to 1",
    ),
    (
        "gather_nd",
        [_X, _ints(3, 1)],
        {"batch_dims": 1},
        "op `gather_nd`, operand `indices=b`: axis 0 has size 3; got (3, 1), expected 4 as operand `x`",
    ),
    (
        "scatter_elements",
        [_X, _ints(4, 5, 6), tensor((4, 5, 6), "float64")],
        {},
        (
            "op `scatter_elements`, operand `updates=c`: differs in dtype from operand `x=a`; got float64, "
            "expected float32"
        ),
    ),
    (
        "scatter_elements",
        [_X, _ints(4, 5, 2), tensor((4, 5, 3))],
        {"axis": 2},
        (
            "op `scatter_elements`, operand `updates=c`: axis 2 has size 3; got (4, 5, 3), expected 2 "
            "as operand `indices`"
        ),
    ),
    (
        "scatter_elements",
        [_X, _ints(4, 5, 6), _X],
        {"reduction": "mean"},
        (
            "op `scatter_elements`, attribute `reduction`: value not permitted; got 'mean', expected 'update' or "
            "'add' or 'mul' or 'min' or 'max'"
        ),
    ),
    (
        "scatter_nd",
        [_X, _ints(7, 2), tensor((7,))],
        {},
        (
            "op `scatter_nd`, operand `updates=c`: has rank 1; got (7,), expected rank 2: (7, 6) "
            "as required by operands `indices` and `x`"
        ),
    ),
    (
        "scatter_nd",
        [_X, _ints(7, 2), tensor((7, 5))],
        {},
        (
            "op `scatter_nd`, operand `updates=c`: axis 1 has size 5; got (7, 5), expected 6 "
            "as required by operands `indices` and `x`"
        ),
    ),
    (
        "scatter_slice",
        [_X, tensor((4, 6, 6)), _ints(4)],
        {"axis": 1},
        "op `scatter_slice`, operand `updates=b`: axis 1 has size 6; got (4, 6, 6), expected at most 5 as operand `x`",
    ),
    (
        "scatter_slice",
        [_X, tensor((4, 1, 5)), _ints(4)],
        {"axis": 1},
        "op `scatter_slice`, operand `updates=b`: axis 2 has size 5; got (4, 1, 5), expected 6 as operand `x`",
    ),
    (
        "scatter_slice",
        [_X, tensor((4, 1, 6)), _ints(5)],
        {"axis": 1},
        (
            "op `scatter_slice`, operand `starts=c`: axis 0 has size 5; got (5,), expected 4 "
            "as axis 0 of operand `x`, or no axis"
        ),
    ),
    (
        "scatter_slice",
        [_X, tensor((1, 5, 6)), _ints(4)],
        {"axis": 0},
        (
            "op `scatter_slice`, operand `starts=c`: has rank 1; got (4,), expected rank 0: a single start, because "
            "attribute `axis` is 0"
        ),
    ),
    (
        "one_hot",
        [tensor((3,)), _SCALAR, _SCALAR],
        {"depth": 4},
        (
            "op `one_hot`, operand `indices=a`: has a dtype not accepted by the op; got float32, expected a dtype of "
            "kind integer or unsigned integer"
        ),
    ),
    (
        "one_hot",
        [_ints(3), _SCALAR, tensor((1,))],
        {"depth": 4},
        "op `one_hot`, operand `off_value=c`: has rank 1; got (1,), expected rank 0: one value",
    ),
    (
        "one_hot",
        [_ints(3), _SCALAR, tensor((), "int8")],
        {"depth": 4},
        "op `one_hot`, operand `off_value=c`: differs in dtype from operand `on_value=b`; got int8, expected float32",
    ),
    (
        "one_hot",
        [_ints(3), _SCALAR, _SCALAR],
        {"depth": -1},
        "op `one_hot`: attribute `depth` is negative; got -1, expected 0 or more",
    ),
    (
        "one_hot",
        [_ints(3), _SCALAR, _SCALAR],
        {"depth": 4, "axis": 2},
        "op `one_hot`: attribute `axis` names no axis of a tensor of rank 2; got 2, expected -2 to 1",
    ),
    (
        "tile",
        [_X],
        {"repeats": (1, 2)},
        "op `tile`: attribute `repeats` has 2 values; expected a value for each of 3 axes",
    ),
    (
        "tile",
        [_X],
        {"repeats": (1, -2, 1)},
        "op `tile`: attribute `repeats` is negative for axis 1; got -2, expected 0 or more",
    ),
    (
        "flip",
        [_SCALAR],
        {"axis": 0},
        "op `flip`: attribute `axis` names no axis of a tensor of rank 0; got 0, expected no axis",
    ),
    (
        "roll",
        [_X],
        {"shift": (1,), "axis": (0, 1)},
        "op `roll`: attribute `shift` has 1 values; got (1,), expected a value for each of 2 axes",
    ),
    ("roll", [_X], {"shift": (1, 2), "axis": (0, -3)}, "op `roll`: attribute `axis` names an axis twice; got (0, -3)"),
    ("stack", [], {}, "op `stack`: has no parts to stack; expected one operand or more"),
    (
        "stack",
        [_X, _X, tensor((4, 5, 7))],
        {},
        "op `stack`, operand `parts[2]=c`: axis 2 has size 7; got (4, 5, 7), expected 6 as the first",
    ),
    (
        "reverse_sequence",
        [_X, _ints(4)],
        {"seq_axis": -3},
        "op `reverse_sequence`: attributes `batch_axis` and `seq_axis` name the same axis; got 0",
    ),
    (
        "reverse_sequence",
        [_X, _ints(5)],
        {},
        (
            "op `reverse_sequence`, operand `lengths=b`: axis 0 has size 5; got (5,), expected 4 "
            "as axis 0 of operand `x`"
        ),
    ),
]


@pytest.mark.parametrize(("name", "operands", "attrs", "text"), _CASES)
def test_error_text(name: str, operands: list[TensorType], attrs: dict[str, Any], text: str) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    values = [builder.param(letter, type_) for letter, type_ in zip("abc", operands, strict=False)]
    with pytest.raises(IRTypeError) as caught:
        builder.emit(name, *values, **attrs)
    assert str(caught.value) == text
