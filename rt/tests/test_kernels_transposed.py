"""Copies of transposed arrays in blocks: all permutations of axes shorter and longer than a block."""

from __future__ import annotations

import itertools
from pathlib import Path

import byoc_core
import numpy as np
import pytest

from rt.tests.runner import NativeLibrary
from rt.tests.saved import load_saved

SHAPES = [(70, 33), (3, 40, 65), (33, 2, 34, 1), (17, 1, 33, 3), (64, 31, 2), (32, 16), (2, 130, 70), (5, 4, 64, 3)]


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transposed_arrays_are_copied(
    native: NativeLibrary, tmp_path: Path, shape: tuple[int, ...], dtype: str
) -> None:
    orders = [*itertools.permutations(range(len(shape)))]
    lines = [f"        y{i} = R.permute_dims(x, axes={order})" for i, order in enumerate(orders)]
    text = "\n".join(
        [
            "@R.ir_module",
            "class M:",
            "    @R.function",
            f'    def main(x: R.Tensor({shape}, "{dtype}")):',
            *lines,
            f"        return {', '.join(f'y{i}' for i in range(len(orders)))}",
        ]
    )
    function = load_saved(byoc_core.build(byoc_core.parse(text), []), native, tmp_path)["main"]
    x = (np.arange(np.prod(shape)) % 101).astype(dtype).reshape(shape)
    for order, found in zip(orders, function(x), strict=True):
        np.testing.assert_array_equal(found, x.transpose(order), strict=True)
