"""Ops without computation: layouts of results in the operand's memory, or of operands in the result's memory.

Lowering replaces the copies of an op by these views. A wrong layout therefore yields wrong elements; ``None`` is always
safe and costs a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from byoc_core.opset.contexts import OpContext
from byoc_core.opset.layout import Layout

__all__ = ["RESHAPED", "LayoutRule", "ViewRule"]

LayoutRule = Callable[[OpContext, Layout], Sequence[Layout | None]]
"""Return a layout for each value, from the layout of the only value on the other side of the op.

``None`` if the value is no strided view.
"""


@dataclass(frozen=True, slots=True)
class ViewRule:
    """The memory layout of an op without copies.

    Attributes:
        results: the layouts of the results in the operand's buffer, from the operand's layout. ``None`` if the op
            joins the operands, because then operands are views of the result.
        operands: the required layouts of operands in the result's buffer, from the result's layout. ``None`` if
            operands are no views of the result.
        is_whole: whether the result holds each element of the operand once.
    """

    results: LayoutRule | None = None
    operands: LayoutRule | None = None
    is_whole: bool = False

    @property
    def joins(self) -> bool:
        """Whether the operands are parts of the result."""
        return self.results is None

    def result_layouts(self, context: OpContext, layout: Layout) -> list[Layout | None]:
        """Return the layouts of the results if the operand has ``layout``.

        ``None`` for a result that is no strided view, or has sizes not provably equal to the declared sizes.
        """
        shapes = [context.result_shape(index) for index in range(len(context.results))]
        found = [None] * len(shapes) if self.results is None else self.results(context, layout)
        return _of_declared_sizes(found, shapes)

    def operand_layouts(self, context: OpContext, layout: Layout) -> list[Layout | None]:
        """Return the layouts required of the operands for the only result to have ``layout`` without a copy.

        ``None`` for an operand without such a layout.
        """
        shapes = [context.operand_shape(index) for index in range(len(context.operands))]
        found = [None] * len(shapes) if self.operands is None else self.operands(context, layout)
        return _of_declared_sizes(found, shapes)


def _of_declared_sizes(layouts: Sequence[Layout | None], shapes: Sequence[tuple[object, ...]]) -> list[Layout | None]:
    return [
        layout if layout is not None and layout.shape == shape else None
        for layout, shape in zip(layouts, shapes, strict=True)
    ]


RESHAPED = ViewRule(
    results=lambda context, layout: [layout.reshaped(context.result_shape())],
    operands=lambda context, layout: [layout.reshaped(context.operand_shape())],
    is_whole=True,
)
"""The rule of ops preserving the elements and their row-major order (``Trait.RESHAPING``)."""
