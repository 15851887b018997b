"""How large the results of ops can be: one rule for each op, in float64, with a margin for what float32 rounds.

A rule gives a bound of the magnitudes of the result from bounds of those of the operands, which float32 holds; infinity
where it can prove none. It holds for what is computed on the way too: for sums of any of the terms, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from byoc_core.dtypes import dtype_info

from byoc_dnnl.lowerings.attributes import axes_of_layout, in_range, integer, integers, number
from byoc_dnnl.ranges import CHECK_LIMITS, LARGEST
from byoc_dnnl.ranges_constants import ConstantRanges

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call

__all__ = ["BOUNDED", "Facts", "bound_of"]

_UNIT = 2.0**-23
_MOST_EXPONENT = 300.0
"""Where an exponential is larger than any float32, and not yet than any float64."""
_LEAST_EPSILON = 2.0**-100
"""What is added to a variance: less than this float32 might take for zero."""
_MOST_TERMS = 1 << 21
"""Sums of more terms have no bound here: their rounding errors may add up to as much as the terms."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a rule may ask.

    Attributes:
        call: the op.
        bound: gives that of an operand, by number.
        digests: of its operands; ``None`` for what is no constant.
        constants: what is known of constants.
    """

    call: Call
    bound: Callable[[int], float]
    digests: Sequence[str | None]
    constants: ConstantRanges

    def sizes(self, operand: int) -> tuple[int, ...]:
        """Gives the sizes of an operand."""
        return tuple(dim for dim in self.call.operands[operand].shape if isinstance(dim, int))

    def size(self, name: str) -> float:
        """Gives the magnitude of an attribute; infinity where it is NaN."""
        found = abs(number(self.call, name))
        return math.inf if math.isnan(found) else found

    @property
    def bounds(self) -> Sequence[float]:
        """The bounds of all operands."""
        return [self.bound(operand) for operand in range(len(self.call.inputs))]


Rule = Callable[[Facts], float]


def bound_of(facts: Facts) -> float:
    """Gives the bound of a call's result: its rule's; that of an operand where it has none that float32 holds."""
    rule = BOUNDED.get(facts.call.op)
    if rule is None:
        return math.inf
    # Of weights the sums are asked, which tell more, and take a pass over them; of integers the scales alone. Constants
    # that are larger than what checks let pass make masks of what is computed with them.
    operands = [k for k in range(len(facts.digests)) if k != 1 or not _is_dot(facts)]
    asked = {k: facts.bound(k) for k in ([1] if facts.call.op == "dequantize" else operands)}
    if any(facts.digests[k] is not None and bound > CHECK_LIMITS[0] for k, bound in asked.items()):
        return math.inf
    largest = max(asked.values())
    return rule(facts) if largest <= LARGEST else largest


def _summed(largest: float, terms: int) -> float:
    """Gives the bound of a sum of so many terms, and of all that is added up on the way."""
    return largest * (1 + terms * _UNIT) if terms <= _MOST_TERMS else math.inf


def _same(facts: Facts) -> float:
    return facts.bound(0)


def _any(facts: Facts) -> float:
    return max(facts.bounds)


def _rounded(facts: Facts) -> float:
    """Of a function that moves towards zero, computed in some steps."""
    return facts.bound(0) * (1 + 32 * _UNIT)


def _one(_: Facts) -> float:
    return 1 + 32 * _UNIT


def _exponential(facts: Facts) -> float:
    return math.exp(min(facts.bound(0), _MOST_EXPONENT)) * (1 + 4 * _UNIT)


def _softplus(facts: Facts) -> float:
    return (facts.bound(0) + 1) * (1 + 4 * _UNIT)


def _log_softmax(facts: Facts) -> float:
    """Of differences to the largest element, less the logarithm of a sum of at most so many ones."""
    terms = max(1, *facts.sizes(0))
    return (2 * facts.bound(0) + math.log(terms)) * (1 + 4 * _UNIT)


def _sum(facts: Facts) -> float:
    return sum(facts.bounds) * (1 + _UNIT)


def _product(facts: Facts) -> float:
    return math.prod(facts.bounds) * (1 + _UNIT)


def _quotient(facts: Facts) -> float:
    digest = facts.digests[1]
    smallest = 0.0 if digest is None else facts.constants.smallest(digest)
    return facts.bound(0) / smallest * (1 + 4 * _UNIT) if smallest >= 2.0**-126 else math.inf


def _with_slope(facts: Facts) -> float:
    return facts.bound(0) * max(1.0, facts.size("alpha")) * (1 + _UNIT)


def _with_slopes(facts: Facts) -> float:
    return facts.bound(0) * max(1.0, facts.bound(1)) * (1 + _UNIT)


def _elu(facts: Facts) -> float:
    scale = facts.size("gamma") if facts.call.op == "nn.selu" else 1.0
    return scale * max(facts.bound(0), facts.size("alpha")) * (1 + 32 * _UNIT)


def _clip(facts: Facts) -> float:
    ends = [facts.bound(0), -facts.bound(0)]
    for name, choose in (("min", max), ("max", min)):
        if facts.call.attrs.get(name) is not None:
            ends = [choose(end, number(facts.call, name)) for end in ends]
    return max(map(abs, ends)) * (1 + _UNIT)


def _convolution(facts: Facts) -> float:
    sizes, rank = facts.sizes(1), len(facts.call.result.shape) - 2
    kept = axes_of_layout(facts.call, "kernel_layout", "OI", rank)[0]
    return _dot(facts, kept, math.prod(sizes) // max(1, sizes[kept]))


def _deconvolution(facts: Facts) -> float:
    """An element of the result takes each weight of its channel once at most."""
    sizes, rank = facts.sizes(1), len(facts.call.result.shape) - 2
    kept = axes_of_layout(facts.call, "kernel_layout", "IO", rank)[1]
    return _dot(facts, kept, math.prod(sizes) // max(1, sizes[kept]))


def _matmul(facts: Facts) -> float:
    sizes = facts.sizes(1)
    if len(sizes) == 2:
        return _dot(facts, 1, sizes[0])
    terms = sizes[-2] if len(sizes) > 2 else sizes[0]
    return _summed(facts.bound(0) * facts.bound(1) * terms, terms)


def _dense(facts: Facts) -> float:
    return _dot(facts, 0, facts.sizes(1)[1])


def _dot(facts: Facts, kept: int, terms: int) -> float:
    """Gives the bound of products with the second operand, added up over all of its axes but one."""
    digest = facts.digests[1]
    if digest is None:
        return _summed(facts.bound(0) * facts.bound(1) * terms, terms)
    return _summed(facts.bound(0) * facts.constants.largest_sum(digest, kept), terms)


def _dequantised(facts: Facts) -> float:
    """Of all integers that the dtype holds; no constants are looked at but the scales."""
    steps = 2.0 ** dtype_info(facts.call.operands[0].dtype).bits
    return steps * facts.bound(1) * (1 + _UNIT)


def _mean(facts: Facts) -> float:
    """Of means whose sums do not overflow."""
    terms, total = _reduced(facts), _total(facts)
    return _summed(facts.bound(0), terms) if total <= LARGEST else total


def _total(facts: Facts) -> float:
    terms = _reduced(facts)
    return _summed(facts.bound(0) * terms, terms)


def _reduced(facts: Facts) -> int:
    sizes, call = facts.sizes(0), facts.call
    if call.op.startswith("nn.adaptive"):
        return math.prod(sizes[1:])  # more than a window holds
    if call.op.startswith("nn."):
        return math.prod(integers(call, "pool_size", len(sizes) - 2))
    axes: Sequence[int] = range(len(sizes)) if call.attrs.get("axis") is None else integers(call, "axis")
    return math.prod(sizes[in_range(call, "axis", axis)] for axis in axes) if sizes else 1


def _row_norm(facts: Facts) -> float:
    sizes = facts.sizes(0)
    return _standard(
        facts, math.prod(sizes[in_range(facts.call, "axes", axis)] for axis in integers(facts.call, "axes"))
    )


def _group_norm(facts: Facts) -> float:
    _, channels, *spatial = facts.sizes(0)
    groups = integer(facts.call, "groups") if facts.call.op == "nn.group_norm" else channels
    return _standard(facts, channels // max(1, groups) * math.prod(spatial))


def _standard(facts: Facts, terms: int) -> float:
    """No deviation is larger than the root of the sum of all squares, which is that of N times the variance."""
    x, gamma, *rest = facts.bounds
    beta = sum(rest)
    squares = _summed(4 * x * x * terms, terms)
    epsilon = number(facts.call, "epsilon")
    if not (epsilon >= _LEAST_EPSILON and gamma / math.sqrt(epsilon) <= LARGEST):
        return math.inf
    if squares > LARGEST:
        return squares
    return (math.sqrt(terms) * gamma + beta) * (1 + (terms + 32) * _UNIT)


def _batch_norm(facts: Facts) -> float:
    """Of given statistics; in float64 for each channel, where they are constants."""
    digests = [digest for digest in facts.digests[1:] if digest is not None]
    if len(digests) != 4:
        return math.inf
    gamma, beta, mean, variance = map(facts.constants.array, digests)
    epsilon = number(facts.call, "epsilon")
    if not (epsilon >= _LEAST_EPSILON and np.all(variance >= 0)):
        return math.inf
    scale = np.abs(gamma) / np.sqrt(variance + epsilon)
    largest = scale * (facts.bound(0) + np.abs(mean)) + np.abs(beta) + scale
    return float(np.max(largest)) * (1 + 32 * _UNIT)


def _lrn(facts: Facts) -> float:
    size, alpha, beta, bias = (number(facts.call, name) for name in ("size", "alpha", "beta", "bias"))
    squares = bias + max(0.0, alpha) * facts.bound(0) ** 2 * (1 + size * _UNIT)
    if not (alpha >= 0 and beta >= 0 and bias >= 1):
        return math.inf
    return facts.bound(0) * (1 + 64 * _UNIT) if squares <= LARGEST else squares


BOUNDED: Mapping[str, Rule] = {
    **dict.fromkeys(["reshape", "squeeze", "expand_dims", "permute_dims", "concat"], _any),
    **dict.fromkeys(["broadcast_to", "depth_to_space", "roll", "space_to_depth", "split", "stack"], _any),
    **dict.fromkeys(["strided_slice", "tile"], _any),
    **dict.fromkeys(["max", "min", *(f"nn.adaptive_max_pool{rank}d" for rank in (1, 2, 3))], _same),
    "nn.resize": _rounded,
    **dict.fromkeys(["abs", "negative", "nn.relu", *(f"nn.max_pool{rank}d" for rank in (1, 2, 3))], _same),
    **dict.fromkeys(["maximum", "minimum"], _any),
    **dict.fromkeys(["nn.gelu", "nn.swish", "nn.hard_swish", "nn.mish"], _rounded),
    **dict.fromkeys(["sigmoid", "tanh", "nn.softmax", "nn.stepwise_softmax", "nn.softsign", "nn.hard_sigmoid"], _one),
    "exp": _exponential,
    "nn.softplus": _softplus,
    "nn.log_softmax": _log_softmax,
    **dict.fromkeys(["add", "subtract", "nn.bias_add"], _sum),
    **dict.fromkeys(["nn.celu", "nn.elu", "nn.selu"], _elu),
    **dict.fromkeys([f"nn.conv{rank}d" for rank in (1, 2, 3)], _convolution),
    **dict.fromkeys(
        ["mean", *(f"nn.{kind}avg_pool{rank}d" for kind in ("", "adaptive_") for rank in (1, 2, 3))], _mean
    ),
    "dequantize": _dequantised,
    "sum": _total,
    "multiply": _product,
    "divide": _quotient,
    "nn.leaky_relu": _with_slope,
    "clip": _clip,
    "matmul": _matmul,
    "nn.dense": _dense,
    **dict.fromkeys(["nn.layer_norm", "nn.rms_norm"], _row_norm),
    **dict.fromkeys(["nn.group_norm", "nn.instance_norm"], _group_norm),
    **dict.fromkeys([f"nn.conv{rank}d_transpose" for rank in (1, 2, 3)], _deconvolution),
    "nn.prelu": _with_slopes,
    "nn.batch_norm": _batch_norm,
    "nn.lrn": _lrn,
}
"""What is not here may give anything."""


def _is_dot(facts: Facts) -> bool:
    """Whether the second operand is constant weights of a sum of products."""
    return BOUNDED[facts.call.op] in (_convolution, _deconvolution, _matmul, _dense) and facts.digests[1] is not None
