"""Why an op was not taken: collected while backends are asked, read by the report."""

from __future__ import annotations

from dataclasses import dataclass, field

from byoc_core.ir import Binding
from byoc_core.pattern import Rejection

__all__ = ["PartitionLog", "Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One backend's no to one op, or to one pattern that it is part of.

    Attributes:
        backend: who said no.
        rejection: why.
        pattern: the composite pattern's name; empty for the op alone.
        ops: the ops that the reason speaks of, by the names of their first results.
    """

    backend: str
    rejection: Rejection
    pattern: str = ""
    ops: tuple[str, ...] = ()


@dataclass(slots=True)
class PartitionLog:
    """The refusals of one partition run, by function and by the name of the op's first result.

    Attributes:
        handed_over: the backends that refused a whole region in codegen, by the region's ``global_symbol``.
        num_passed_over: how many ops were not searched for near misses of patterns, since the bound was met before.
    """

    handed_over: dict[str, list[str]] = field(default_factory=dict)
    num_passed_over: int = 0
    _refusals: dict[tuple[str, str], list[Refusal]] = field(default_factory=dict)

    def refuse(self, function: str, binding: Binding, refusal: Refusal) -> None:
        """Records a refusal; the same one twice counts once."""
        refusals = self._refusals.setdefault((function, binding.results[0].name), [])
        if refusal not in refusals:
            refusals.append(refusal)

    def refuse_region(self, region: str, backend: str) -> None:
        """Records that a backend refused a region that it had claimed."""
        self.handed_over.setdefault(region, []).append(backend)

    def refusals(self, function: str, name: str) -> tuple[Refusal, ...]:
        """Gives the refusals of an op, in the order they came."""
        return tuple(self._refusals.get((function, name), ()))

    def extend(self, other: PartitionLog) -> None:
        """Adds what another log holds, behind what is there."""
        self.num_passed_over += other.num_passed_over
        for key, refusals in other._refusals.items():
            own = self._refusals.setdefault(key, [])
            own += [refusal for refusal in refusals if refusal not in own]
