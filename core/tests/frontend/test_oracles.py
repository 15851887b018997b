"""Every kernel is compared with a foreign oracle: ONNX Runtime, or an oracle stated in a file of tests.

A file of tests states oracles as ``ORACLES = {"flip": "numpy.flip"}``, for ops missing in ONNX Runtime.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ops import default_ops

TESTS = Path(__file__).parents[1]


def _stated(path: Path) -> dict[str, str]:
    """Return the oracles stated in a file of tests, by op."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORACLES":
            return dict(ast.literal_eval(node.value))
    return {}


_ORACLES = {path: stated for path in sorted(TESTS.rglob("test_*.py")) if (stated := _stated(path))}


def test_every_kernel_has_an_oracle(compared_models: Callable[[], Iterator[onnx.ModelProto]]) -> None:
    compared = {
        binding.op.name
        for model in compared_models()
        for function in from_onnx(model).functions.values()
        for binding in function.walk()
    }
    computed = {name for name, op in default_ops().items() if op.kernel is not None}
    assert computed - compared == {op for stated in _ORACLES.values() for op in stated}


@pytest.mark.parametrize("path", _ORACLES, ids=lambda path: path.stem)
def test_files_that_state_an_oracle_test_its_op(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [op for op in _ORACLES[path] if text.count(f'"{op}"') < 2] == []
