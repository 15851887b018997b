"""The exact texts of type errors of ordering, cumulative ops, arrangement and borders."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.errors import IRTypeError
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import TensorType, tensor

_F = tensor((2, 3))
_IMAGE = tensor((1, 6, 5, "w"))

_CASES: list[tuple[str, TensorType, dict[str, Any], str]] = [
    (
        "topk",
        _F,
        {"k": 4},
        "op `topk`: attribute `k` is out of range for axis 1; got 4, expected 0 to 3",
    ),
    (
        "topk",
        tensor(("n",)),
        {"k": "n+1"},
        "op `topk`: attribute `k` is out of range for axis 0; got n+1, expected 0 to n",
    ),
    (
        "topk",
        tensor(("n",)),
        {"k": -1},
        "op `topk`: attribute `k` is out of range for axis 0; got -1, expected 0 to n",
    ),
    ("topk", _F, {}, "op `topk`: needs attribute `k`"),
    (
        "topk",
        tensor((2,), "bool"),
        {"k": 1},
        (
            "op `topk`, operand `x=a`: has a dtype not accepted by the op; got bool, expected a dtype of kind "
            "floating-point or integer or unsigned integer"
        ),
    ),
    (
        "sort",
        tensor(()),
        {},
        "op `sort`: attribute `axis` names no axis of a tensor of rank 0; got -1, expected no axis",
    ),
    (
        "argsort",
        _F,
        {"axis": 2},
        "op `argsort`: attribute `axis` names no axis of a tensor of rank 2; got 2, expected -2 to 1",
    ),
    (
        "cumsum",
        _F,
        {"axis": -3},
        "op `cumsum`: attribute `axis` names no axis of a tensor of rank 2; got -3, expected -2 to 1",
    ),
    (
        "cumprod",
        tensor((2,), "bool"),
        {"axis": 0},
        (
            "op `cumprod`, operand `x=a`: has a dtype not accepted by the op; got bool, expected a dtype of kind "
            "floating-point or integer or unsigned integer"
        ),
    ),
    (
        "all",
        _F,
        {},
        ("op `all`, operand `x=a`: has a dtype not accepted by the op; got float32, expected a dtype of kind bool"),
    ),
    (
        "trilu",
        tensor((3,)),
        {},
        'op `trilu`, operand `x=a`: has rank 1; got R.Tensor((3,), "float32"), expected rank 2 or more: (..., M, N)',
    ),
    (
        "depth_to_space",
        _IMAGE,
        {"block_size": 2},
        "op `depth_to_space`, operand `x=a`: axis 1 is not divisible into blocks; got 6, expected a multiple of 4",
    ),
    (
        "depth_to_space",
        _F,
        {"block_size": 2},
        "op `depth_to_space`, operand `x=a`: has rank 2; got (2, 3), expected rank 4: (N, C, H, W)",
    ),
    (
        "depth_to_space",
        _IMAGE,
        {"block_size": 0},
        "op `depth_to_space`: attribute `block_size` is too small; got 0, expected 1 or more",
    ),
    (
        "space_to_depth",
        _IMAGE,
        {"block_size": 2},
        "op `space_to_depth`, operand `x=a`: axis 2 is not divisible into blocks; got 5, expected a multiple of 2",
    ),
    (
        "space_to_depth",
        tensor((1, 1, 4, "2*w+1")),
        {"block_size": 2},
        "op `space_to_depth`, operand `x=a`: axis 3 is not divisible into blocks; got 2*w+1, expected a multiple of 2",
    ),
    (
        "nn.border_pad",
        _F,
        {"pad_width": (1, 1), "mode": "edge"},
        (
            "op `nn.border_pad`: attribute `pad_width` does not fit operand `x`; got (1, 1), expected 4 values of 0 or "
            "more"
        ),
    ),
    (
        "nn.border_pad",
        _F,
        {"pad_width": (1, 1, -1, 1), "mode": "edge"},
        (
            "op `nn.border_pad`: attribute `pad_width` does not fit operand `x`; got (1, 1, -1, 1), expected 4 values "
            "of 0 or more"
        ),
    ),
    (
        "nn.border_pad",
        tensor((2, 0)),
        {"pad_width": (1, 1, 0, 1), "mode": "wrap"},
        "op `nn.border_pad`, operand `x=a`: axis 1 is empty and has no element to repeat",
    ),
    (
        "nn.border_pad",
        _F,
        {"pad_width": (1, 1, 0, 1), "mode": "constant"},
        (
            "op `nn.border_pad`, attribute `mode`: value not permitted; got 'constant', expected 'edge' or 'reflect' "
            "or 'wrap'"
        ),
    ),
]


@pytest.mark.parametrize(("name", "operand", "attrs", "text"), _CASES)
def test_error_text(name: str, operand: TensorType, attrs: dict[str, Any], text: str) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    with pytest.raises(IRTypeError) as caught:
        builder.bind(name, [builder.param("a", operand)], attrs)
    assert str(caught.value) == text
