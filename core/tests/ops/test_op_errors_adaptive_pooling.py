"""Refusals of adaptive pooling and axes of size 1, with the full text of the error."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.errors import IRTypeError
from byoc_core.ir import TensorType, tensor
from byoc_core.ops import FunctionBuilder

_CASES: list[tuple[str, TensorType, dict[str, Any], str]] = [
    (
        "nn.adaptive_avg_pool2d",
        tensor((1, 2, 3, 4)),
        {"output_size": (1,)},
        (
            "op `nn.adaptive_avg_pool2d`: attribute `output_size` does not fit; got (1,), expected 2 sizes of 1 or "
            "more: height, width"
        ),
    ),
    (
        "nn.adaptive_max_pool1d",
        tensor((1, 2, 0)),
        {"output_size": (1,)},
        (
            'op `nn.adaptive_max_pool1d`, operand `x`: axis 2 is empty; got R.Tensor((1, 2, 0), "float32"), '
            "expected a size of 1 or more"
        ),
    ),
    (
        "squeeze",
        tensor((1, 2)),
        {"axis": (1,)},
        "op `squeeze`, operand `x`: axis 1 has size 2; got (1, 2), expected 1 because the axis is removed",
    ),
    (
        "squeeze",
        tensor((1, "n")),
        {},
        (
            "op `squeeze`, operand `x`: needs attribute `axis`, because the size of axis 1 is unknown; got (1, n), "
            "expected attribute `axis`, or known sizes"
        ),
    ),
    (
        "expand_dims",
        tensor((2,)),
        {"axis": (0, -3)},
        "op `expand_dims`: attribute `axis` names an axis twice; got (0, -3)",
    ),
    (
        "expand_dims",
        tensor((2,)),
        {"axis": (2,)},
        "op `expand_dims`: attribute `axis` names no axis of a tensor of rank 2; got 2, expected -2 to 1",
    ),
]


@pytest.mark.parametrize(("name", "type_", "attrs", "text"), _CASES)
def test_error_text(name: str, type_: TensorType, attrs: dict[str, Any], text: str) -> None:
    builder = FunctionBuilder("f")
    with pytest.raises(IRTypeError) as caught:
        builder.bind(name, [builder.param("x", type_)], attrs)
    assert str(caught.value) == text
