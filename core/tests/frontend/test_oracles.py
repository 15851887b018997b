"""Every kernel is compared with something that is not ours: ONNX Runtime, or what the table below names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ops import default_ops

_OTHER_ORACLES: dict[str, tuple[str, str]] = {
    **{
        f"nn.adaptive_{kind}_pool{rank}d": ("numpy over each window", "kernels/test_kernels_adaptive_pooling.py")
        for kind in ("avg", "max")
        for rank in (1, 2, 3)
    },
    "argsort": ("sorted of Python", "kernels/test_kernels_ordering.py"),
    "expand_dims": ("numpy.squeeze undone", "kernels/test_kernels_adaptive_pooling.py"),
    "flip": ("numpy.flip", "kernels/test_kernels_indexing.py"),
    "full": ("sum of numpy arrays", "kernels/test_kernels_creation.py"),
    "nn.stepwise_softmax": ("numpy.sum of ml_dtypes, and float64", "kernels/test_stepwise_softmax.py"),
    "nn.swish": ("scipy.special.expit", "kernels/test_kernels_functions.py"),
    "not_equal": ("numpy.not_equal", "kernels/test_kernels_elementwise.py"),
    "roll": ("numpy.roll", "kernels/test_kernels_indexing.py"),
    "shape_of": ("the shape that was drawn", "kernels/test_kernels_creation.py"),
    "size": ("len of Python", "kernels/test_kernels_creation.py"),
    "sort": ("sorted of Python", "kernels/test_kernels_ordering.py"),
    "squeeze": ("numpy.squeeze", "kernels/test_kernels_adaptive_pooling.py"),
    "stack": ("numpy.stack", "kernels/test_kernels_indexing.py"),
}
"""The oracle of each op that ONNX Runtime does not compute, and the file of tests that compares with it."""


def test_every_kernel_has_an_oracle(compared_models: Callable[[], Iterator[onnx.ModelProto]]) -> None:
    compared = {
        binding.op.name
        for model in compared_models()
        for function in from_onnx(model).functions.values()
        for binding in function.walk()
    }
    computed = {name for name, op in default_ops().items() if op.kernel is not None}
    assert computed - compared == set(_OTHER_ORACLES)


@pytest.mark.parametrize("op", _OTHER_ORACLES)
def test_other_oracles_are_where_the_table_says(op: str) -> None:
    _, file = _OTHER_ORACLES[op]
    assert f'"{op}"' in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
