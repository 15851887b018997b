"""Node cases of ONNX by the file or folder defining the cases; other files are not imported.

The import of all files takes seconds: onnx computes the expected results of all cases during the import.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["node_cases"]


def node_cases(module: str) -> list[Any]:
    """Return the cases named after a module below ``onnx.backend.test.case.node``: ``attention``, ``ai_onnx_ml``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import node
        from onnx.backend.test.case.utils import import_recursive

        found: ModuleType = import_module(f"{node.__name__}.{module}")
        if hasattr(found, "__path__"):
            import_recursive(found)
        registered: list[Any] = node._NodeTestCases
    return [case for case in registered if case.name.startswith(f"test_{module}_")]
