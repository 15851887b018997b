"""Attention in the form of ONNX's function body: each stage rounded to a dtype.

:mod:`byoc_core.frontend.onnx.ops.attention` takes this form only if ``nn.attention`` would round differently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import float_limits, to_numpy
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.normalisation import NARROW_FLOATS
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value
from byoc_core.opset.families.attention import fits_scores

__all__ = ["PRECISIONS", "AttentionStages", "scale_factors"]

PRECISIONS = ("float16", "bfloat16", "float32", "float64")
"""The dtypes of a softmax."""


@dataclass(frozen=True)
class AttentionStages:
    """The parameters of the stages of an attention.

    Attributes:
        node: the attention.
        scale: the factor of the scores; ``None``: ``1 / sqrt(D)``.
        softcap: if not 0, scores become ``softcap * tanh(scores / softcap)``.
        precision: the dtype of the softmax.
        mask: a term added to the scores.
        may_see_none: whether a step may see no key; the weights are then zeros.
    """

    node: NodeContext
    scale: float | None
    softcap: float
    precision: str
    mask: Value | None
    may_see_none: bool

    def emit(self, query: Value, key: Value, value: Value, stage: str | None) -> tuple[Value, ...]:
        """Return the result, and the scores of a stage if a stage is named.

        Shapes: ``(B, H, S, D), (B, G, T, D), (B, G, T, E) -> (B, H, S, E)``, and ``(B, H, S, T)`` of the scores.

        Raises:
            FrontendError: the numbers of heads differ, and are unknown or no multiples; or the mask does not fit the
                scores.
        """
        node, (batch, heads, steps, size), (_, groups, length, _) = self.node, *map(self.node.shape_of, (query, key))
        is_shared = heads != groups
        if is_shared and not (isinstance(heads, int) and isinstance(groups, int) and groups and heads % groups == 0):
            problem = "rounding of each stage needs equal or known numbers of heads"
            raise node.error(problem, got=(heads, groups), expected="a multiple of the second number as first number")
        self._check_mask((batch, heads, steps, length))
        # Queries of heads sharing keys become steps of a single head.
        shared = (batch, groups, heads // groups * steps) if is_shared else (batch, heads, steps)
        of_queries, of_keys = scale_factors(node, self.scale, size)
        queries, keys = node.emit("multiply", query, of_queries), node.emit("multiply", key, of_keys)
        turned = node.emit("permute_dims", keys, axes=(0, 1, 3, 2))
        products = node.emit("matmul", node.reshape(queries, (*shared, size)), turned)
        scores: dict[str, Value] = {"products": node.reshape(products, (batch, heads, steps, length))}
        scores["capped"] = self._cap(scores["products"])
        scores["masked"] = scores["capped"] if self.mask is None else node.emit("add", scores["capped"], self.mask)
        scores["weights"] = self._weigh(scores["masked"])
        weighed = node.emit("matmul", node.reshape(scores["weights"], (*shared, length)), value)
        result = node.reshape(weighed, (batch, heads, steps, node.shape_of(value)[3]))
        return (result,) if stage is None else (result, scores[stage])

    def _check_mask(self, scores: tuple[Dim, ...]) -> None:
        """Check whether a mask broadcasts to the scores, by the rule of ``nn.attention``."""
        mask = () if self.mask is None else self.node.shape_of(self.mask)
        if not fits_scores(mask, scores):
            raise self.node.error("the mask does not broadcast to the scores", got=mask, expected=scores)

    def _cap(self, scores: Value) -> Value:
        if not self.softcap:
            return scores
        cap = _number(self.node, self.softcap, "softcap")
        return self.node.emit("multiply", self.node.emit("tanh", self.node.emit("divide", scores, cap)), cap)

    def _weigh(self, scores: Value) -> Value:
        """Return the softmax of the scores, computed in the softmax dtype; zeros for steps without visible keys.

        A step sees no keys if all its scores are minus infinity; a sum of finite numbers may be minus infinity in
        float16. A step also sees no keys if its mask is all minus infinity, even with NaN in the scores.
        """
        dtype, emit = self.node.type(0).dtype, self.node.emit
        logits = scores if dtype == self.precision else emit("cast", scores, dtype=self.precision)
        if self.precision in NARROW_FLOATS:
            weights: Value = emit("nn.stepwise_softmax", logits, axis=3, zero_unseen=True)
        else:
            weights = self._zero_unseen(emit("nn.softmax", logits, axis=3), scores)
        weights = weights if dtype == self.precision else emit("cast", weights, dtype=dtype)
        return weights if self.mask is None or not self.may_see_none else self._zero_unseen(weights, self.mask)

    def _zero_unseen(self, weights: Value, scores: Value) -> Value:
        """Return weights with zeros for the steps with all scores minus infinity."""
        emit, dtypes = self.node.emit, [self.node.tensor_type(value).dtype for value in (weights, scores)]
        zero, lowest = (
            self.node.constant(np.asarray(number).astype(to_numpy(dtype)))
            for number, dtype in zip((0.0, -math.inf), dtypes, strict=True)
        )
        top = emit("max", scores, axis=(-1,), keepdims=True)
        return emit("where", emit("equal", top, lowest), zero, weights)


def scale_factors(node: NodeContext, scale: float | None, size: Dim) -> tuple[Value, Value]:
    """Return the factors of queries and of keys: roots of the scale, with the sign on the factor of the queries.

    Args:
        node: the attention; its first input has the dtype of the factors.
        scale: the factor of the scores; ``None``: ``1 / sqrt(size)``.
        size: the size of a head.

    Raises:
        FrontendError: the scale is too large for the dtype.
    """
    if scale is not None or isinstance(size, int):
        scale = 1 / math.sqrt(max(int(str(size)), 1)) if scale is None else scale
        root = math.sqrt(abs(scale))
        return _number(node, math.copysign(root, scale), "scale"), _number(node, root, "scale")
    emit = node.emit
    sizes = node.to_value(ShapeValue((size,)), "the size of a head")
    inverse = emit("sqrt", emit("cast", sizes, dtype="float32"))
    factor = emit("sqrt", emit("divide", node.constant(np.ones(1, np.float32)), inverse))
    narrow = emit("cast", factor, dtype=node.type(0).dtype)
    return narrow, narrow


def _number(node: NodeContext, value: float, attribute: str) -> Value:
    dtype = node.type(0).dtype
    if abs(value) > float_limits(dtype).largest:
        raise node.error(f"attribute `{attribute}` is too large for {dtype}", got=value)
    return node.scalar(value, 0)
