"""The claims of the backend: a rule for single ops, and patterns of ops run as one call of the library."""

from __future__ import annotations

from byoc_core.authoring.graph import check_binding
from byoc_core.ir import Binding, TensorType
from byoc_core.pattern import CompositePattern, Match, Rejection, is_const, is_op, wildcard

from byoc_scipy.engine import DENSE_BIAS, DENSE_BIAS_RELU, DTYPES, KERNELS

__all__ = ["patterns", "reject_op"]


def patterns() -> list[CompositePattern]:
    """Return the patterns. Weights must be constants, because the engine takes weights at load, not per call."""
    dense = is_op("nn.dense")(wildcard().has_rank(2), is_const())
    biased = is_op("nn.bias_add").has_attr(axis=-1)(dense, is_const())
    return [
        CompositePattern(DENSE_BIAS_RELU, is_op("nn.relu")(biased), _check),
        CompositePattern(DENSE_BIAS, biased, _check),
    ]


def _check(match: Match) -> Rejection | None:
    """Reject a match with an op unknown to the engine; users see the reason in ``byoc explain``."""
    return next(filter(None, map(reject_op, match.bindings)), None)


def reject_op(binding: Binding) -> Rejection | None:
    """Return the reason if the engine cannot compute an op, or ``None``.

    Reject every op not known to be right: another backend or the host then takes the op, and the report gives the
    reason.
    """
    if binding.op.name not in KERNELS:
        return Rejection("op", f"scipy has no kernel for `{binding.op.name}`")
    types = [value.type for value in (*binding.operands, *binding.results)]
    foreign = sorted({type_.dtype for type_ in types if isinstance(type_, TensorType)} - set(DTYPES))
    if foreign:
        return Rejection("dtype", f"scipy computes {' and '.join(DTYPES)}, not {', '.join(foreign)}")
    if binding.attrs.get("approximate", "none") != "none":
        return Rejection("attribute", "scipy computes `nn.gelu` exactly only")
    return check_binding(binding)
