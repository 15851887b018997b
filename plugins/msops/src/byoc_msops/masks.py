"""Masks of attention, as terms to add to the scores."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.dims import Dim
from byoc_core.frontend.onnx import NodeContext
from byoc_core.ir import Value

from byoc_msops.operands import number_like

__all__ = ["MaskReader", "add_terms"]


def add_terms(node: NodeContext, left: Value | None, right: Value | None) -> Value | None:
    """Return the sum of two terms; ``None`` stands for no term."""
    if left is None or right is None:
        return right if left is None else left
    return node.emit("add", left, right)


class MaskReader:
    """Reads the integer mask of an attention with scores ``(batch, heads, steps, total)``.

    Args:
        node: the attention.
        index: the input with the mask.
        scores: a value of the dtype of the scores.
        shape: batch, steps and total.
        offset: the number of earlier keys.
    """

    def __init__(
        self, node: NodeContext, index: int, scores: Value, shape: tuple[Dim, Dim, Dim], offset: Dim = 0
    ) -> None:
        self._node = node
        self._index = index
        self._scores = scores
        self._batch, self._steps, self._total = shape
        self._offset = offset

    def read(self, filter_value: float) -> Value | None:
        """Return a term broadcasting to the scores: 0 for visible keys, else ``filter_value``; ``None`` without mask.

        Shapes: ``(batch,)`` numbers of visible keys; ``(2 * batch,)`` ends and begins of visible keys; 1 for visible
        keys in ``(batch, total)``, ``(batch, steps, total)`` or ``(batch, 1, all, all)`` with ``all >= total``.

        Raises:
            FrontendError: the mask has another shape.
        """
        node = self._node
        if not node.has_input(self._index):
            return None
        shape = node.shape(self._index)
        forms: dict[int, Callable[[], Value]] = {
            1: self._of_lengths,
            2: lambda: self._of_flags((shape[0], 1, 1, shape[1])),
            3: lambda: self._of_flags((shape[0], 1, *shape[1:])),
            4: self._of_square,
        }
        if len(shape) not in forms:
            raise self._error()
        zero = number_like(node, self._scores, 0.0)
        return node.emit("where", forms[len(shape)](), zero, number_like(node, self._scores, filter_value))

    def _error(self) -> Exception:
        forms = "(batch,), (2 * batch,), (batch, total), (batch, steps, total) or (batch, 1, all, all)"
        shape = self._node.shape(self._index)
        return self._node.error(f"input {self._index}, the mask, has an unsupported shape", got=shape, expected=forms)

    def _of_flags(self, shape: tuple[Dim, ...]) -> Value:
        flags = self._node.reshape(self._node.value(self._index), shape)
        return self._node.emit("greater", flags, number_like(self._node, flags, 0))

    def _of_lengths(self) -> Value:
        node, (count,) = self._node, self._node.shape(self._index)
        numbers, keys = node.value(self._index), self._keys()
        if count == self._batch:
            return node.emit("less", keys, node.reshape(numbers, (count, 1, 1, 1)))
        if count != self._batch * 2:
            raise self._error()
        parts = node.emit_all("split", (numbers,), {"sections": (self._batch, self._batch), "axis": 0})
        ends, begins = (node.reshape(part, (self._batch, 1, 1, 1)) for part in parts)
        return node.emit("logical_and", node.emit("less", keys, ends), node.emit("greater_equal", keys, begins))

    def _keys(self) -> Value:
        dtype = self._node.type(self._index).dtype
        return self._node.emit("arange", stop=self._total, dtype=dtype)

    def _of_square(self) -> Value:
        node, offset = self._node, self._offset
        if node.shape(self._index)[1] != 1:
            raise self._error()
        rows = {"axes": (2, 3), "begin": (offset, 0), "end": (offset + self._steps, self._total), "strides": (1, 1)}
        flags = node.emit_all("strided_slice", (node.value(self._index),), dict(rows))[0]
        return node.emit("greater", flags, number_like(node, flags, 0))
