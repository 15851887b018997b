"""Small models in files, and a cache of compiled models in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

AFFINE = """
<ir_version: 8, opset_import: ["" : 17]>
affine (float[n, 3] x, float[3] shift) => (float[n, 3] y, float[n] total)
<float[3] scale = {1, 2, 3}> {
    scaled = Mul(x, scale)
    y = Add(scaled, shift)
    axes = Constant<value = int64[1] {1}>()
    total = ReduceSum<keepdims = 0>(y, axes)
}
"""

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes an ONNX model in text form to a file, and returns the path."""

    def write_model(text: str = AFFINE, name: str = "model.onnx") -> Path:
        path = tmp_path / name
        onnx.save_model(onnx.parser.parse_model(text), path)
        return path

    return write_model
