"""A region as a fixed list of primitives over buffers: what a planner makes and a program runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from byoc_core.runtime.plan_storage import Interval, StoragePlan, plan_once

from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc

__all__ = ["Buffer", "Kind", "Packing", "Place", "Plan", "Step"]


class Kind(Enum):
    """Whose memory a buffer is."""

    ARGUMENT = "argument"
    CONSTANT = "constant"
    PACKED = "packed"
    ARENA = "arena"


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """A piece of memory.

    Attributes:
        kind: whose it is.
        name: for people.
        index: of an argument: its number, inputs then outputs.
        digest: of a constant.
        nbytes: its size.
    """

    kind: Kind
    name: str
    nbytes: int
    index: int = -1
    digest: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """Where a tensor lies: a buffer, and how it lies there."""

    buffer: Buffer
    desc: MemoryDesc

    def seen_as(self, desc: MemoryDesc) -> Place:
        """Gives the same memory under another description."""
        return Place(self.buffer, desc)


@dataclass(frozen=True, slots=True)
class Step:
    """One primitive and its arguments.

    Attributes:
        title: what it computes, for people and messages.
        desc: the primitive.
        arguments: places by the argument's number (``DNNL_ARG_*``).
    """

    title: str
    desc: PrimitiveDesc
    arguments: Mapping[int, Place]

    def __str__(self) -> str:
        places = ", ".join(f"{place.buffer.name}:{place.desc}" for place in self.arguments.values())
        return f"{self.title}  {self.desc.implementation}  {places}"


@dataclass(frozen=True, slots=True)
class Packing:
    """A constant in another layout: made once, when the program is."""

    source: Place
    target: Place
    desc: PrimitiveDesc


@dataclass(frozen=True, slots=True)
class Plan:
    """What runs a region.

    Attributes:
        steps: in the order of execution.
        packings: what is made of constants before.
    """

    steps: Sequence[Step]
    packings: Sequence[Packing]

    @property
    def scratch_nbytes(self) -> int:
        """The largest scratch memory that a step needs."""
        return max((step.desc.scratch_nbytes for step in self.steps), default=0)

    def lay_out(self) -> tuple[Mapping[Buffer, int], StoragePlan]:
        """Gives the number of each buffer of the arena, and where they lie in it."""
        spans: dict[Buffer, list[int]] = {}
        for number, step in enumerate(self.steps):
            for place in step.arguments.values():
                if place.buffer.kind is Kind.ARENA:
                    spans.setdefault(place.buffer, [number, number])[1] = number
        intervals = [Interval(buffer.nbytes, first, last) for buffer, (first, last) in spans.items()]
        return {buffer: number for number, buffer in enumerate(spans)}, plan_once(intervals)

    def __str__(self) -> str:
        lines = [f"pack {p.source.buffer.name}:{p.source.desc} -> {p.target.desc}" for p in self.packings]
        return "\n".join([*lines, *map(str, self.steps)])
