"""Rough cost of a plan: whether more than one thread pays.

:mod:`byoc_dnnl.engine` plans small regions again, for the calling thread alone.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod

from byoc_dnnl.capi import Argument
from byoc_dnnl.plan import AnyStep, Kernel, Plan, Step

__all__ = ["SMALL_NS", "estimate_ns", "is_small"]

SMALL_NS = 30_000
"""Plans below this time run in the calling thread: sleeping workers need some tens of microseconds to wake up, and
awake threads wait for each other at the end of each primitive.
"""

_BYTES_PER_NS = 40
"""Cache bytes read and written by a thread per nanosecond."""

_FLOPS_PER_NS = 100
"""Floating-point operations of a thread per nanosecond in products and convolutions."""

_KERNEL_NS = 0.4
"""Time of a thread for an element of a function of the core."""


def is_small(plan: Plan) -> bool:
    """Return whether the estimated time of a plan with one thread is below :data:`SMALL_NS`."""
    return all(total < SMALL_NS for total in accumulate(map(estimate_ns, plan.steps)))


def estimate_ns(step: AnyStep) -> float:
    """Return the estimated time of a step in a single thread."""
    moved = sum(location.desc.nbytes for location in step.locations) / _BYTES_PER_NS
    if isinstance(step, Kernel):
        return prod(step.source.desc.sizes) * _KERNEL_NS
    return moved + 2 * _multiplications(step) / _FLOPS_PER_NS if isinstance(step, Step) else moved


def _multiplications(step: Step) -> int:
    """Return the number of multiplications by weights; all steps of recurrent layers count, and functions have none."""
    weights, source, target = (step.arguments.get(n) for n in (Argument.WEIGHTS, Argument.SRC, Argument.DST))
    if weights is None or source is None or target is None or len(target.desc.sizes) == 1:
        return 0
    sizes, results = weights.desc.sizes, prod(target.desc.sizes)
    if step.is_recurrent:
        both = prod(sizes) + prod(step.arguments[Argument.WEIGHTS_1].desc.sizes)
        return prod(source.desc.sizes[:2]) * both
    if len(sizes) == len(target.desc.sizes) and (sizes[-2], sizes[-1]) == (
        source.desc.sizes[-1],
        target.desc.sizes[-1],
    ):
        return results * sizes[-2]  # a product of matrices
    return results * prod(sizes) // target.desc.sizes[1]
