"""A region as a fixed list of primitives over buffers: made by a planner, run by a program.

Buffers and locations are equal only to themselves. The arena reuses the memory of a buffer after the last step with the
buffer, so the order of the steps is fixed.

Nothing of a plan is changed after planning. Buffers, locations and steps are no frozen classes all the same: a plan
creates hundreds, and frozen classes take twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod

import numpy as np
from byoc_core.dtypes import to_numpy
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.plan_storage import Interval, StoragePlan, plan_once

from byoc_dnnl.capi import Argument
from byoc_dnnl.derived_constants import Derivation
from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
from byoc_dnnl.reference import numpy_kernel

__all__ = [
    "AnyStep",
    "Buffer",
    "BytePooling",
    "ByteQuantisation",
    "Check",
    "CoreStep",
    "Kernel",
    "Kind",
    "Location",
    "Packing",
    "Plan",
    "Step",
    "WeightProduct",
]


class Kind(Enum):
    """The owner of a buffer's memory."""

    ARGUMENT = "argument"
    CONSTANT = "constant"
    PACKED = "packed"
    ARENA = "arena"


@dataclass(eq=False, slots=True)
class Buffer:
    """A piece of memory.

    Attributes:
        kind: the owner.
        name: for people.
        index: of an argument: its number, inputs then outputs.
        digest: of a constant.
        nbytes: the size.
        derivation: of a constant: the transformation before reading.
    """

    kind: Kind
    name: str
    nbytes: int
    index: int = -1
    digest: str = ""
    derivation: Derivation | None = None

    def read(self, array: NDArray) -> NDArray:
        """Return the form of a constant's array read by a program, row-major."""
        return np.ascontiguousarray(array) if self.derivation is None else self.derivation.apply(array)


@dataclass(eq=False, slots=True)
class Location:
    """The memory of a tensor: a buffer and a layout."""

    buffer: Buffer
    desc: MemoryDesc

    def view_as(self, desc: MemoryDesc) -> Location:
        """Return the same memory under another description."""
        return self if desc is self.desc else Location(self.buffer, desc)

    def __str__(self) -> str:
        return f"{self.buffer.name}:{self.desc}"


@dataclass(eq=False, slots=True)
class Step:
    """A primitive with arguments.

    Attributes:
        title: the computed ops, for people and messages; :mod:`byoc_dnnl.cost` looks for the first op.
        desc: the primitive.
        arguments: locations by the argument's number (``DNNL_ARG_*``).
    """

    title: str
    desc: PrimitiveDesc
    arguments: Mapping[int, Location]

    @property
    def locations(self) -> Collection[Location]:
        """The operands and results."""
        return self.arguments.values()

    @property
    def implementation(self) -> str:
        """The name of the implementation in oneDNN."""
        return self.desc.implementation

    @property
    def is_recurrent(self) -> bool:
        """Whether the step is a recurrent layer, with weights of inputs and of states."""
        return Argument.WEIGHTS_1 in self.arguments

    @property
    def generates_when_run(self) -> bool:
        """Whether oneDNN generates code in the first run: for recurrent layers, and in its own gemm."""
        return self.is_recurrent or any(part.startswith("gemm") for part in self.implementation.split(":"))

    @property
    def scratch_nbytes(self) -> int:
        """The scratch memory of the step."""
        return self.desc.scratch_nbytes

    def __str__(self) -> str:
        return f"{self.title}  {self.implementation}  {', '.join(map(str, self.locations))}"


@dataclass(frozen=True, slots=True)
class Check:
    """A step that ends the run if an element is NaN, or too large for the proof of the following steps.

    The reference kernels then compute the region again from the inputs.

    Attributes:
        title: the computation in need of the check, for people.
        location: the elements: all elements of the description, including zeros of padding.
        limit: the largest permitted magnitude.
    """

    title: str
    location: Location
    limit: float

    @property
    def element_nbytes(self) -> int:
        """The size of an element in bytes."""
        return to_numpy(self.location.desc.dtype).itemsize

    @property
    def limit_bits(self) -> int:
        """The bits of the largest permitted number of the elements' dtype.

        Without the sign, bits of floats have the order of magnitudes, with NaN above all.
        """
        with np.errstate(over="ignore"):
            nearest = np.array(self.limit).astype(to_numpy(self.location.desc.dtype))
        return int(nearest.view(f"u{self.element_nbytes}")) - bool(nearest > self.limit)

    @property
    def locations(self) -> Collection[Location]:
        """The checked location."""
        return (self.location,)

    @property
    def scratch_nbytes(self) -> int:
        """No scratch memory."""
        return 0

    def __str__(self) -> str:
        return f"check for {self.title}  {self.location.buffer.name}:{self.location.desc} within {self.limit:.3g}"


@dataclass(frozen=True, slots=True)
class _OwnKernel:
    """An operation on a tensor without oneDNN.

    Attributes:
        op: the op.
        source: the operand.
        target: the result.
    """

    op: str
    source: Location
    target: Location

    @property
    def title(self) -> str:
        """The computation, for people and messages."""
        return self.op

    @property
    def implementation(self) -> str:
        """A replacement for oneDNN's name of an implementation."""
        return "byoc"

    @property
    def locations(self) -> Collection[Location]:
        """The operand and the result."""
        return (self.source, self.target)

    @property
    def scratch_nbytes(self) -> int:
        """No scratch memory."""
        return 0

    def __str__(self) -> str:
        return f"{self.op}  {self.implementation}  {self.source}, {self.target}"


@dataclass(frozen=True, slots=True)
class Kernel(_OwnKernel):
    """A function of float32 computed by the core, because oneDNN is too inexact.

    The operand has no gaps, and the result has its layout.

    Attributes:
        columns: the elements of a row, contiguous in memory; 0 for a function of each element.
        dtype: the dtype to which each step of the function is rounded.
        zero_unseen: whether a row of minus infinities gives zeros.
    """

    columns: int = 0
    dtype: str = "float32"
    zero_unseen: bool = False

    @property
    def function(self) -> str:
        """The core's name of the function."""
        name = self.op.removeprefix("nn.")
        suffixes = ["" if self.dtype == "float32" else f"_{self.dtype}", "_zero_unseen" if self.zero_unseen else ""]
        return name + "".join(suffixes)

    @property
    def rows(self) -> int:
        """The number of rows; for a function of each element, the number of elements."""
        return prod(self.source.desc.sizes) // max(1, self.columns)

    def compute(self, elements: NDArray) -> NDArray:
        """Compute the function by numpy's kernel, on elements in memory order."""
        if not self.columns:
            return np.asarray(numpy_kernel(self.op)(elements, **({"alpha": 1.0} if self.op == "nn.elu" else {})))
        rows = elements.reshape(-1, self.columns).astype(to_numpy(self.dtype), copy=False)
        attrs = {"zero_unseen": True} if self.zero_unseen else {}
        return np.asarray(numpy_kernel(self.op)(rows, axis=1, **attrs)).astype(np.float32, copy=False).reshape(-1)


@dataclass(frozen=True, slots=True)
class BytePooling(_OwnKernel):
    """The largest byte of each window of images with channels last, by the extension.

    oneDNN 3.2 takes five times as long (``csrc/pool.c``). Images are ``(N, H, W, C)`` in memory, without gaps.

    Attributes:
        images: the number of images.
        channels: the number of channels.
        rows: along the height: size, number of windows, size of a window, stride, dilation, padding in front.
        columns: the same along the width.
    """

    images: int
    channels: int
    rows: tuple[int, int, int, int, int, int]
    columns: tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class ByteQuantisation(_OwnKernel):
    """The bytes of images of a few channels, with channels last, by the extension (``csrc/quantise.c``).

    The floats are ``(N, C, H, W)`` in memory, and the bytes ``(N, H, W, C)``, without gaps.

    Attributes:
        scale: the divisor.
        zero_point: added to the rounded quotients.
    """

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class WeightProduct(_OwnKernel):
    """A product of rows by weights of 4 or 8 bits with scales, by the extension (``csrc/weights.c``).

    Rows, result and weights have no gaps; weights and their parameters are packed in panels
    (:mod:`byoc_dnnl.derived_constants`).

    Attributes:
        words: the packed weights.
        scales: the scales.
        zeros: the zero points; ``None`` if all are 0.
        rows: the number of rows.
        depth: the number of elements of a row.
        columns: the number of columns of the result.
        block_size: steps with a common scale.
        num_bits: the bits of a weight.
        max_lanes: the most floats of a vector.
    """

    words: Location
    scales: Location
    zeros: Location | None
    rows: int
    depth: int
    columns: int
    block_size: int
    num_bits: int
    max_lanes: int

    @property
    def locations(self) -> Collection[Location]:
        """The operand, the weights, their parameters, and the result; the scales stand for missing zero points."""
        return (self.source, self.words, self.scales, self.zeros or self.scales, self.target)


CoreStep = Check | Kernel | BytePooling | ByteQuantisation | WeightProduct
"""A step computed without oneDNN."""

AnyStep = Step | CoreStep
"""A step of a plan."""


@dataclass(frozen=True, slots=True)
class Packing:
    """A constant in another layout, packed once when the program is created."""

    source: Location
    target: Location
    desc: PrimitiveDesc


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a region.

    Attributes:
        steps: in the order of execution.
        packings: constants packed before the first run.
        constants: functions by digest, each returning an array computed from constants.
        ops: returns for each step the computed ops of the offload report, as
            :func:`~byoc_core.runtime.parts.ops_text`; nothing if unknown.
    """

    steps: Sequence[AnyStep]
    packings: Sequence[Packing]
    constants: Mapping[str, Callable[[], NDArray]] = field(default_factory=dict)
    ops: Callable[[], Sequence[str]] = tuple

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """For each step the name and ops of its part of a recorded call; see :mod:`byoc_core.runtime.parts`."""
        ops = self.ops() or [""] * len(self.steps)
        return tuple((str(step), text) for step, text in zip(self.steps, ops, strict=True))

    @property
    def scratch_nbytes(self) -> int:
        """The largest scratch memory of a step."""
        return max((step.scratch_nbytes for step in self.steps), default=0)

    def lay_out(self) -> tuple[Mapping[Buffer, int], StoragePlan]:
        """Return the number of each buffer of the arena, and the offsets in the arena."""
        spans: dict[Buffer, list[int]] = {}
        for number, step in enumerate(self.steps):
            for location in step.locations:
                if location.buffer.kind is Kind.ARENA:
                    spans.setdefault(location.buffer, [number, number])[1] = number
        intervals = [Interval(buffer.nbytes, first, last) for buffer, (first, last) in spans.items()]
        return {buffer: number for number, buffer in enumerate(spans)}, plan_once(intervals)

    def __str__(self) -> str:
        lines = [f"pack {p.source.buffer.name}:{p.source.desc} -> {p.target.desc}" for p in self.packings]
        return "\n".join([*lines, *map(str, self.steps)])
