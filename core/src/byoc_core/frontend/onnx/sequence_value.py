"""Sequences of tensors, known during import; the IR has no sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.frontend.onnx.node_context import Imported

__all__ = ["SequenceValue"]


@dataclass(frozen=True, eq=False)
class SequenceValue:
    """An ONNX sequence of known length; each element is an imported form.

    Attributes:
        elements: the tensors, in order.
    """

    elements: tuple[Imported, ...]

    def __str__(self) -> str:
        return f"a sequence of {len(self.elements)}"
