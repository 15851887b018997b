"""What a plan costs, roughly: whether it is worth more than one thread, and whether others may do better."""

from __future__ import annotations

from math import prod

from byoc_dnnl.capi import Argument
from byoc_dnnl.plan import AnyStep, Kernel, Plan, Step

__all__ = ["is_small", "slowdown"]

SMALL_NS = 30_000
"""What takes less runs in the calling thread: workers that sleep are awake after some tens of microseconds, and threads
that are awake wait for each other at the end of each primitive."""

_BYTES_PER_NS = 40
"""What one thread reads and writes of its cache."""

_FLOPS_PER_NS = 100
"""What one thread computes in products and convolutions."""

_KERNEL_NS = 0.4
"""What one thread takes for an element of a function of the core."""


_SLOW = (("nn.conv", "gemm", 2.0), ("concat", "simple", 1.5))
"""What oneDNN has no good implementation for, by the beginning of the title and a part of the name, with how many times
as long that takes: convolutions beside those that are no general products of matrices, concatenation beside functions
of as many elements (medians; ``docs/notes/convolutional-networks.md``)."""


def slowdown(plan: Plan) -> float:
    """Gives how many times as long it takes as with the best implementations that there are; 1 where oneDNN's are."""
    found = (
        times
        for step in plan.steps
        for title, name, times in _SLOW
        if isinstance(step, Step) and step.title.startswith(title) and name in step.implementation
    )
    return max(found, default=1.0)


def is_small(plan: Plan) -> bool:
    """Whether one thread is estimated to compute it in less than :data:`SMALL_NS`."""
    return sum(map(_estimate_ns, plan.steps)) < SMALL_NS


def _estimate_ns(step: AnyStep) -> float:
    moved = sum(place.desc.nbytes for place in step.places) / _BYTES_PER_NS
    if isinstance(step, Kernel):
        return prod(step.source.desc.sizes) * _KERNEL_NS
    return moved + 2 * _multiplications(step) / _FLOPS_PER_NS if isinstance(step, Step) else moved


def _multiplications(step: Step) -> int:
    """Gives how many numbers are multiplied by weights; of recurrent layers for all steps, of functions none."""
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
