"""The exact texts of type errors of the ops of neural networks."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.errors import IRTypeError
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import TensorType, tensor

_IMAGE = tensor((2, 6, 5, 4))
_SIX, _FIVE = tensor((6,)), tensor((5,))
_STATE = tensor((1, 2, 3))
_LSTM = [tensor((7, 2, 5)), tensor((1, 12, 5)), tensor((1, 12, 3)), tensor((1, 24)), _STATE, _STATE]

_CASES: list[tuple[str, list[TensorType], dict[str, Any], str]] = [
    (
        "nn.conv1d",
        [tensor((1, 4, 9)), tensor((6, 3, 3))],
        {},
        (
            "op `nn.conv1d`, operand `weight=b`: axis 1 (input channels) has size 3; expected 4, because "
            "operand `x=a` has 4 channels (axis 1)"
        ),
    ),
    (
        "nn.conv1d",
        [tensor((1, 4, 9)), tensor((6, 4, 3))],
        {"strides": (1, 1)},
        "op `nn.conv1d`, attribute `strides`: has the wrong number of values; got (1, 1), expected 1",
    ),
    (
        "nn.conv1d",
        [tensor((1, 4, 2)), tensor((6, 4, 3))],
        {},
        (
            "op `nn.conv1d`, operand `x=a`: width of the padded image is smaller than the window; got 2, "
            "expected 3 or more"
        ),
    ),
    (
        "nn.conv3d",
        [tensor((1, 4, 9, 9)), tensor((6, 4, 3, 3, 3))],
        {},
        "op `nn.conv3d`, operand `x=a`: has rank 4; got (1, 4, 9, 9), expected rank 5: (N, C, D, H, W)",
    ),
    (
        "nn.conv3d",
        [tensor((1, 4, 2, 9, 9)), tensor((6, 4, 3, 3, 3))],
        {},
        (
            "op `nn.conv3d`, operand `x=a`: depth of the padded image is smaller than the window; got 2, "
            "expected 3 or more"
        ),
    ),
    (
        "nn.conv2d_transpose",
        [_IMAGE, tensor((4, 3, 3, 3))],
        {},
        (
            "op `nn.conv2d_transpose`, operand `weight=b`: axis 0 (input channels) has size 4; expected 6, "
            "because operand `x=a` has 6 channels (axis 1)"
        ),
    ),
    (
        "nn.conv2d_transpose",
        [_IMAGE, tensor((6, 3, 3, 3))],
        {"padding": (4, 0)},
        ("op `nn.conv2d_transpose`: attribute `padding` leaves nothing of the height; got 8, expected less than 7"),
    ),
    (
        "nn.conv2d_transpose",
        [_IMAGE, tensor((6, 3, 3, 3))],
        {"groups": 4},
        "op `nn.conv2d_transpose`, operand `x=a`: has 6 input channels, not divisible into 4 groups",
    ),
    (
        "nn.conv2d_transpose",
        [_IMAGE, tensor((6, 3, 3, 3))],
        {"output_padding": (-1,)},
        (
            "op `nn.conv2d_transpose`, attribute `output_padding`: has a value out of range; got "
            "(-1,), expected 0 or more"
        ),
    ),
    (
        "nn.max_pool1d",
        [tensor((1, 1, 8))],
        {"pool_size": (2,), "padding": (2,)},
        (
            "op `nn.max_pool1d`: attribute `padding` at the begin of the width is not smaller than the "
            "window; got 2, expected less than 2"
        ),
    ),
    (
        "nn.avg_pool3d",
        [_IMAGE],
        {"pool_size": (2,)},
        ("op `nn.avg_pool3d`, operand `x=a`: has rank 4; got (2, 6, 5, 4), expected rank 5: (N, C, D, H, W)"),
    ),
    (
        "nn.lp_pool2d",
        [_IMAGE],
        {"pool_size": (2,), "p": 0},
        "op `nn.lp_pool2d`: attribute `p` is too small; got 0, expected 1 or more",
    ),
    (
        "nn.group_norm",
        [_IMAGE, _SIX, _SIX],
        {"groups": 4},
        "op `nn.group_norm`, operand `x=a`: has 6 channels, not divisible into 4 groups",
    ),
    (
        "nn.group_norm",
        [_IMAGE, _SIX, _SIX],
        {"groups": 0},
        "op `nn.group_norm`: attribute `groups` is too small; got 0, expected 1 or more",
    ),
    (
        "nn.instance_norm",
        [_IMAGE, _SIX, _FIVE],
        {},
        ("op `nn.instance_norm`, operand `beta=c`: axis 0 has size 5; got (5,), expected 6 as axis 1 of operand `x`"),
    ),
    (
        "nn.instance_norm",
        [_SIX, _SIX, _SIX],
        {},
        "op `nn.instance_norm`, operand `x=a`: has rank 1; expected rank 2 or more: (N, C, ...)",
    ),
    (
        "nn.rms_norm",
        [_IMAGE, _SIX],
        {},
        ("op `nn.rms_norm`, operand `gamma=b`: axis 0 has size 6; got (6,), expected 4 as axis 3 of operand `x`"),
    ),
    ("nn.lrn", [_IMAGE], {"size": 0}, "op `nn.lrn`: attribute `size` is too small; got 0, expected 1 or more"),
    (
        "nn.log_softmax",
        [_IMAGE],
        {"axis": 4},
        ("op `nn.log_softmax`: attribute `axis` names no axis of a tensor of rank 4; got 4, expected -4 to 3"),
    ),
    (
        "nn.resize",
        [_IMAGE],
        {"axes": (2, 3), "sizes": (8,)},
        "op `nn.resize`: attribute `sizes` has 1 values; got (8,), expected a value for each of 2 axes",
    ),
    (
        "nn.resize",
        [_IMAGE],
        {"axes": (-1,), "sizes": (8,)},
        "op `nn.resize`: attribute `axes` counts from the end; got (-1,), expected (3,)",
    ),
    (
        "nn.resize",
        [_IMAGE],
        {"axes": (2,), "sizes": (0,)},
        "op `nn.resize`: attribute `sizes` has a value out of range; got 0, expected 1 or more",
    ),
    (
        "nn.resize",
        [_IMAGE],
        {"axes": (2,), "sizes": (8,), "scales": (0.0,)},
        "op `nn.resize`: attribute `scales` has a value out of range; got (0.0,), expected above 0",
    ),
    (
        "nn.resize",
        [tensor((4,), "int32")],
        {"axes": (0,), "sizes": (8,), "method": "linear"},
        (
            "op `nn.resize`, operand `x=a`: has a dtype not accepted by the op; got int32, expected a dtype of kind "
            "floating-point"
        ),
    ),
    (
        "nn.lstm",
        [_LSTM[0], tensor((1, 12, 4)), *_LSTM[2:]],
        {},
        ("op `nn.lstm`, operand `weight=b`: axis 2 has size 4; got (1, 12, 4), expected 5 as axis 2 of operand `x`"),
    ),
    (
        "nn.lstm",
        _LSTM,
        {"direction": "bidirectional"},
        ("op `nn.lstm`, operand `weight=b`: axis 0 has size 1; got (1, 12, 5), expected 2 as the number of directions"),
    ),
    (
        "nn.lstm",
        [*_LSTM[:5], tensor((1, 2, 4))],
        {},
        (
            "op `nn.lstm`, operand `initial_c=f`: axis 2 has size 4; got (1, 2, 4), expected 3 as the last "
            "axis of operand `recurrence`"
        ),
    ),
    (
        "nn.lstm",
        [*_LSTM, tensor((3,), "int32")],
        {},
        "op `nn.lstm`, operand `lengths[0]=g`: axis 0 has size 3; got (3,), expected 2 as axis 1 of operand `x`",
    ),
    (
        "nn.lstm",
        [*_LSTM, tensor((2,), "int32"), tensor((2,), "int32")],
        {},
        "op `nn.lstm`: takes 6 operands, and optional lengths; got 8",
    ),
    (
        "nn.gru",
        _LSTM[:5],
        {},
        (
            "op `nn.gru`, operand `weight=b`: axis 1 has size 12; got (1, 12, 5), expected 9 as 3 times the "
            "last axis of operand `recurrence`"
        ),
    ),
    (
        "nn.rnn",
        [_IMAGE, *_LSTM[1:5]],
        {},
        "op `nn.rnn`, operand `x=a`: has rank 4; got (2, 6, 5, 4), expected rank 3: (T, N, I)",
    ),
    (
        "quantize",
        [_SIX, tensor(()), tensor((), "int32")],
        {},
        (
            "op `quantize`, operand `zero_point=c`: has a dtype not available as a result; got int32, "
            "expected int2 or int4 or int8 or int16 or uint2 or uint4 or uint8 or uint16"
        ),
    ),
    (
        "quantize",
        [_SIX, tensor(()), tensor((6,), "int8")],
        {"axis": 0},
        ("op `quantize`, operand `zero_point=c`: has rank 1; expected rank 0 or 1, the same for scale and zero point"),
    ),
    (
        "dequantize",
        [tensor((6,), "int8"), _FIVE, tensor((5,), "int8")],
        {"axis": 0},
        ("op `dequantize`, operand `scale=b`: axis 0 has size 5; got (5,), expected 6 as axis 0 of operand `x`"),
    ),
    (
        "dequantize",
        [tensor((6,), "int8"), _FIVE, tensor((5,), "int8")],
        {"axis": 0, "block_size": 2},
        "op `dequantize`, operand `scale=b`: axis 0 has size 5; got (5,), expected 3 blocks",
    ),
    (
        "dequantize",
        [tensor((6,), "int8"), tensor(()), tensor((), "int8")],
        {"axis": 0, "block_size": 2},
        (
            "op `dequantize`, operand `scale=b`: has rank 0; got (), expected rank 1: as operand `x`, because "
            "parameters are in blocks"
        ),
    ),
    (
        "quantize",
        [_SIX, tensor(()), tensor((), "int8")],
        {"block_size": -1},
        "op `quantize`: attribute `block_size` is negative; got -1, expected 0 or more",
    ),
    (
        "nn.attention",
        [tensor((1, 4, 3, 8)), tensor((1, 3, 5, 8)), tensor((1, 3, 5, 8))],
        {},
        "op `nn.attention`, operand `query=a`: has 4 heads, not divisible by the 3 heads of operand `key`",
    ),
    (
        "nn.attention",
        [tensor((1, 4, 3, 8)), tensor((1, 4, 5, 7)), tensor((1, 4, 5, 8))],
        {},
        (
            "op `nn.attention`, operand `key=b`: axis 3 has size 7; got (1, 4, 5, 7), expected 8 as axis 3 "
            "of operand `query`"
        ),
    ),
    (
        "nn.attention",
        [*[tensor((1, 4, 3, 8))] * 3, tensor((3, 4))],
        {},
        ("op `nn.attention`, operand `mask[0]=d`: does not broadcast to the scores; got (3, 4), expected (1, 4, 3, 3)"),
    ),
    (
        "nn.attention",
        [*[tensor((1, 4, 3, 8))] * 3, *[tensor((3, 3))] * 2],
        {},
        "op `nn.attention`: takes a single mask; got 2",
    ),
    (
        "nn.attention",
        [tensor((1, 4, 3, 8))] * 3,
        {"offset": 2},
        "op `nn.attention`: has attribute `offset`, but is not causal; got 2, expected 0",
    ),
    (
        "nn.rotary_embedding",
        [tensor((1, 4, 3, 8)), tensor((1, 3, 5)), tensor((1, 3, 5))],
        {},
        ("op `nn.rotary_embedding`, operand `cos=b`: rotates 10 elements; expected 8 or fewer, as axis 3 of `x`"),
    ),
    (
        "einsum",
        [_SIX, _SIX],
        {"equation": "i->i"},
        "op `einsum`: attribute `equation` names 1 operands; got 'i->i', expected 2",
    ),
    (
        "einsum",
        [_SIX],
        {"equation": "i>j"},
        (
            "op `einsum`: attribute `equation` is malformed; got 'i>j', expected letters and `...`, operands "
            "separated by "
            "commas, then `->` and the result"
        ),
    ),
    (
        "einsum",
        [_SIX],
        {"equation": "ij->i"},
        "op `einsum`, operand `operands[0]=a`: has rank 1, but attribute `equation` names 2 axes; got 'ij'",
    ),
    (
        "einsum",
        [_SIX, _FIVE],
        {"equation": "i,i->"},
        "op `einsum`, operand `operands[1]=b`: axis 0 has size 5; expected 6, as the other axes of the label",
    ),
    (
        "einsum",
        [_SIX],
        {"equation": "i->ij"},
        "op `einsum`: attribute `equation` has a result with an unknown or repeated axis; got ij",
    ),
    ("einsum", [], {"equation": ""}, "op `einsum`: multiplies no operands; expected one operand or more"),
]


@pytest.mark.parametrize(("name", "operands", "attrs", "text"), _CASES)
def test_error_text(name: str, operands: list[TensorType], attrs: dict[str, Any], text: str) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    values = [builder.param(letter, type_) for letter, type_ in zip("abcdefgh", operands, strict=False)]
    with pytest.raises(IRTypeError) as caught:
        builder.emit(name, *values, **attrs)
    assert str(caught.value) == text
