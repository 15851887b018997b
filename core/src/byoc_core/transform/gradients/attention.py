"""Rules for attention and rotary position embedding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc_core.transform.gradients.normalisation import softmax_cotangent
from byoc_core.transform.gradients.pullback import Pullback, Rule, by_operand
from byoc_core.transform.gradients.terms import Term

__all__ = ["RULES"]


@dataclass(frozen=True, slots=True)
class _Stages:
    """The stages of an attention. Heads of queries sharing a head of keys are further steps of the queries.

    Attributes:
        query: ``(B, G, R, D)`` for ``G`` heads of keys, and ``R`` steps of all heads of queries of a head of keys.
        factor: the factor of the products of queries and keys.
        capped: the scores ``(B, H, S, T)`` after the softcap.
        weights: the scores after the softmax.
    """

    query: Term
    factor: Term
    capped: Term
    weights: Term


def _factor(pullback: Pullback, query: Term) -> Term:
    """Return the factor of the scores."""
    scale, size = pullback.attrs["scale"], query.shape[3]
    if scale is not None:
        return query.convert(float(scale))
    if isinstance(size, int):
        return query.convert(1 / math.sqrt(max(size, 1)))
    return 1 / pullback.emitter.size(size, query.dtype).apply("sqrt")


def _stages(pullback: Pullback) -> _Stages:
    query, key, attrs = pullback.operand(0), pullback.operand(1), pullback.attrs
    batch, heads, steps, size = query.shape
    groups, length = key.shape[1:3]
    shared = query.reshape((batch, groups, heads * steps // groups, size))
    factor = _factor(pullback, query)
    scores = (shared @ key.transposed()).reshape((batch, heads, steps, length)) * factor
    softcap = float(attrs["softcap"])
    capped = (scores / softcap).apply("tanh") * softcap if softcap else scores
    masked = capped
    for index in range(3, pullback.num_operands):
        masked = masked + pullback.operand(index)
    if attrs["causal"]:
        last = pullback.emitter.positions(steps).reshape((steps, 1)) + pullback.emitter.size(attrs["offset"])
        is_future = pullback.emitter.positions(length).apply("greater", last)
        masked = masked.convert(-math.inf).where(is_future, masked)
    if attrs["zero_unseen"]:
        weights = masked.apply("nn.stepwise_softmax", axis=-1, zero_unseen=True)
    else:
        weights = masked.apply("nn.softmax", axis=-1)
    return _Stages(shared, factor, capped, weights)


def _attention(pullback: Pullback) -> Sequence[Term | None]:
    """Return the cotangents of queries, keys, values and mask.

    Source: Dao et al. 2022, FlashAttention, appendix B.2, without its blocks.
    """
    if any(pullback.has_cotangent(index) for index in range(1, len(pullback.binding.results))):
        raise pullback.refusal("by the scores")
    stages, softcap = _stages(pullback), float(pullback.attrs["softcap"])
    query, key, value = (pullback.operand(index) for index in range(3))
    shape, shared = stages.weights.shape, (*stages.query.shape[:3], key.shape[2])
    cotangent = pullback.cotangent().reshape((*stages.query.shape[:3], value.shape[3]))
    by_value = stages.weights.reshape(shared).transposed() @ cotangent
    by_weights = (cotangent @ value.transposed()).reshape(shape)
    by_scores = softmax_cotangent(stages.weights, by_weights, 3)
    masks = [by_scores.sum_to(pullback.operand(index).shape) for index in range(3, pullback.num_operands)]
    if softcap:
        ratio = stages.capped / softcap
        by_scores = by_scores * (1 - ratio * ratio)
    by_products = (by_scores * stages.factor).reshape(shared)
    return (by_products @ key).reshape(query.shape), by_products.transposed() @ stages.query, by_value, *masks


def _rotary_embedding(pullback: Pullback) -> Term:
    """Return the cotangent rotated by the negated angles."""
    cosine, sine = pullback.operand(1), pullback.operand(2)
    return pullback.cotangent().apply("nn.rotary_embedding", cosine, -sine, **pullback.attrs)


RULES: Mapping[str, Rule] = {
    "nn.attention": _attention,
    "nn.rotary_embedding": by_operand(_rotary_embedding, None, None),
}
"""The family's rules, by op."""
