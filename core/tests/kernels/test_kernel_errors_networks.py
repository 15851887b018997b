"""The exact texts of runtime refusals by kernels of network layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS

pytestmark = pytest.mark.lowest


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
    (
        "nn.lstm",
        [_zeros(3, 2, 1), _zeros(1, 4, 1), _zeros(1, 4, 1), _zeros(1, 8), _zeros(1, 2, 1), _zeros(1, 1, 1)],
        {},
        "op `nn.lstm`, operand `initial_c`: has the wrong shape; got (1, 1, 1), expected (1, 2, 1)",
    ),
    (
        "nn.gru",
        [_zeros(3, 2, 1), _zeros(2, 3, 1), _zeros(1, 3, 1), _zeros(1, 6), _zeros(1, 2, 1)],
        {},
        "op `nn.gru`, operand `weight`: has the wrong shape; got (2, 3, 1), expected (1, 3, 1)",
    ),
    (
        "nn.bias_add",
        [_zeros(2, 4), _zeros(1)],
        {"axis": -1},
        "op `nn.bias_add`, operand `bias`: has the wrong shape; got (1,), expected (4,)",
    ),
    (
        "nn.batch_norm",
        [_zeros(2, 4), *[_zeros(4)] * 3, _zeros(1)],
        {"axis": 1},
        "op `nn.batch_norm`, operand `variance`: has the wrong shape; got (1,), expected (4,)",
    ),
    (
        "nn.layer_norm",
        [_zeros(0, 4), _zeros(4), _zeros(1)],
        {"axes": (1,)},
        "op `nn.layer_norm`, operand `beta`: has the wrong shape; got (1,), expected (4,)",
    ),
    (
        "nn.rms_norm",
        [_zeros(0, 4), _zeros(1)],
        {"axes": (1,)},
        "op `nn.rms_norm`, operand `gamma`: has the wrong shape; got (1,), expected (4,)",
    ),
    (
        "nn.group_norm",
        [_zeros(2, 4, 3), _zeros(1), _zeros(4)],
        {"groups": 2},
        "op `nn.group_norm`, operand `gamma`: has the wrong shape; got (1,), expected (4,)",
    ),
    (
        "nn.group_norm",
        [_zeros(2, 4, 3), _zeros(4), _zeros(4)],
        {"groups": 3},
        (
            "op `nn.group_norm`, operand `x`: the channels (axis 1) are not divisible into the groups; "
            "got 4, expected a multiple of 3"
        ),
    ),
    (
        "nn.instance_norm",
        [_zeros(2, 4, 3), _zeros(1), _zeros(4)],
        {},
        "op `nn.instance_norm`, operand `gamma`: has the wrong shape; got (1,), expected (4,)",
    ),
    (
        "nn.attention",
        [_zeros(2, 4, 3, 5), _zeros(1, 2, 6, 5), _zeros(1, 2, 6, 7)],
        {},
        "op `nn.attention`, operand `key`: has the wrong shape; got (1, 2, 6, 5), expected (2, 2, 6, 5)",
    ),
    (
        "nn.attention",
        [_zeros(2, 4, 3, 5), _zeros(2, 3, 6, 5), _zeros(2, 3, 6, 7)],
        {},
        (
            "op `nn.attention`, operand `query`: the heads (axis 1) are not divisible by the heads of operand `key`; "
            "got 4, expected a multiple of 3"
        ),
    ),
    (
        "nn.attention",
        [_zeros(1, 1, 1, 5), _zeros(1, 1, 6, 5), _zeros(1, 1, 6, 7), _zeros(3, 6)],
        {},
        "op `nn.attention`, operand `mask`: does not broadcast to the scores; got (3, 6), expected (1, 1, 1, 6)",
    ),
    (
        "nn.rotary_embedding",
        [_zeros(2, 1, 3, 4), _zeros(1, 3, 2), _zeros(2, 3, 2)],
        {},
        "op `nn.rotary_embedding`, operand `cos`: has the wrong shape; got (1, 3, 2), expected (2, 3, 2)",
    ),
    (
        "nn.rotary_embedding",
        [_zeros(2, 1, 3, 4), _zeros(2, 3, 3), _zeros(2, 3, 3)],
        {},
        (
            "op `nn.rotary_embedding`, operand `cos`: rotates more elements than axis 3 of operand `x` holds; "
            "got 6, expected 4 or fewer"
        ),
    ),
    (
        "nn.max_pool2d",
        [_zeros(1, 1, 4, 2)],
        {"pool_size": (3,), "strides": (2,), "ceil_mode": True},
        "operand `x`: an axis of the padded image is smaller than the window; got 2, expected 3 or more",
    ),
    (
        "nn.conv2d",
        [_zeros(1, 1, 4, 4), _zeros(2, 1, 3, 3)],
        {"groups": 2},
        "operand `x`: the input channels are not divisible into the groups; got 1, expected a multiple of 2",
    ),
    (
        "nn.conv2d",
        [_zeros(1, 2, 4, 4), _zeros(3, 1, 3, 3)],
        {"groups": 2},
        "operand `weight`: the output channels are not divisible into the groups; got 3, expected a multiple of 2",
    ),
    (
        "nn.conv1d",
        [_zeros(1, 2, 4), _zeros(0, 1, 3)],
        {},
        "operand `weight`: the number of input channels does not fit operand `x`; got 1, expected 2",
    ),
    (
        "nn.conv1d_transpose",
        [_zeros(1, 2, 1), _zeros(2, 1, 3)],
        {"padding": (2, 1)},
        "operand `x`: the padding leaves nothing of spatial axis 0; got 3, expected less than 3",
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
