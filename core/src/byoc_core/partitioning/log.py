"""Refusals of ops: collected while backends are asked, read by the report."""

from __future__ import annotations

from dataclasses import dataclass, field

from byoc_core.ir import Binding
from byoc_core.pattern import Rejection

__all__ = ["PartitionLog", "Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A backend's refusal of an op, or of a pattern containing the op.

    Attributes:
        backend: the refusing backend.
        rejection: the reason.
        pattern: the composite pattern's name; empty for the op alone.
        ops: the ops named by the reason, by the names of their first results.
    """

    backend: str
    rejection: Rejection
    pattern: str = ""
    ops: tuple[str, ...] = ()


@dataclass(slots=True)
class PartitionLog:
    """The refusals of a partition run, by function and by the name of the op's first result.

    Attributes:
        handed_over: the backends with a refusal of a whole region in codegen, by the region's ``global_symbol``.
        num_passed_over: the number of ops not searched for near misses of patterns, because the bound was met before.
    """

    handed_over: dict[str, list[str]] = field(default_factory=dict)
    num_passed_over: int = 0
    _refusals: dict[tuple[str, str], list[Refusal]] = field(default_factory=dict)

    def refuse(self, function: str, binding: Binding, refusal: Refusal) -> None:
        """Record a refusal; equal refusals count once."""
        refusals = self._refusals.setdefault((function, binding.results[0].name), [])
        if refusal not in refusals:
            refusals.append(refusal)

    def refuse_region(self, region: str, backend: str) -> None:
        """Record a backend's refusal of a region claimed by the backend."""
        self.handed_over.setdefault(region, []).append(backend)

    def refusals(self, function: str, name: str) -> tuple[Refusal, ...]:
        """Return the refusals of an op, in the order of recording."""
        return tuple(self._refusals.get((function, name), ()))

    def extend(self, other: PartitionLog) -> None:
        """Append the refusals of another log, and add the number of passed-over ops; ``handed_over`` stays."""
        self.num_passed_over += other.num_passed_over
        for key, refusals in other._refusals.items():
            own = self._refusals.setdefault(key, [])
            own += [refusal for refusal in refusals if refusal not in own]
