"""The exact texts for neural-network op variants without import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx

from core.tests.frontend.conftest import Case

_IMAGE, _FILTER = np.zeros((1, 2, 5, 4), np.float32), np.zeros((2, 3, 3, 3), np.float32)
_STEPS, _GATES, _STATE = (np.zeros(shape, np.float32) for shape in ((4, 2, 3), (1, 8, 3), (1, 8, 2)))
_HEADS = np.zeros((1, 4, 3, 8), np.float32)
_ROI, _SCALES = np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)
_RESIZE: list[Any] = [_IMAGE, _ROI, _SCALES]
_QUANTISED = [np.ones((2, 2), np.uint8), np.array(1, np.float32), np.array(1, np.uint8)]

_CASES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("ConvTranspose", [_IMAGE, _FILTER], {"auto_pad": "SOME"}, "attribute `auto_pad` is unknown; got SOME"),
    (
        "ConvTranspose",
        [_IMAGE, _FILTER],
        {"output_padding": (1,)},
        "attribute `output_padding` has the wrong number of values; got (1,), expected 2",
    ),
    ("GlobalLpPool", [_IMAGE], {"p": 0}, "attribute `p` is too small; got 0, expected 1 or more"),
    (
        "GroupNormalization",
        [_IMAGE, _SCALES[:2], _SCALES[:2]],
        {"num_groups": 0},
        "attribute `num_groups` is too small; got 0, expected 1 or more",
    ),
    (
        "Resize",
        _RESIZE,
        {"mode": "area"},
        "attribute `mode` has an unsupported value; got area, expected nearest or linear or cubic",
    ),
    (
        "Resize",
        _RESIZE,
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        "has no region of the axes in input `roi`; expected 8 numbers",
    ),
    ("Resize", [_IMAGE, _ROI, _SCALES[:3]], {}, "has the wrong number of scales; got 3, expected 4"),
    ("Resize", [_IMAGE], {}, "has neither scales nor sizes"),
    (
        "LSTM",
        [_STEPS, _GATES, _STATE],
        {"layout": 2},
        "attribute `layout` is unknown; got 2, expected 0 or 1",
    ),
    (
        "LSTM",
        [_STEPS, _GATES, _STATE],
        {"hidden_size": 3},
        "attribute `hidden_size` differs from the weights; expected 2",
    ),
    ("Attention", [_HEADS, _HEADS, _HEADS, None, _HEADS], {}, "has past keys or past values, but not both"),
    (
        "Attention",
        [_HEADS, _HEADS, _HEADS],
        {"softmax_precision": 6},
        "attribute `softmax_precision` is unknown; got int32, expected float16, bfloat16, float32, float64",
    ),
    (
        "Attention",
        [_HEADS, _HEADS, _HEADS],
        {"qk_matmul_output_mode": 4},
        "attribute `qk_matmul_output_mode` is unknown; got 4, expected 0 to 3",
    ),
    (
        "Attention",
        [_HEADS[0], _HEADS[0], _HEADS[0]],
        {},
        "the number of heads of input 0 is unknown; got rank 3 and 0 heads",
    ),
    (
        "MatMulInteger",
        [np.ones((2, 3), np.uint8), np.ones((3, 2), np.uint8), np.array(1, np.int8)],
        {},
        "input 0 and its zero point (input 2) have different dtypes; got int8, expected uint8",
    ),
    (
        "QLinearMatMul",
        [*_QUANTISED, *_QUANTISED, np.array([1, 2], np.float32), np.array([1, 2], np.uint8)],
        {},
        "input 6 is not a scalar; other shapes are not supported; got shape (2,)",
    ),
    (
        "QuantizeLinear",
        [_IMAGE, _SCALES],
        {"block_size": -2},
        "attribute `block_size` is negative; got -2",
    ),
    (
        "ConvInteger",
        [np.ones((1, 2, 4), np.uint8), np.ones((2, 2, 3), np.uint8), np.ones(2, np.uint8)],
        {},
        "input 2 is not a scalar; other shapes are not supported; got shape (2,)",
    ),
    (
        "RNN",
        [_STEPS[0], np.zeros((1, 2, 3), np.float32), np.zeros((1, 2, 2), np.float32)],
        {},
        "input 0 has the wrong rank; got 2, expected 3",
    ),
    (
        "OneHot",
        [np.array([1]), np.array([np.nan], np.float32), np.zeros(2, np.float32)],
        {},
        "the depth is not finite; got [nan]",
    ),
    ("Pad", [_IMAGE, np.ones(8, np.int64)], {"value": 1.0}, "has unsupported attributes; got value"),
    ("SpaceToDepth", [_IMAGE], {"blocksize": 1, "mode": "CRD"}, "has unsupported attributes; got mode"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "text"), _CASES)
def test_variant_is_refused(
    op_type: str,
    inputs: list[Any],
    attrs: dict[str, Any],
    text: str,
    node_model: Callable[..., onnx.ModelProto],
    make_case: type[Case],
) -> None:
    constants = [index for index, array in enumerate(inputs) if index and array is not None]
    model = node_model(op_type, 23, make_case(inputs, attrs, constants))
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == f"ONNX model, node `the_node` ({op_type}): {text}"


def test_attributes_of_later_opsets_are_refused(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case]
) -> None:
    model = node_model("TopK", 10, make_case([_SCALES, np.array([1])], {"largest": 0}, [1], 2))
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == ("ONNX model, node `the_node` (TopK): has unsupported attributes; got largest")


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (
            [_HEADS, _HEADS, _HEADS, None, _HEADS, _HEADS, np.array([1])],
            "has both past keys and lengths of keys; expected only past keys or only lengths",
        ),
        (
            [_HEADS, _HEADS, _HEADS, np.zeros((3, 1), np.float32)],
            "has an ambiguous mask of a single column: for all keys, or for the first key only; got 1, expected 3",
        ),
    ],
)
def test_attention_of_operator_set_24_is_refused(
    inputs: list[Any], text: str, node_model: Callable[..., onnx.ModelProto], make_case: type[Case]
) -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(node_model("Attention", 24, make_case(inputs)))
    assert str(caught.value) == f"ONNX model, node `the_node` (Attention): {text}"
