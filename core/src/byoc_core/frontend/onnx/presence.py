"""Presence of the package ``onnx``, an optional dependency."""

from __future__ import annotations

from byoc_core.errors import FrontendError

__all__ = ["check_onnx"]


def check_onnx() -> None:
    """Check that the package ``onnx`` is installed.

    Raises:
        FrontendError: the package is missing.
    """
    try:
        import onnx  # noqa: F401 - the import is the check
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "onnx":
            raise
        raise FrontendError(
            "ONNX front end", "needs the package `onnx`", hint="pip install 'byoc-core[onnx]'."
        ) from error
