"""The operators and ops of the core, not to be replaced by plugins and scripts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from byoc_core.frontend.onnx_names import OnnxName
from byoc_core.ir.op_registry import default_ops

if TYPE_CHECKING:
    from byoc_core.opset.opdef import OpDef

__all__ = ["find_core_op", "has_core_importer"]


def find_core_op(name: str) -> OpDef | None:
    """Return the core's op of this name, or ``None``. The first call imports the modules defining the ops."""
    return default_ops().get(name)


def has_core_importer(name: OnnxName) -> bool:
    """Return whether the core has an importer for an operator.

    Operators imported as a function of the standard have none. Without the package ``onnx`` no model is imported, and
    the result is ``False``.
    """
    if (name[0] and not name[0].startswith("ai.onnx.")) or find_spec("onnx") is None:
        return False
    from byoc_core.frontend.onnx.ops import node_importers

    return name in node_importers(default_ops())
