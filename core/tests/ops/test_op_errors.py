"""The exact texts of type errors: each names the op, the operand or attribute, and the axis at fault."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.errors import IRTypeError
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import TensorType, tensor

_F = tensor((2, 3))
_UNKNOWN = TensorType(None, "float32")

_CASES: list[tuple[str, list[TensorType], dict[str, Any], str]] = [
    (
        "nn.conv2d",
        [tensor((1, 10, 32, 32)), tensor((10, 20, 3, 3))],
        {},
        (
            "op `nn.conv2d`, operand `weight=b`: axis 1 (input channels) has size 20; expected 10, because operand "
            "`x=a` has "
            "10 channels (axis 1)"
        ),
    ),
    (
        "nn.conv2d",
        [tensor((1, 10, 32, 32)), tensor((20, 10, 3, 3))],
        {"kernel_layout": "IOHW"},
        (
            "op `nn.conv2d`, operand `weight=b`: axis 0 (input channels) has size 20; expected 10, because operand "
            "`x=a` has "
            "10 channels (axis 1)"
        ),
    ),
    (
        "nn.conv2d",
        [tensor((1, 8, 8, 4)), tensor((3, 3, 4, 6))],
        {"data_layout": "NHWC", "kernel_layout": "HWIO", "groups": 2},
        (
            "op `nn.conv2d`, operand `weight=b`: axis 2 (input channels per group) has size 4; expected 2, because "
            "operand "
            "`x=a` has 4 channels in 2 groups (axis 3)"
        ),
    ),
    (
        "nn.conv2d",
        [tensor((1, 9, 8, 8)), tensor((6, 3, 3, 3))],
        {"groups": 2},
        "op `nn.conv2d`, operand `x=a`: has 9 input channels, not divisible into 2 groups",
    ),
    (
        "nn.conv2d",
        [tensor((1, 4, 2, 8)), tensor((6, 4, 5, 3))],
        {"padding": (1, 0)},
        (
            "op `nn.conv2d`, operand `x=a`: height of the padded image is smaller than the window; got 4, expected "
            "5 or "
            "more"
        ),
    ),
    (
        "nn.conv2d",
        [tensor((4, 8, 8)), tensor((6, 4, 5, 3))],
        {},
        "op `nn.conv2d`, operand `x=a`: has rank 3; got (4, 8, 8), expected rank 4: (N, C, H, W)",
    ),
    (
        "nn.conv2d",
        [_F, _F],
        {"padding": (1, 2, 3)},
        "op `nn.conv2d`, attribute `padding`: has the wrong number of values; got (1, 2, 3), expected 1 or 2 or 4",
    ),
    (
        "nn.conv2d",
        [_F, _F],
        {"strides": (0,)},
        "op `nn.conv2d`, attribute `strides`: has a value out of range; got (0,), expected 1 or more",
    ),
    (
        "nn.max_pool2d",
        [tensor((1, 1, 8, 8))],
        {"pool_size": (2, 2), "padding": (2, 0)},
        (
            "op `nn.max_pool2d`: attribute `padding` at the begin of the height is not smaller than the window; got 2, "
            "expected less than 2"
        ),
    ),
    (
        "add",
        [tensor((2, 3)), tensor((2, 4))],
        {},
        (
            "op `add`, operand `y=b`: axis 1 has size 4 and does not broadcast with size 3; got (2, 4), expected a "
            "shape broadcasting with (2, 3)"
        ),
    ),
    (
        "add",
        [_F, tensor((2, 3), "float64")],
        {},
        "op `add`, operand `y=b`: differs in dtype from operand `x=a`; got float64, expected float32",
    ),
    (
        "exp",
        [tensor((3,), "int32")],
        {},
        (
            "op `exp`, operand `x=a`: has a dtype not accepted by the op; got int32, expected a dtype of kind "
            "floating-point"
        ),
    ),
    (
        "where",
        [_F, _F, _F],
        {},
        (
            "op `where`, operand `condition=a`: has a dtype not accepted by the op; got float32, expected a dtype of "
            "kind bool"
        ),
    ),
    (
        "matmul",
        [tensor(("n", 3)), tensor((4, 5))],
        {},
        "op `matmul`, operand `y=b`: axis 0 has size 4; got (4, 5), expected 3 as the last axis of operand `x`",
    ),
    (
        "matmul",
        [tensor((2, 3, 4)), tensor((3, 4, 5))],
        {},
        "op `matmul`, operand `y=b`: batch axis 0 has size 3 and does not broadcast with size 2 of operand `x`",
    ),
    (
        "nn.dense",
        [tensor((64, 800)), tensor((800, 500))],
        {},
        (
            "op `nn.dense`, operand `weight=b`: axis 1 has size 500; got (800, 500), expected 800 as the last axis "
            "of operand "
            "`x`"
        ),
    ),
    (
        "nn.bias_add",
        [tensor((2, 3)), tensor((2,))],
        {},
        "op `nn.bias_add`, operand `bias=b`: axis 0 has size 2; got (2,), expected 3 as axis 1 of operand `x`",
    ),
    ("nn.softmax", [_UNKNOWN], {}, "op `nn.softmax`, operand `x=a`: needs a known rank"),
    (
        "nn.softmax",
        [_F],
        {"axis": 2},
        "op `nn.softmax`: attribute `axis` names no axis of a tensor of rank 2; got 2, expected -2 to 1",
    ),
    (
        "nn.layer_norm",
        [_F, _F, _F],
        {"axes": (1, 0)},
        "op `nn.layer_norm`: attribute `axes` is not in ascending order; got (1, 0)",
    ),
    (
        "reshape",
        [_F],
        {"shape": (4, 2)},
        (
            "op `reshape`: attribute `shape` holds 8 elements, operand `x` has 6; got (4, 2), expected a shape with "
            "as many "
            "elements as (2, 3)"
        ),
    ),
    (
        "reshape",
        [_F],
        {"shape": (4, -1)},
        "op `reshape`: attribute `shape` does not divide the 6 elements of (2, 3); got (4, -1)",
    ),
    ("reshape", [_F], {"shape": (-1, -1)}, "op `reshape`: attribute `shape` has more than one -1; got (-1, -1)"),
    (
        "reshape",
        [_F],
        {"shape": (-2, 3)},
        "op `reshape`: attribute `shape` has a negative size; got (-2, 3), expected 0 or more, or -1",
    ),
    (
        "permute_dims",
        [_F],
        {"axes": (0,)},
        "op `permute_dims`: attribute `axes` is not a permutation of the axes; got (0,), expected 2 axes",
    ),
    ("permute_dims", [_F], {"axes": (0, -2)}, "op `permute_dims`: attribute `axes` names an axis twice; got (0, -2)"),
    (
        "broadcast_to",
        [_F],
        {"shape": (3, 3)},
        "op `broadcast_to`, operand `x=a`: axis 0 has size 2 and does not broadcast to 3; got (2, 3)",
    ),
    (
        "concat",
        [_F, _F, tensor((2, 4))],
        {},
        "op `concat`, operand `parts[2]=c`: axis 1 has size 4; got (2, 4), expected 3, because only axis 0 may differ",
    ),
    (
        "concat",
        [_F, tensor((2,))],
        {},
        "op `concat`, operand `parts[1]=b`: has rank 1; got (2,), expected rank 2 as the first",
    ),
    (
        "split",
        [_F],
        {"sections": (1, 1), "axis": 1},
        (
            "op `split`: attribute `sections` sums to 2; got (1, 1), expected 3, the size of axis 1. "
            "`sections` are sizes; to cut at indices write `indices_or_sections=(1, 1)`."
        ),
    ),
    (
        "take",
        [_F, _F],
        {},
        (
            "op `take`, operand `indices=b`: has a dtype not accepted by the op; got float32, expected a dtype of kind "
            "integer or unsigned integer"
        ),
    ),
    (
        "strided_slice",
        [_F],
        {"axes": (0,), "begin": (0,), "end": (1, 2), "strides": (1,)},
        "op `strided_slice`: attribute `end` has 2 values; got (1, 2), expected a value for each of 1 axes",
    ),
    (
        "nn.pad",
        [_F],
        {"pad_width": (1, 1)},
        "op `nn.pad`: attribute `pad_width` does not fit operand `x`; got (1, 1), expected 4 values of 0 or more",
    ),
    ("argmax", [tensor((0,))], {"axis": 0}, "op `argmax`, operand `x=a`: axis 0 is empty and has no largest element"),
    ("add", [_F], {}, "op `add`: takes 2 operands (x, y); got 1"),
    ("concat", [], {}, "op `concat`: has no parts to join; expected one operand or more"),
    (
        "nn.gelu",
        [_F],
        {"approximate": "fast"},
        "op `nn.gelu`, attribute `approximate`: value not permitted; got 'fast', expected 'none' or 'tanh'",
    ),
]


@pytest.mark.parametrize(("name", "operands", "attrs", "text"), _CASES)
def test_error_text(name: str, operands: list[TensorType], attrs: dict[str, Any], text: str) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    values = [builder.param(letter, type_) for letter, type_ in zip("abcdef", operands, strict=False)]
    with pytest.raises(IRTypeError) as caught:
        builder.emit(name, *values, **attrs)
    assert str(caught.value) == text


@pytest.mark.parametrize("name", ["add", "exp", "cast", "where"])
def test_elementwise_ops_take_tensors_of_unknown_rank(name: str) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    op = default_ops()[name]
    kinds = ["bool"] + ["float32"] * 2 if name == "where" else ["float32"] * len(op.operands)
    values = [builder.param(f"p{index}", TensorType(None, kind)) for index, kind in enumerate(kinds)]
    result = builder.bind(name, values, {"dtype": "float64"} if name == "cast" else {}).result
    assert result.type == TensorType(None, "float64" if name == "cast" else "float32")
