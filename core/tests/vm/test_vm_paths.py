"""The verifier's laws about the order of execution, against all paths of small random programs.

The oracle walks every path with the facts certain on this path alone, byte by byte, and looks for the next read of a
byte along every path. The verifier instead meets the paths in each block. The verifier must refuse the same programs,
and name an instruction and a law found by the oracle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Any

from byoc_core.dims import parse_dim, shape_symbols
from byoc_core.errors import ProgramError
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    DynamicTensor,
    Goto,
    If,
    PlannedTensor,
    Program,
    Ret,
    VMFunction,
    verify,
)
from byoc_core.vm.instructions import Instruction
from byoc_core.vm.program import View
from hypothesis import settings

k, m = parse_dim("k"), parse_dim("m")
X, FLAG, OUT = 0, 1, 2
BYTES, COUNTER, CONDITION = (3, 4), 5, 6
BOUND, FREE = (7, 8), (9, 10, 11)
VIEWS = {12: (3, range(4)), 13: (3, range(4, 8)), 14: (4, range(2, 6)), 15: (OUT, range(4))}
TENSORS = (*BYTES, COUNTER, CONDITION)
DYNAMICS = (
    DynamicTensor("int8", (k,), ("k",)),
    DynamicTensor("int8", (k, m), ("m",)),
    DynamicTensor("int8", (k,)),
    DynamicTensor("int8", (m, k)),
    DynamicTensor("int8", (8,)),
)
NAMES = ("p0", "p1", "o0", "t0", "t1", "t2", "t3", "v0", "v1", "v2", "v3", "v4", "w0", "w1", "w2", "w3")
UPDATES = Call(CallKind.BUILTIN, Builtin.INCREMENT, (), (COUNTER,))
WRITABLE = (OUT, *TENSORS, *FREE, *VIEWS)
LAWS = ("read before it is written", "has no buffer to write", "not yet known", "both in use and share bytes")
READABLE = (X, FLAG, *WRITABLE, *BOUND)


def owner(register: int) -> int:
    return VIEWS[register][0] if register in VIEWS else register


def elements(register: int) -> frozenset[tuple[int, int]]:
    if register in VIEWS:
        return frozenset((owner(register), number) for number in VIEWS[register][1])
    return frozenset((register, number) for number in range(8 if register in (*BYTES, OUT) else 1))


def draw_call(random: Random, written: frozenset[int]) -> Call:
    """Return a call, mostly reading values written by the instructions above."""
    kind = random.choice(["extern", "extern", "extern", "in place", "returns", "allocates", "zero", "increment"])
    match kind:
        case "zero":
            return Call(CallKind.BUILTIN, Builtin.ZERO, (), (COUNTER,))
        case "increment":
            return UPDATES
        case "allocates":
            return Call(CallKind.BUILTIN, Builtin.ALLOCATE, (), (random.choice(FREE),))
        case "in place":
            register = random.choice([number for number in WRITABLE if number in written] or [OUT])
            return Call(CallKind.EXTERN, 0, (register,), (register,))
    returns = kind == "returns"
    pool = (*BOUND, *FREE) if returns else WRITABLE
    results = random.sample(pool, random.choice([1, 1, 2]))
    results = [number for at, number in enumerate(results) if owner(number) not in map(owner, results[:at])]
    args = [number for number in READABLE if owner(number) not in map(owner, results)]
    if random.random() < 0.9:
        args = [number for number in args if number in written]
    return Call(
        CallKind.PACKED if returns else CallKind.EXTERN,
        0,
        tuple(random.sample(args, min(len(args), random.choice([0, 1, 1, 2])))),
        tuple(results),
    )


def draw_program(random: Random) -> Program:
    length = random.randint(2, 14)
    code: list[Any] = []
    # Most programs begin with what makes later reads lawful, so that later laws are reached.
    if random.random() < 0.8:
        first = [
            Call(CallKind.EXTERN, 0, (X,), BYTES),
            Call(CallKind.EXTERN, 0, (X,), (OUT, CONDITION)),
            Call(CallKind.BUILTIN, Builtin.ZERO, (), (COUNTER,)),
            Call(CallKind.PACKED, 0, (X,), random.choice([BOUND, (*BOUND, *FREE), BOUND[:1]])),
        ]
        code += [step for step in first if random.random() < 0.9]
    while len(code) < length:
        done = {X, FLAG}.union(*(call.results for call in code))
        code.append(draw_call(random, frozenset(view for view in READABLE if {view, owner(view)} & done)))
    for index in range(len(code)):
        choice = random.random()
        if choice < 0.15:
            code[index] = If(random.choice([FLAG, FLAG, CONDITION]), random.randint(0, len(code)))
        elif choice < 0.2:
            code[index] = Goto(random.randint(0, len(code)))
    code.append(Ret((OUT,)))
    offsets = [random.choice([0, 64]) for _ in TENSORS] if random.random() < 0.4 else [0, 64, 128, 192]
    tensors = tuple(
        PlannedTensor(random.choice([0, 0, 0, 1]), offset, dtype, shape)
        for offset, (dtype, shape) in zip(
            offsets, [("int8", (8,)), ("int8", (8,)), ("int64", ()), ("bool", ())], strict=True
        )
    )
    views = tuple(View(base, part.start, "int8", (len(part),)) for base, part in VIEWS.values())
    x, out = TensorSpec("x", "int8", (parse_dim("n"),)), TensorSpec("y", "int8", (8,))
    function = VMFunction(
        "main", (x, TensorSpec("flag", "bool", ())), (out,), (), (256, 256), tensors, DYNAMICS, tuple(code), views
    )
    return Program((function,), ("f",))


def reads(step: Instruction) -> tuple[int, ...]:
    match step:
        case Call():
            return (*step.args, COUNTER) if step == UPDATES else step.args
        case If():
            return (step.condition,)
        case Ret():
            return step.values
    return ()


def successors(code: tuple[Any, ...], index: int) -> tuple[int, ...]:
    match code[index]:
        case Ret():
            return ()
        case Goto(target=target):
            return (target,)
        case If(otherwise=target):
            return (index + 1, target)
    return (index + 1,)


@dataclass(frozen=True)
class Certain:
    """The facts at a point of a path: elements with a value, registers with a buffer, and known symbols."""

    written: frozenset[tuple[int, int]]
    buffers: frozenset[int]
    symbols: frozenset[str]


def step_over(step: Instruction, before: Certain, problems: set[str], unknown: set[tuple[int, str]]) -> Certain:
    """Return the facts after an instruction, and add the violations."""
    for number in reads(step):
        if not elements(number) <= before.written:
            problems.add(f"register {NAMES[number]} is read before it is written")
    if not isinstance(step, Call):
        return before
    written, buffers, symbols = set(before.written), set(before.buffers), set(before.symbols)
    shapes = {number: shape_symbols(DYNAMICS[number - BOUND[0]].shape) for number in (*BOUND, *FREE)}
    if step.kind is CallKind.BUILTIN and step.callee == Builtin.ALLOCATE:
        (number,) = step.results
        unknown.update((number, name) for name in shapes[number] - symbols)
        return Certain(frozenset(written - elements(number)), frozenset(buffers | {number}), frozenset(symbols))
    if step.kind is CallKind.PACKED:
        for number in sorted(step.results):
            for name in DYNAMICS[number - BOUND[0]].binds:
                stale = {other for other, names in shapes.items() if name in names}
                written -= {element for other in stale for element in elements(other)}
                buffers -= stale
                symbols.add(name)
        for number in step.results:
            unknown.update((number, name) for name in shapes[number] - symbols)
        buffers -= set(step.results)
    else:
        problems |= {
            f"register {NAMES[number]} has no buffer to write" for number in step.results if number not in buffers
        }
    written.update(element for number in step.results for element in elements(number))
    return Certain(frozenset(written), frozenset(buffers), frozenset(symbols))


def problems_of_paths(code: tuple[Any, ...]) -> tuple[set[str], set[int]]:
    """Return the texts of all laws broken on some path, and the instructions reached by some path."""
    start = Certain(elements(X) | elements(FLAG), frozenset((OUT, *TENSORS, *VIEWS)), frozenset("n"))
    seen = {(0, start)}
    waiting = [(0, start)]
    found: dict[int, set[str]] = {}
    unknown: dict[int, set[tuple[int, str]]] = {}
    while waiting:
        index, before = waiting.pop()
        after = step_over(code[index], before, found.setdefault(index, set()), unknown.setdefault(index, set()))
        following = {(successor, after) for successor in successors(code, index)} - seen
        seen |= following
        waiting += following
    for index, pairs in unknown.items():
        for number in {number for number, _ in pairs}:
            names = ", ".join(sorted(name for other, name in pairs if other == number))
            found[index].add(f"the shape of register {NAMES[number]} needs {names}, not yet known")
    return {f"instruction {index}: {text}" for index, texts in found.items() for text in texts}, set(found)


def in_use(code: tuple[Any, ...], reached: set[int]) -> Iterator[tuple[int, set[int]]]:
    """Return the tensors in use at once at each instruction: read, written, or read later on some path."""
    needed_after: dict[int, set[tuple[int, int]]] = {index: set() for index in reached}
    waiting = [(index, element) for index in reached for number in reads(code[index]) for element in elements(number)]
    while waiting:
        target, element = waiting.pop()
        for index in reached:
            if target in successors(code, index) and element not in needed_after[index]:
                needed_after[index].add(element)
                step = code[index]
                if not isinstance(step, Call) or all(element not in elements(number) for number in step.results):
                    waiting.append((index, element))
    for index, needed in needed_after.items():
        step = code[index]
        used = {*reads(step), *(step.results if isinstance(step, Call) else ())}
        yield index, {place for place in (*map(owner, used), *(place for place, _ in needed)) if place in TENSORS}


def overlaps(function: VMFunction, reached: set[int]) -> set[str]:
    """Return the texts of all conflicts of tensors in use at once; no tensor here is over 64 bytes."""
    return {
        f"instruction {index}: registers t{left} and t{right} are both in use and share bytes"
        for index, used in in_use(function.code, reached)
        for left, right in permutations(sorted(number - TENSORS[0] for number in used), 2)
        if (function.tensors[left].storage, function.tensors[left].offset)
        == (function.tensors[right].storage, function.tensors[right].offset)
    }


def test_the_verifier_accepts_what_no_path_breaks() -> None:
    outcomes: Counter[str] = Counter()
    count = 30 * settings().max_examples
    for seed in range(count):
        program = draw_program(Random(seed))
        function = program.functions[0]
        expected, reached = problems_of_paths(function.code)
        expected = expected or overlaps(function, reached)
        try:
            verify(program)
        except ProgramError as error:
            text = str(error).removeprefix("function `main`, ")
            assert text in expected, f"seed {seed}"
            outcomes.update(law for law in LAWS if text.endswith(law))
        else:
            assert not expected, f"seed {seed}"
            outcomes["accepted"] += 1
    # The programs are no proof where they break one law only, or none.
    assert all(outcomes[kind] > count // 50 for kind in ("accepted", *LAWS)), outcomes
