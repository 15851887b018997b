"""The result of profiling: times of regions and their parts in a call of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from byoc_core.profiling.peaks import Peaks

if TYPE_CHECKING:
    from byoc_core.profiling.program_work import InstructionWork
    from byoc_core.profiling.recording import CallRecord

__all__ = ["OpName", "PartProfile", "Profile", "RegionProfile"]


@dataclass(frozen=True, slots=True)
class OpName:
    """An op of the model.

    Attributes:
        op: the op, such as ``nn.conv2d``.
        value: the name of the computed value.
        location: the origin, such as a node of an ONNX file; empty if unknown.
    """

    op: str
    value: str
    location: str = ""


@dataclass(frozen=True, slots=True)
class PartProfile:
    """A part of a region: a kernel of generated C, a step of a library, an op of the host.

    Attributes:
        name: the backend's name of the part.
        ops: the ops of the model computed by the part; none for conversions added by the backend.
        calls: runs of the part in a call of the model.
        seconds: in a call of the model.
        flops: operations of the ops in a call of the model; 0 if unknown.
        nbytes: bytes of the ops' operands and results in a call of the model, without values passed from op to op
            inside the part; 0 if unknown.
    """

    name: str
    ops: tuple[OpName, ...]
    calls: float
    seconds: float
    flops: float = 0
    nbytes: float = 0


@dataclass(frozen=True, slots=True)
class RegionProfile:
    """A region, or the copies between regions of a function.

    Attributes:
        name: the name of the region in the offload report; ``"copies of FUNCTION"`` for copies.
        backend: the backend of the region; ``"vm"`` for copies and for work of the machine.
        calls: calls of the region in a call of the model; for copies, the number of copies.
        seconds: in a call of the model.
        flops: operations of the region's ops in a call of the model; 0 if unknown.
        nbytes: bytes of the region's inputs and outputs in a call of the model, without constants; 0 if unknown.
        parts: in the order of execution; empty if the backend reports no parts.
    """

    name: str
    backend: str
    calls: float
    seconds: float
    flops: float = 0
    nbytes: float = 0
    parts: tuple[PartProfile, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """The times of a call of a model: means over the faster half of the measured calls.

    Attributes:
        function: the called function.
        sizes: the sizes of the inputs' symbols.
        num_threads: the number of threads of a call.
        num_calls: the number of measured calls.
        seconds: a call, from the machine's entry to the results.
        regions: in the order of execution.
        peaks: the limits of the machine; ``None`` if not measured.
        report: the offload report of the model, as JSON values.
        records: the latest calls, for traces.
        instructions: the region of each instruction in the records, by function and number.
    """

    function: str
    sizes: Mapping[str, int]
    num_threads: int
    num_calls: int
    seconds: float
    regions: tuple[RegionProfile, ...]
    peaks: Peaks | None = None
    report: Mapping[str, Any] = field(default_factory=dict, repr=False)
    records: tuple[CallRecord, ...] = field(default=(), repr=False)
    instructions: Mapping[tuple[str, int], InstructionWork] = field(default_factory=dict, repr=False)

    @property
    def machine_seconds(self) -> float:
        """The seconds of a call outside of regions and copies: checks of arguments, jumps, and the measurement."""
        return self.seconds - sum(region.seconds for region in self.regions)

    def roofline(self, item: RegionProfile | PartProfile) -> float | None:
        """Return the least possible seconds of a region or part over its seconds: 1 at the limit of the machine.

        ``None`` if limits or work are unknown. Values above 1 are possible: caches supply more bytes than the memory,
        and an algorithm such as Winograd's needs fewer operations than the definition of the op.
        """
        if self.peaks is None or not item.seconds or not (item.flops or item.nbytes):
            return None
        return self.peaks.fastest_seconds(item.flops, item.nbytes) / item.seconds

    def to_data(self) -> dict[str, Any]:
        """Return the profile as plain JSON values; times in seconds."""

        def plain(item: RegionProfile | PartProfile) -> dict[str, Any]:
            data: dict[str, Any] = {"name": item.name, "calls": item.calls, "seconds": item.seconds}
            return data | {"flops": item.flops, "nbytes": item.nbytes, "roofline": self.roofline(item)}

        def plain_part(part: PartProfile) -> dict[str, Any]:
            ops = [{"op": op.op, "name": op.value, "location": op.location} for op in part.ops]
            return {**plain(part), "ops": ops}

        return {
            "schema": 1,
            "function": self.function,
            "sizes": dict(self.sizes),
            "num_threads": self.num_threads,
            "num_calls": self.num_calls,
            "seconds": self.seconds,
            "machine_seconds": self.machine_seconds,
            "peaks": None if self.peaks is None else {"flops": self.peaks.flops, "bandwidth": self.peaks.bandwidth},
            "regions": [
                {**plain(region), "backend": region.backend, "parts": [plain_part(part) for part in region.parts]}
                for region in self.regions
            ],
        }

    def to_trace(self) -> dict[str, Any]:
        """Return the latest calls as JSON values in the Trace Event Format, for Perfetto and Chrome."""
        from byoc_core.profiling.trace import make_trace

        return make_trace(self)

    def to_html(self, title: str = "Profile") -> str:
        """Return a self-contained page: tables, and the graph of the model coloured by backend and time."""
        from byoc_core.profiling.page import render_profile_page

        return render_profile_page(self, title)

    def __str__(self) -> str:
        from byoc_core.profiling.text import render_profile

        return render_profile(self)
