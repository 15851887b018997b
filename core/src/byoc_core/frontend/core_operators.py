"""The operators and ops of the core, not to be replaced by plugins and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.ir.op_registry import default_ops

if TYPE_CHECKING:
    from byoc_core.opset.opdef import OpDef

__all__ = ["find_core_op", "has_core_importer"]


def find_core_op(name: str) -> OpDef | None:
    """Return the core's op of this name, or ``None``. The first call imports the modules defining the ops."""
    return default_ops().get(name)


def has_core_importer(op_type: str) -> bool:
    """Return whether the core has an importer for an operator of the standard domain.

    Operators imported as a function of the standard have none.

    Raises:
        FrontendError: the package ``onnx`` is missing.
    """
    from byoc_core.frontend.onnx.presence import check_onnx

    check_onnx()
    from byoc_core.frontend.onnx.ops import node_importers

    return ("", op_type) in node_importers(default_ops())
