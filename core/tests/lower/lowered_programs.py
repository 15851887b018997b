"""Random lowered functions as data, with an interpreter over poisoned memory.

A program reads the parameters ``x`` and ``y`` and writes two outputs of the same sizes; further buffers are
intermediates. :func:`unrolled` replaces loops by their rounds and symbols by numbers: without loops and symbols, the
laws of lowered functions are decided exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from byoc_core.backend.lowered_buffers import Buffer, BufferPart
from byoc_core.backend.lowering import LoweringBuilder
from byoc_core.dims import Dim, evaluate, substitute, symbol
from byoc_core.ir import tensor
from byoc_core.runtime.module import NDArray

__all__ = ["Part", "Program", "Statement", "add_to", "interpret", "random_program", "text_of", "unrolled"]

INPUTS, OUTPUTS = 2, 2
N = symbol("n")


@dataclass(frozen=True)
class Part:
    """Elements of a buffer, given by the buffer's number."""

    buffer: int
    offset: Dim
    size: Dim

    def at(self, sizes: Mapping[str, Dim]) -> Part:
        """Return the part with numbers in place of symbols."""
        return Part(self.buffer, substitute(self.offset, sizes), substitute(self.size, sizes))


@dataclass(frozen=True)
class Statement:
    """A call, a copy or a loop.

    Attributes:
        kind: ``fill``, ``scale``, ``add``, ``accumulate``, ``copy`` or ``loop``.
        parts: read parts, then the changed part.
        extent: the rounds of a loop.
        body: the statements of a round; the index is the symbol ``i<depth>``.
        depth: the number of surrounding loops.
        value: the constant of ``fill``, the factor of ``scale``.
    """

    kind: str
    parts: tuple[Part, ...] = ()
    extent: Dim = 0
    body: tuple[Statement, ...] = ()
    depth: int = 0
    value: float = 0.5


@dataclass(frozen=True)
class Program:
    """Buffers by size: two inputs, two outputs, intermediates; and statements."""

    sizes: tuple[Dim, ...]
    statements: tuple[Statement, ...]


def text_of(program: Program, name: str) -> str:
    """Return the function to lower as text."""
    x, y = program.sizes[:INPUTS]
    return (
        f'def {name}(x: R.Tensor(("{x}",)), y: R.Tensor(("{y}",))):\n'
        "    o = R.nn.relu(x)\n    p = R.nn.relu(y)\n    return o, p\n"
    )


def random_program(random: Random, *, is_symbolic: bool) -> Program:
    """Return a program; most programs are lawful."""
    choices: list[Dim] = [N, 2 * N, N + 2, 4] if is_symbolic else [0, 1, 2, 4, 6]
    own = [random.choice(choices) for _ in range(2)]
    sizes = (*own, *own, *(random.choice(choices) for _ in range(random.randrange(3))))
    return Program(sizes, tuple(_Drawing(random, sizes).statements()))


class _Drawing:
    def __init__(self, random: Random, sizes: Sequence[Dim]) -> None:
        self._random = random
        self._sizes = sizes
        self._written: set[int] = set()

    def statements(self) -> Iterator[Statement]:
        order = list(range(INPUTS, len(self._sizes)))
        self._random.shuffle(order)
        for buffer in order if self._random.random() < 0.9 else order[1:]:
            yield from self._complete(buffer)
            self._written.add(buffer)
            for _ in range(self._random.randrange(3)):
                yield self._statement(0, [])

    def _complete(self, buffer: int) -> Iterator[Statement]:
        """Write a buffer as a whole, in two parts or in a loop."""
        size = self._sizes[buffer]
        way = self._random.randrange(4)
        if way == 0 and isinstance(size, int) and size:
            cut = self._random.randrange(size + 1)
            spans: list[tuple[Dim, Dim]] = [(0, cut), (cut, size - cut)]
            self._random.shuffle(spans)
            for start, length in spans:
                yield Statement("fill", (Part(buffer, start, length),))
        elif way == 1:
            offset = symbol("i0") if self._random.random() < 0.6 else size - 1 - symbol("i0")
            yield Statement("loop", extent=size, body=(Statement("fill", (Part(buffer, offset, 1),), depth=1),))
        else:
            yield Statement("fill", (Part(buffer, 0, size),))

    def _statement(self, depth: int, extents: Sequence[Dim]) -> Statement:
        random = self._random
        if depth < 2 and random.random() < 0.25:
            extent = random.choice([1, 2, 3, *(size for size in self._sizes)])
            inner = [self._statement(depth + 1, [*extents, extent]) for _ in range(random.randrange(1, 3))]
            return Statement("loop", extent=extent, body=tuple(inner), depth=depth)
        kind = random.choice(["fill", "scale", "add", "accumulate", "copy"])
        readable = [*range(INPUTS), *self._written]
        target = random.choice([*self._written, random.randrange(INPUTS, len(self._sizes))])
        part = self._part(target, extents)
        num_reads = {"fill": 0, "add": 2}.get(kind, 1)
        reads = [self._part(random.choice(readable), extents) for _ in range(num_reads)]
        reads = [replace(read, size=part.size) for read in reads]
        if random.random() < 0.4:
            reads = [replace(read, offset=part.offset) for read in reads]
        return Statement(kind, (*reads, part), depth=depth, value=random.choice([-1.5, 0.5, 2.0]))

    def _part(self, buffer: int, extents: Sequence[Dim]) -> Part:
        random, size = self._random, self._sizes[buffer]
        if extents and random.random() < 0.7:
            step, length = random.choice([(1, 1), (1, 1), (2, 2), (1, 2), (2, 1)])
            return Part(buffer, step * symbol(f"i{random.randrange(len(extents))}"), length)
        if random.random() < 0.6:
            return Part(buffer, 0, size)
        spans: list[tuple[Dim, Dim]] = [(0, 1), (1, 1), (0, 2), (1, size - 1), (0, size - 1), (2, 0)]
        return Part(buffer, *random.choice(spans))


def unrolled(program: Program, n: int) -> Program:
    """Return the program for a size, without loops."""

    def rounds(statements: Sequence[Statement], sizes: Mapping[str, Dim]) -> Iterator[Statement]:
        for statement in statements:
            if statement.kind == "loop":
                for index in range(evaluate(substitute(statement.extent, sizes), {})):
                    yield from rounds(statement.body, {**sizes, f"i{statement.depth}": index})
            else:
                yield replace(statement, parts=tuple(part.at(sizes) for part in statement.parts))

    numbers = {"n": n}
    return Program(
        tuple(substitute(size, numbers) for size in program.sizes), tuple(rounds(program.statements, numbers))
    )


def interpret(program: Program, x: NDArray, y: NDArray) -> tuple[NDArray, NDArray] | str:
    """Return the outputs of an unrolled program, or the first broken law."""
    sizes = [int(size) for size in program.sizes]  # type: ignore[arg-type]
    memory = [np.full(size, np.nan, np.float32) for size in sizes]
    is_defined = [np.full(size, buffer < INPUTS) for buffer, size in enumerate(sizes)]
    memory[:INPUTS] = [x.copy(), y.copy()]
    for statement in program.statements:
        spans = [(part.buffer, int(part.offset), int(part.size)) for part in statement.parts]  # type: ignore[arg-type]
        for buffer, start, size in spans:
            if start < 0 or size < 0 or start + size > sizes[buffer]:
                return "outside"
        *reads, (target, first, length) = spans
        touched = [set(range(start, start + size)) for buffer, start, size in reads if buffer == target]
        if any(elements & set(range(first, first + length)) for elements in touched):
            return "overlap"
        checked = [*reads, (target, first, length)] if statement.kind == "accumulate" else reads
        for buffer, start, size in checked:
            if not is_defined[buffer][start : start + size].all():
                return "unwritten"
        values = [memory[buffer][start : start + size] for buffer, start, size in reads]
        view = memory[target][first : first + length]
        if statement.kind == "fill":
            view[:] = statement.value
        elif statement.kind == "accumulate":
            view += values[0]
        elif statement.kind == "add":
            view[:] = values[0] + values[1]
        else:
            view[:] = values[0] * np.float32(1 if statement.kind == "copy" else statement.value)
        is_defined[target][first : first + length] = True
    if not all(defined.all() for defined in is_defined[INPUTS : INPUTS + OUTPUTS]):
        return "incomplete"
    return memory[INPUTS], memory[INPUTS + 1]


def add_to(builder: LoweringBuilder, program: Program) -> None:
    """Add the statements of a program to a builder."""
    temporaries = [
        builder.allocate(tensor((size,)), f"t{number}") for number, size in enumerate(program.sizes[INPUTS + OUTPUTS :])
    ]
    _add(builder, program.statements, [*builder.inputs, *builder.outputs, *temporaries], {})


def _add(
    builder: LoweringBuilder, statements: Sequence[Statement], buffers: Sequence[Buffer], indexes: Mapping[str, Dim]
) -> None:
    def part_of(part: Part) -> BufferPart:
        placed = part.at(indexes)
        return buffers[part.buffer].part(placed.offset, placed.size)

    for statement in statements:
        if statement.kind == "loop":
            with builder.loop(substitute(statement.extent, indexes)) as index:
                _add(builder, statement.body, buffers, {**indexes, f"i{statement.depth}": index})
            continue
        *reads, target = map(part_of, statement.parts)
        if statement.kind == "fill":
            builder.call_extern("toy_fill", target.written(), target.size, statement.value)
        elif statement.kind == "copy":
            builder.copy(reads[0], target)
        elif statement.kind == "scale":
            builder.call_extern("toy_scale", reads[0], target.written(), target.size, statement.value)
        elif statement.kind == "add":
            builder.call_extern("toy_add", *reads, target.written(), target.size)
        else:
            builder.call_extern("toy_accumulate", reads[0], target.updated(), target.size)
