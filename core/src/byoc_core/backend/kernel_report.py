"""The kernels that a backend generates, as it tells them to people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from byoc_core.dims import Dim

__all__ = ["KernelReport", "SharedLoop"]


@dataclass(frozen=True, slots=True)
class SharedLoop:
    """A loop of a kernel that several threads share where its work is worth it.

    Attributes:
        rounds: the number of rounds.
        grain: parts begin at multiples of so many rounds.
        ps: estimated picoseconds of all rounds on one thread.
    """

    rounds: Dim
    grain: Dim
    ps: Dim

    def to_data(self) -> dict[str, Any]:
        """Return the loop as JSON; symbolic sizes are expressions in text."""
        return {"rounds": _number(self.rounds), "grain": _number(self.grain), "ps": _number(self.ps)}


@dataclass(frozen=True, slots=True)
class KernelReport:
    """A kernel that a backend generated.

    Attributes:
        name: the name in the source; no other kernel of the backend has it.
        function: the ``global_symbol`` of the function that runs the kernel.
        source: the kernel's text, in whatever language.
        ops: the names of the ops that it computes, in order.
        results: the names of the values that it computes.
        loops: an outline of its loops, a line each, two blanks deeper inside another; ``None`` where the backend knows
            the kernel as text only.
        shared_loops: the loops that several threads may share.
        flops: estimated floating-point operations of a call; ``None`` where the backend makes no estimate.
        nbytes: estimated bytes that loads and stores touch, each time again.
        ps: estimated picoseconds on one thread.
        schedule: the choices of how the kernel computes, by name: tile sizes, packing and the like.
    """

    name: str
    function: str
    source: str
    ops: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    loops: tuple[str, ...] | None = None
    shared_loops: tuple[SharedLoop, ...] = ()
    flops: Dim | None = None
    nbytes: Dim | None = None
    ps: Dim | None = None
    schedule: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def to_data(self) -> dict[str, Any]:
        """Return the kernel as JSON; numbers that depend on symbolic sizes are expressions in text."""
        return {
            "name": self.name,
            "function": self.function,
            "ops": list(self.ops),
            "results": list(self.results),
            "loops": None if self.loops is None else list(self.loops),
            "shared_loops": [loop.to_data() for loop in self.shared_loops],
            **{name: _number(getattr(self, name)) for name in ("flops", "nbytes", "ps")},
            "schedule": dict(self.schedule),
            "source": self.source,
        }


def _number(dim: Dim | None) -> int | str | None:
    return dim if dim is None or isinstance(dim, int) else str(dim)
