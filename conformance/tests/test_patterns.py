"""Instances of patterns are called with sizes accepted by their ops."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_conformance.promises.l2_numerics.patterns import draw_inputs
from byoc_core import script as R
from byoc_core.transform import evaluate_function

CONVOLUTION = """
def main(x: R.Tensor(("s2", 16, "s9", "s8")), w: R.Tensor((4, 16, {window}, {window}))):
    y = R.nn.conv2d(x, w, dilation=({dilation}, {dilation}))
    z = R.nn.relu(y)
    return z
"""


@pytest.mark.parametrize(("window", "dilation"), [(1, 1), (3, 1), (3, 2), (5, 2)])
def test_an_image_is_no_smaller_than_the_window(window: int, dilation: int) -> None:
    module = R.parse(CONVOLUTION.format(window=window, dilation=dilation))
    inputs = draw_inputs(module, module["main"], 0)
    assert inputs is not None
    assert len({array.shape for array in inputs}) == 2
    (result,) = evaluate_function(module, "main", inputs)
    assert np.isfinite(result).all()


def test_there_may_be_no_sizes_that_the_ops_take() -> None:
    module = R.parse(CONVOLUTION.format(window=9, dilation=9))
    assert draw_inputs(module, module["main"], 0) is None
