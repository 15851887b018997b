"""Models of old operator sets: converted to the oldest imported one by the package ``onnx``."""

from __future__ import annotations

import onnx
from onnx import version_converter

from byoc_core.errors import FrontendError

__all__ = ["OLDEST_OPSET", "upgraded"]

OLDEST_OPSET = 7
"""The oldest operator set of the importers."""


def upgraded(proto: onnx.ModelProto, version: int, source: str) -> onnx.ModelProto:
    """Return a model in operator set :data:`OLDEST_OPSET` or newer.

    Args:
        proto: the model.
        version: the model's version of the standard operator set, 1 or more.
        source: the model, for messages.

    Raises:
        FrontendError: the model is malformed, or an op has no counterpart in the newer operator set.
    """
    if version >= OLDEST_OPSET:
        return proto
    try:
        return version_converter.convert_version(proto, OLDEST_OPSET)
    except Exception as error:  # the converter raises RuntimeError, ValidationError and others
        raise FrontendError(
            source,
            f"cannot be converted to operator set {OLDEST_OPSET}",
            got=f"operator set {version}",
            detail=str(error),
        ) from error
