"""Linear interpolation of integers: means of equal integers, and the limits of the dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.frontend.onnx import from_onnx
from byoc_core.transform.evaluate import evaluate_function
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

_DTYPES: dict[str, type[np.integer[Any]]] = {
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "int32": np.int32,
    "uint32": np.uint32,
}


@pytest.mark.parametrize("dtype", _DTYPES)
@given(data=st.data(), height=st.integers(1, 9), width=st.integers(1, 9))
def test_an_image_of_equal_integers_stays_so(dtype: str, data: st.DataObject, height: int, width: int) -> None:
    limits = np.iinfo(_DTYPES[dtype])
    number = data.draw(st.integers(limits.min, limits.max) | st.sampled_from((limits.min, limits.max, 0)))
    image = np.full((1, 1, 3, 5), number, _DTYPES[dtype])
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 19]>
    g ({dtype}[1, 1, 3, 5] x) => ({dtype}[1, 1, {height}, {width}] y) <int64[4] sizes = {{1, 1, {height}, {width}}}> {{
        y = Resize <mode = "linear">(x, , , sizes) }}""")
    (found,) = evaluate_function(from_onnx(model), "main", [image])
    assert np.array_equal(found, np.full((1, 1, height, width), number, _DTYPES[dtype]))
