"""Groups of ops computed by a single kernel, for policies choosing between backends.

The division into kernels is decided when a region is compiled, independently of matches. But a policy weighing backends
(:class:`byoc_core.partitioning.ByCost`) sees a composite as a single op without memory traffic between the parts, and
thus sees the saving.
"""

from __future__ import annotations

from byoc_core.pattern import CompositePattern, Match, Pattern, Rejection, is_op, wildcard

from byoc_ccompiler.support import reject_step

__all__ = ["patterns"]

_ANCHORS = {"conv2d": "nn.conv2d", "dense": "nn.dense", "matmul": "matmul"}


def _check(match: Match) -> Rejection | None:
    """Reject a match containing an op rejected alone by this backend."""
    for binding in match.bindings:
        rejection = reject_step(binding, tutorial=False)
        if rejection is not None:
            return rejection
    return None


def patterns() -> list[CompositePattern]:
    """Return convolution and matrix products with bias (``nn.bias_add`` or ``add``) and ReLU, longest first."""
    found: list[CompositePattern] = []
    for name, op in _ANCHORS.items():
        anchor = is_op(op)(wildcard(), wildcard())
        bias: Pattern = is_op("nn.bias_add", "add")(anchor, wildcard())
        found += [
            CompositePattern(f"ccompiler.{name}_bias_relu", is_op("nn.relu")(bias), _check),
            CompositePattern(f"ccompiler.{name}_relu", is_op("nn.relu")(anchor), _check),
            CompositePattern(f"ccompiler.{name}_bias", bias, _check),
        ]
    return found
