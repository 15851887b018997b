"""Attention as the function body of ONNX has it: each stage rounded to its dtype."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.normalisation import emit_softmax
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value

__all__ = ["PRECISIONS", "AttentionStages"]

PRECISIONS = ("float16", "bfloat16", "float32", "float64")
"""The dtypes of a softmax."""


@dataclass(frozen=True)
class AttentionStages:
    """What the stages of an attention do.

    Attributes:
        node: the attention.
        scale: the factor of the scores; ``None``: ``1 / sqrt(D)``.
        softcap: if not 0, scores become ``softcap * tanh(scores / softcap)``.
        precision: the dtype of the softmax.
        mask: what is added to the scores.
        may_see_none: whether a step may see no key; its weights are zeros.
    """

    node: NodeContext
    scale: float | None
    softcap: float
    precision: str
    mask: Value | None
    may_see_none: bool

    def emit(self, query: Value, key: Value, value: Value, stage: str | None) -> tuple[Value, ...]:
        """Return the result, and the scores of a stage if one is named.

        Shapes: ``(B, H, S, D), (B, G, T, D), (B, G, T, E) -> (B, H, S, E)``, and ``(B, H, S, T)`` of the scores.

        Raises:
            FrontendError: the numbers of heads are not known, and differ.
        """
        node, (batch, heads, steps, size), (_, groups, length, _) = self.node, *map(self.node.shape_of, (query, key))
        is_shared = heads != groups
        if is_shared and not (isinstance(heads, int) and isinstance(groups, int) and groups and heads % groups == 0):
            problem = "rounds each stage, and needs equal or known numbers of heads"
            raise node.error(problem, got=(heads, groups), expected="a multiple of the second one")
        # The queries of the heads that share keys become steps of one head.
        shared = (batch, groups, heads // groups * steps) if is_shared else (batch, heads, steps)
        factor = self._factor(size)
        query, keys = node.emit("multiply", query, factor), node.emit("multiply", key, factor)
        turned = node.emit("permute_dims", keys, axes=(0, 1, 3, 2))
        products = node.emit("matmul", node.reshape(query, (*shared, size)), turned)
        scores: dict[str, Value] = {"products": node.reshape(products, (batch, heads, steps, length))}
        scores["capped"] = self._cap(scores["products"])
        scores["masked"] = scores["capped"] if self.mask is None else node.emit("add", scores["capped"], self.mask)
        scores["weights"] = self._weigh(scores["masked"])
        weighed = node.emit("matmul", node.reshape(scores["weights"], (*shared, length)), value)
        result = node.reshape(weighed, (batch, heads, steps, node.shape_of(value)[3]))
        return (result,) if stage is None else (result, scores[stage])

    def _factor(self, size: Dim) -> Value:
        """Return the factor of queries and of keys: the root of the scale."""
        if self.scale is not None or isinstance(size, int):
            scale = 1 / math.sqrt(max(int(str(size)), 1)) if self.scale is None else self.scale
            return self._number(math.sqrt(scale))
        emit = self.node.emit
        sizes = self.node.to_value(ShapeValue((size,)), "the size of a head")
        root = emit("sqrt", emit("cast", sizes, dtype="float32"))
        factor = emit("sqrt", emit("divide", self.node.constant(np.ones(1, np.float32)), root))
        return emit("cast", factor, dtype=self.node.type(0).dtype)

    def _cap(self, scores: Value) -> Value:
        if not self.softcap:
            return scores
        cap = self._number(self.softcap)
        return self.node.emit("multiply", self.node.emit("tanh", self.node.emit("divide", scores, cap)), cap)

    def _weigh(self, scores: Value) -> Value:
        """Return the softmax of the scores, computed in its own dtype; zeros for steps that see no key."""
        dtype, emit = self.node.type(0).dtype, self.node.emit
        given = scores if dtype == self.precision else emit("cast", scores, dtype=self.precision)
        weights = emit_softmax(self.node, given, 3)
        weights = weights if dtype == self.precision else emit("cast", weights, dtype=dtype)
        if self.mask is None or not self.may_see_none:
            return weights
        top = emit("max", self.mask, axis=(-1,), keepdims=True)
        return emit("where", emit("equal", top, self._number(-math.inf)), self._number(0.0), weights)

    def _number(self, value: float) -> Value:
        return self.node.scalar(value, 0)
