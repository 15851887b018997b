"""The planned memory of a function: buffers with live ranges and offsets in the arena.

The map is computed from the code alone, for programs from files too. A new plan of the buffers is lawful if buffers
with intersecting live ranges share no bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

from byoc_core.dims import Dim, evaluate, exact_div, shape_symbols
from byoc_core.errors import CallError, IRTypeError
from byoc_core.runtime.place_laws import find_overlap
from byoc_core.runtime.plan_storage import Interval, peak_nbytes
from byoc_core.vm.disassemble import callee_name
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.liveness import TensorLiveness, read_registers
from byoc_core.vm.program import ALIGNMENT, HOST, Program, VMFunction, nbytes_of
from byoc_core.vm.verify import verify

__all__ = ["MemoryBuffer", "MemoryMap", "Purpose", "memory_map"]


class Purpose(Enum):
    """The purpose of a buffer; the value is the name in tables."""

    INTERMEDIATE = "intermediate"
    """A value between calls."""
    WORKSPACE = "workspace"
    """Scratch memory of a single call, passed behind the outputs."""


@dataclass(frozen=True, slots=True)
class MemoryBuffer:
    """A part of the arena holding a planned tensor with its views, or several tensors with shared bytes.

    Attributes:
        name: the planned tensors, such as ``t3``, or ``t3+t4`` for shared bytes.
        nbytes: the size.
        first: the first instruction with the buffer in use.
        last: the last instruction with the buffer in use, or with a value needed later.
        offset: bytes from the start of the arena, a multiple of the alignment.
        registers: the planned tensors of the buffer, then the views of these tensors.
        relative_offsets: bytes from the start of the buffer to the first byte of each register.
        purpose: the purpose.
        writer: the callee of the first call writing the buffer; empty if no call writes the buffer.
    """

    name: str
    nbytes: Dim
    first: int
    last: int
    offset: Dim
    registers: tuple[int, ...]
    relative_offsets: tuple[Dim, ...]
    purpose: Purpose
    writer: str


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """The buffers of a function.

    Attributes:
        function: the name of the function.
        buffers: in the order of the planned tensors.
        arena_nbytes: bytes of the arena.
        num_instructions: the instructions of the function.
        alignment: the alignment in bytes of the arena and of the offsets of buffers.
        domain: the name of the memory domain.
        pool: the name of the pool of the domain; empty for memory without stated pools.
        limit_nbytes: the limit of the pool; ``None`` without a limit.
    """

    function: str
    buffers: tuple[MemoryBuffer, ...]
    arena_nbytes: Dim
    num_instructions: int
    alignment: int = ALIGNMENT
    domain: str = "host"
    pool: str = ""
    limit_nbytes: int | None = None

    @property
    def is_symbolic(self) -> bool:
        """Whether sizes or offsets depend on symbols."""
        return self.intervals is None or not isinstance(self.arena_nbytes, int)

    @property
    def intervals(self) -> tuple[Interval, ...] | None:
        """The buffers as the input of :func:`~byoc_core.runtime.plan_storage.plan`; ``None`` with symbolic sizes."""
        sizes = [buffer.nbytes for buffer in self.buffers if isinstance(buffer.nbytes, int)]
        if len(sizes) < len(self.buffers):
            return None
        return tuple(
            Interval(nbytes, buffer.first, buffer.last) for nbytes, buffer in zip(sizes, self.buffers, strict=True)
        )

    @property
    def peak_nbytes(self) -> int | None:
        """The peak of live bytes, a lower bound of each arena of these buffers; ``None`` with symbolic sizes."""
        return None if self.intervals is None else peak_nbytes(self.intervals)

    @property
    def total_nbytes(self) -> Dim:
        """The sum of all buffers: the arena without reuse."""
        return sum((buffer.nbytes for buffer in self.buffers), 0)

    def find_overlap(self) -> tuple[str, str] | None:
        """Return the names of two buffers live at the same time with common bytes; ``None`` without such two.

        Raises:
            CallError: sizes are symbolic.
        """
        offsets = [buffer.offset for buffer in self.buffers if isinstance(buffer.offset, int)]
        if self.intervals is None or len(offsets) < len(self.buffers):
            dims = [dim for buffer in self.buffers for dim in (buffer.nbytes, buffer.offset)]
            raise _missing_sizes(self.function, shape_symbols(dims))
        found = find_overlap(self.intervals, offsets)
        return None if found is None else (self.buffers[found[0]].name, self.buffers[found[1]].name)

    def live_nbytes(self) -> tuple[int, ...]:
        """Return the live bytes at each instruction.

        Raises:
            CallError: sizes are symbolic.
        """
        if self.intervals is None:
            raise _missing_sizes(self.function, shape_symbols([buffer.nbytes for buffer in self.buffers]))
        changes = [0] * (self.num_instructions + 1)
        for nbytes, first, last in ((i.nbytes, i.start, i.end) for i in self.intervals):
            changes[first] += nbytes
            changes[last + 1] -= nbytes
        return tuple(accumulate(changes[:-1]))


def memory_map(
    program: Program,
    function: VMFunction,
    sizes: Mapping[str, int] | None = None,
    domain: int = HOST,
    pool: int = 0,
) -> MemoryMap:
    """Return the buffers of a function of a program in a domain, or in a pool of the domain.

    A tensor and its views are a buffer: calls in place write a view, or the same tensor again. Tensors with shared
    bytes and intersecting live ranges are a buffer too. A live range reaches from the first to the last instruction
    with the buffer in use; a value live around the back edge of a loop is live in the whole loop. A tensor without a
    use in reachable code is live at instruction 0.

    Args:
        program: the program with the function.
        function: a function of the program.
        sizes: the sizes of the inputs' symbols; ``None`` leaves symbolic sizes as symbols.
        domain: the number of the domain.
        pool: the index of the pool among the pools of the domain; 0 for a domain without stated pools.

    Raises:
        ProgramError: the program breaks a law.
        CallError: a size is missing, or comes out negative.

    Cost: the cost of verifying the function.
    """
    verify(program)
    ranges = TensorLiveness(program, function, Footprints(program, function)).live_ranges()
    groups = [
        group
        for group in _join_tensors(function, [ranges.get(index, (0, 0)) for index in range(len(function.tensors))])
        if function.domain_of(function.first_tensor + group.tensors[0]) == domain
        and function.pool_of(group.storage) == pool
    ]
    alignment, memory = program.alignment_in(domain, pool), program.pool(domain, pool)
    starts, arena_nbytes = _lay_out(function, domain, pool, alignment)
    workspaces = _find_workspaces(function)
    writers = _find_writers(program, function)
    views: dict[int, list[int]] = {}
    for number, view in enumerate(function.views, start=function.first_view):
        views.setdefault(view.base, []).append(number)
    buffers = tuple(_new_buffer(function, group, starts, views, workspaces, writers) for group in groups)
    name = program.domain_name(domain)
    found = MemoryMap(function.name, buffers, arena_nbytes, len(function.code), alignment, name)
    if memory is not None:
        found = replace(found, pool=memory.name, limit_nbytes=memory.nbytes)
    return found if sizes is None else _at_sizes(found, sizes)


@dataclass(slots=True, eq=False)
class _Group:
    """Tensors with shared bytes: the storage, the byte range in the storage, and the live range.

    Attributes:
        stop: ``None`` for the end of the storage: a symbolic size may have any value up to this end.
    """

    tensors: list[int]
    storage: int
    start: int
    stop: int | None
    first: int
    last: int

    def overlaps(self, other: _Group) -> bool:
        """Return whether two groups share bytes at an instruction."""
        return (
            self.storage == other.storage
            and self.first <= other.last
            and other.first <= self.last
            and (other.stop is None or self.start < other.stop)
            and (self.stop is None or other.start < self.stop)
            and self.start != self.stop
            and other.start != other.stop
        )

    def merge(self, other: _Group) -> None:
        """Add the tensors of another group."""
        self.tensors = sorted([*self.tensors, *other.tensors])
        self.start = min(self.start, other.start)
        self.stop = None if self.stop is None or other.stop is None else max(self.stop, other.stop)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)


def _join_tensors(function: VMFunction, ranges: Sequence[tuple[int, int]]) -> list[_Group]:
    """Return groups of tensors; groups with intersecting live ranges share no bytes."""
    ended: list[_Group] = []
    live: list[_Group] = []
    for index in sorted(range(len(ranges)), key=ranges.__getitem__):
        tensor, (first, last) = function.tensors[index], ranges[index]
        ended += [other for other in live if other.last < first]
        live = [other for other in live if other.last >= first]
        nbytes = nbytes_of(tensor.shape, tensor.dtype)
        stop = tensor.offset + nbytes if isinstance(nbytes, int) else None
        group = _Group([index], tensor.storage, tensor.offset, stop, first, last)
        overlapping = [other for other in live if group.overlaps(other)]
        while overlapping:
            for other in overlapping:
                group.merge(other)
            live = [other for other in live if other not in overlapping]
            ended = [other for other in ended if other not in overlapping]
            # A merged group is larger, and may overlap further groups.
            overlapping = [other for other in (*ended, *live) if group.overlaps(other)]
        live.append(group)
    return sorted((*ended, *live), key=lambda group: group.tensors)


def _lay_out(function: VMFunction, domain: int, pool: int, alignment: int) -> tuple[list[Dim], Dim]:
    """Return the start of each storage in the arena of a pool, and the bytes of the arena without padding at the end.

    Storages of other domains and pools take no bytes.
    """
    starts: list[Dim] = []
    start: Dim = 0
    end: Dim = 0
    for index, (nbytes, found) in enumerate(zip(function.storages, function.storage_domains, strict=True)):
        starts.append(start)
        if found != domain or function.pool_of(index) != pool:
            continue
        end = start + nbytes
        is_aligned = exact_div(nbytes, alignment) is not None
        start = end if is_aligned else start + (nbytes + (alignment - 1)) // alignment * alignment
    return starts, end


def _new_buffer(
    function: VMFunction,
    group: _Group,
    starts: Sequence[Dim],
    views: Mapping[int, Sequence[int]],
    workspaces: frozenset[int],
    writers: Mapping[int, tuple[int, str]],
) -> MemoryBuffer:
    first_tensor = function.first_tensor
    offsets: dict[int, Dim] = {first_tensor + n: function.tensors[n].offset - group.start for n in group.tensors}
    for base, base_offset in tuple(offsets.items()):
        for number in views.get(base, ()):
            offsets[number] = base_offset + function.views[number - function.first_view].offset
    nbytes: Dim
    if group.stop is not None:
        nbytes = group.stop - group.start
    elif len(group.tensors) == 1:
        tensor = function.tensors[group.tensors[0]]
        nbytes = nbytes_of(tensor.shape, tensor.dtype)
    else:
        nbytes = function.storages[group.storage] - group.start
    return MemoryBuffer(
        "+".join(f"t{index}" for index in group.tensors),
        nbytes,
        group.first,
        group.last,
        starts[group.storage] + group.start,
        tuple(offsets),
        tuple(offsets.values()),
        Purpose.WORKSPACE if workspaces.issuperset(offsets) else Purpose.INTERMEDIATE,
        min((writers[number] for number in offsets if number in writers), default=(0, ""))[1],
    )


def _find_workspaces(function: VMFunction) -> frozenset[int]:
    """Return the registers with scratch memory: bytes in a single axis, only ever the last result of an extern.

    A program does not mark workspaces, but no instruction reads a workspace.
    """
    found: set[int] = set()
    excluded: set[int] = {view.base for view in function.views}
    for instruction in function.code:
        match instruction:
            case Call(kind=CallKind.EXTERN, args=args, results=(*results, last)) if results:
                excluded.update(args, results)
                found.add(last)
            case Call(args=args, results=results):
                excluded.update(args, results)
            case _:
                excluded.update(read_registers(instruction))
    tensors = enumerate(function.tensors, start=function.first_tensor)
    is_bytes = {number for number, tensor in tensors if tensor.dtype == "uint8" and len(tensor.shape) == 1}
    return frozenset((found - excluded) & is_bytes)


def _find_writers(program: Program, function: VMFunction) -> dict[int, tuple[int, str]]:
    """Return instruction and callee of the first call writing each register."""
    writers: dict[int, tuple[int, str]] = {}
    for index, instruction in enumerate(function.code):
        if isinstance(instruction, Call):
            for number in instruction.results:
                writers.setdefault(number, (index, callee_name(program, instruction)))
    return writers


def _at_sizes(found: MemoryMap, sizes: Mapping[str, int]) -> MemoryMap:
    """Return the map for sizes of symbols.

    Raises:
        CallError: a size is missing, or comes out negative.
    """
    dims = [found.arena_nbytes]
    for buffer in found.buffers:
        dims += [buffer.nbytes, buffer.offset, *buffer.relative_offsets]
    missing = shape_symbols(dims) - sizes.keys()
    if missing:
        raise _missing_sizes(found.function, missing)

    def at_sizes(dim: Dim) -> int:
        where = f"function `{found.function}`"
        try:
            size = evaluate(dim, sizes)
        except IRTypeError as error:
            raise CallError(where, f"size {dim} cannot be computed: {error.problem}") from error
        if size < 0:
            raise CallError(where, f"size {dim} is negative", got=size)
        return size

    buffers = tuple(
        replace(
            buffer,
            nbytes=at_sizes(buffer.nbytes),
            offset=at_sizes(buffer.offset),
            relative_offsets=tuple(map(at_sizes, buffer.relative_offsets)),
        )
        for buffer in found.buffers
    )
    return replace(found, buffers=buffers, arena_nbytes=at_sizes(found.arena_nbytes))


def _missing_sizes(function: str, names: Iterable[str]) -> CallError:
    ordered = sorted(names)
    return CallError(
        f"function `{function}`",
        "the memory depends on symbolic sizes without a value",
        got="no value of " + ", ".join(ordered),
        expected="a size for each symbol",
    )
