"""A region as a fixed list of primitives over buffers: what a planner makes and a program runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod

import numpy as np
from byoc_core.dtypes import to_numpy
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.plan_storage import Interval, StoragePlan, plan_once

from byoc_dnnl.capi import Argument
from byoc_dnnl.derived import Derivation
from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
from byoc_dnnl.reference import numpy_kernel

__all__ = ["AnyStep", "Buffer", "Check", "Kernel", "Kind", "Packing", "Place", "Plan", "Step"]


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
        derivation: of a constant: what is made of it before it is read.
    """

    kind: Kind
    name: str
    nbytes: int
    index: int = -1
    digest: str = ""
    derivation: Derivation | None = None

    def read(self, array: NDArray) -> NDArray:
        """Gives what a program reads of a constant's array, row-major."""
        return np.ascontiguousarray(array) if self.derivation is None else self.derivation.apply(array)


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """Where a tensor lies: a buffer, and how it lies there."""

    buffer: Buffer
    desc: MemoryDesc

    def seen_as(self, desc: MemoryDesc) -> Place:
        """Gives the same memory under another description."""
        return Place(self.buffer, desc)

    def __str__(self) -> str:
        return f"{self.buffer.name}:{self.desc}"


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

    @property
    def places(self) -> Collection[Place]:
        """What it reads and writes."""
        return self.arguments.values()

    @property
    def implementation(self) -> str:
        """The name that oneDNN gives to what computes it."""
        return self.desc.implementation

    @property
    def is_recurrent(self) -> bool:
        """Whether it is a recurrent layer: it has weights of inputs and of states."""
        return Argument.WEIGHTS_1 in self.arguments

    @property
    def generates_when_run(self) -> bool:
        """Whether oneDNN generates code when it runs first: for recurrent layers, and what its own gemm does."""
        return self.is_recurrent or any(part.startswith("gemm") for part in self.implementation.split(":"))

    @property
    def scratch_nbytes(self) -> int:
        """The scratch memory that it needs."""
        return self.desc.scratch_nbytes

    def __str__(self) -> str:
        return f"{self.title}  {self.implementation}  {', '.join(map(str, self.places))}"


@dataclass(frozen=True, slots=True)
class Check:
    """Ends the run where an element is NaN, or of a larger magnitude than what follows has been proved right for.

    The region is then computed anew from its inputs, by the reference kernels.

    Attributes:
        title: what needs it, for people.
        place: the elements: all that its description takes, the zeros of padding too.
        limit: the largest magnitude that may go on.
    """

    title: str
    place: Place
    limit: float

    @property
    def element_nbytes(self) -> int:
        """The bytes of an element."""
        return to_numpy(self.place.desc.dtype).itemsize

    @property
    def limit_bits(self) -> int:
        """The bits of the largest number of the elements' dtype that may go on.

        Without the sign, bits of floats are ordered as magnitudes are, those of NaN above all.
        """
        with np.errstate(over="ignore"):
            nearest = np.array(self.limit).astype(to_numpy(self.place.desc.dtype))
        return int(nearest.view(f"u{self.element_nbytes}")) - bool(nearest > self.limit)

    @property
    def places(self) -> Collection[Place]:
        """What it reads."""
        return (self.place,)

    @property
    def scratch_nbytes(self) -> int:
        """None."""
        return 0

    def __str__(self) -> str:
        return f"check for {self.title}  {self.place.buffer.name}:{self.place.desc} within {self.limit:.3g}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of float32 that the core computes, where oneDNN is too inexact.

    Attributes:
        op: the function.
        source: its operand, without gaps.
        target: its result, which lies as the operand does.
        columns: the elements of a row, which lie next to each other; 0 for a function of each element.
        dtype: the dtype that each step of the function is rounded to.
        zero_unseen: whether a row of minus infinities gives zeros.
    """

    op: str
    source: Place
    target: Place
    columns: int = 0
    dtype: str = "float32"
    zero_unseen: bool = False

    @property
    def title(self) -> str:
        """What it computes, for people and messages."""
        return self.op

    @property
    def implementation(self) -> str:
        """In place of oneDNN's name of an implementation."""
        return "byoc"

    @property
    def function(self) -> str:
        """The core's name of it."""
        name = self.op.removeprefix("nn.")
        suffixes = ["" if self.dtype == "float32" else f"_{self.dtype}", "_zero_unseen" if self.zero_unseen else ""]
        return name + "".join(suffixes)

    @property
    def rows(self) -> int:
        """How many rows there are; how many elements, of a function of each."""
        return prod(self.source.desc.sizes) // max(1, self.columns)

    @property
    def places(self) -> Collection[Place]:
        """What it reads and writes."""
        return (self.source, self.target)

    @property
    def scratch_nbytes(self) -> int:
        """None."""
        return 0

    def compute(self, elements: NDArray) -> NDArray:
        """Computes it by numpy's kernel, of its elements in their order in memory."""
        if not self.columns:
            return np.asarray(numpy_kernel(self.op)(elements, **({"alpha": 1.0} if self.op == "nn.elu" else {})))
        rows = elements.reshape(-1, self.columns).astype(to_numpy(self.dtype), copy=False)
        attrs = {"zero_unseen": True} if self.zero_unseen else {}
        return np.asarray(numpy_kernel(self.op)(rows, axis=1, **attrs)).astype(np.float32, copy=False).reshape(-1)

    def __str__(self) -> str:
        return f"{self.op}  {self.implementation}  {self.source}, {self.target}"


AnyStep = Step | Check | Kernel
"""What a plan does at a time."""


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
        constants: arrays by digest that were computed from constants while the plan was made.
    """

    steps: Sequence[AnyStep]
    packings: Sequence[Packing]
    constants: Mapping[str, NDArray] = field(default_factory=dict)

    @property
    def scratch_nbytes(self) -> int:
        """The largest scratch memory that a step needs."""
        return max((step.scratch_nbytes for step in self.steps), default=0)

    def lay_out(self) -> tuple[Mapping[Buffer, int], StoragePlan]:
        """Gives the number of each buffer of the arena, and where they lie in it."""
        spans: dict[Buffer, list[int]] = {}
        for number, step in enumerate(self.steps):
            for place in step.places:
                if place.buffer.kind is Kind.ARENA:
                    spans.setdefault(place.buffer, [number, number])[1] = number
        intervals = [Interval(buffer.nbytes, first, last) for buffer, (first, last) in spans.items()]
        return {buffer: number for number, buffer in enumerate(spans)}, plan_once(intervals)

    def __str__(self) -> str:
        lines = [f"pack {p.source.buffer.name}:{p.source.desc} -> {p.target.desc}" for p in self.packings]
        return "\n".join([*lines, *map(str, self.steps)])
