"""Memory of intermediates across branches and loops: shared bytes, kept places, and total size.

Functions are lowered as written; every tensor but the scalars of control flow has ``UNIT`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.ir import verify
from byoc_core.lower import lower
from byoc_core.runtime.module import NDArray
from byoc_core.vm import Builtin, Call, CallKind, Program
from byoc_core.vm import verify as verify_program
from byoc_core.vm.program import ALIGNMENT, VMFunction

UNIT = 4096
BIG = f'R.Tensor(({UNIT // 4},), "float32")'
PARAMS = f'c: R.Tensor((), "bool"), trips: R.Tensor((), "int64"), x: {BIG}'
TRUE = 'R.const(True, "bool")'
X = np.arange(UNIT // 4, dtype=np.float32) % 17  # small integers, so nothing rounds

EXTERNS: dict[str, Callable[..., Any]] = {
    "next": lambda x, out: np.add(x, 1, out=out),
    "add": lambda x, y, out: np.add(x, y, out=out),
}


def call(symbol: str, *values: str) -> str:
    return f'R.call_dps_packed("{symbol}", ({", ".join(values)},), out_types=[{BIG}])'


def program(body: str) -> Program:
    text = "\n".join(f"        {line}" for line in body.strip().splitlines())
    module = verify(parse(f"class M:\n    @R.function\n    def main({PARAMS}):\n{text}\n"))
    found = lower(module)
    verify_program(found)
    return found


def run(found: Program, *, flag: bool = True, trips: int = 3) -> Any:
    arrays = {ref.digest: np.array(True) for ref in found.constants}
    machine = VirtualMachine(Executable(found, (), arrays), externs=EXTERNS)
    return machine["main"](np.array(flag), np.int64(trips), X)


def units(function: VMFunction) -> int:
    """Return the number of large tensors fitting into the arena; scalars of control flow are smaller than a tensor."""
    (nbytes,) = function.storages
    assert isinstance(nbytes, int)
    assert nbytes % UNIT <= 16 * ALIGNMENT
    return nbytes // UNIT


def num_copies(found: Program) -> int:
    """Return the copies of large tensors."""
    (function,) = found.functions
    registers = found.registers(function)
    calls = (instruction for instruction in function.code if isinstance(instruction, Call))
    copies = (i for i in calls if i.kind is CallKind.BUILTIN and i.callee == Builtin.COPY)
    return sum(registers[copy.results[0]].shape != () for copy in copies)


def chain(prefix: str, start: str, length: int) -> list[str]:
    names = [start, *(f"{prefix}{number}" for number in range(length))]
    return [f"{new} = {call('next', old)}" for old, new in pairwise(names)]


def region(name: str, params: str, lines: list[str], results: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"@R.region\ndef {name}({params}):\n{body}\n    return {results}\n"


def test_branches_use_the_same_bytes() -> None:
    """Each branch alone needs two buffers beside the input; so do both together."""
    then = region("then", f"y: {BIG}", chain("t", "y", 5), "t4")
    otherwise = region("otherwise", f"y: {BIG}", chain("o", "y", 4), "o3")
    found = program(f"a = {call('next', 'x')}\n{then}{otherwise}b = R.if_(c, a, regions=[then, otherwise])\nreturn b")
    (function,) = found.functions
    assert units(function) == 3
    assert num_copies(found) == 0
    for flag, steps in ((True, 6), (False, 5)):
        np.testing.assert_array_equal(run(found, flag=flag), X + steps)


def test_a_value_that_is_dead_before_a_loop_gives_its_bytes_to_the_loop() -> None:
    body = region("body", f"i: R.Tensor((), 'int64'), y: {BIG}", chain("t", "y", 3), f"{TRUE}, t2")
    loop = f"{body}b = R.loop(trips, c, d4, regions=[body])\nreturn b"
    lines = "\n".join(chain("d", "x", 5))
    (function,) = program(f"{lines}\n{loop}").functions
    # The carried value is the result's buffer; two more are in use at a time, before the loop and inside.
    assert units(function) == 2
    np.testing.assert_array_equal(run(program(f"{lines}\n{loop}")), X + 14)


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_value_that_is_needed_in_an_inner_loop_keeps_its_place(trips: int) -> None:
    """Live at once in the inner loop: ``w``, the value carried by each of the two loops, and ``r``."""
    inner = region(
        "inner",
        f"j: R.Tensor((), 'int64'), g: {BIG}, u: {BIG}",
        [f"r = {call('next', 'g')}", f"q = {call('add', 'r', 'u')}"],
        f"{TRUE}, q, u",
    )
    lines = [*chain("s", "h", 2), *inner.splitlines(), f"g, u = R.loop(n, {TRUE}, s1, v, regions=[inner])"]
    outer = region(
        "outer",
        f"i: R.Tensor((), 'int64'), h: {BIG}, v: {BIG}, n: R.Tensor((), 'int64')",
        [*lines, *chain("e", "g", 2)],
        f"{TRUE}, e1, v, n",
    )
    found = program(
        f"w = {call('next', 'x')}\nd = {call('next', 'w')}\n{outer}"
        f"h, v, n = R.loop(trips, c, d, w, trips, regions=[outer])\nz = {call('add', 'h', 'v')}\nreturn z"
    )
    (function,) = found.functions
    assert units(function) == 4
    assert num_copies(found) == 2  # what each loop starts with
    expected = X + 2
    for _ in range(trips):
        expected = expected + 2
        for _ in range(trips):
            expected = expected + 1 + (X + 1)
        expected = expected + 2
    np.testing.assert_array_equal(run(found, trips=trips), expected + X + 1)


def test_a_value_that_only_code_behind_a_loop_needs_keeps_its_place() -> None:
    body = region("body", f"i: R.Tensor((), 'int64'), y: {BIG}", chain("t", "y", 2), f"{TRUE}, t1")
    found = program(
        f"w = {call('next', 'x')}\n{body}b = R.loop(trips, c, x, regions=[body])\nz = {call('add', 'b', 'w')}\nreturn z"
    )
    assert units(found.functions[0]) == 3
    np.testing.assert_array_equal(run(found), 2 * X + 7)


def test_a_branch_inside_a_loop_reuses_the_bytes_of_every_round() -> None:
    then = region("then", f"y: {BIG}", chain("t", "y", 4), "t3")
    otherwise = region("otherwise", f"y: {BIG}", chain("o", "y", 3), "o2")
    lines = [*then.splitlines(), *otherwise.splitlines(), "u = R.if_(d, y, regions=[then, otherwise])"]
    body = region("body", f"i: R.Tensor((), 'int64'), y: {BIG}, d: R.Tensor((), 'bool')", lines, "d, u, d")
    found = program(f"{body}b, _ = R.loop(trips, {TRUE}, x, c, regions=[body])\nreturn b")
    # Two scratch buffers and the branch's result: it may not be written over ``y``, which the branch reads.
    assert units(found.functions[0]) == 3
    np.testing.assert_array_equal(run(found), X + 12)
    np.testing.assert_array_equal(run(found, flag=False), X + 3)


UNCHANGED = f"i: R.Tensor((), 'int64'), y: {BIG}, w: {BIG}"


def test_what_a_loop_does_not_change_is_not_copied() -> None:
    body = region("body", UNCHANGED, [f"t = {call('add', 'y', 'w')}"], f"{TRUE}, t, w")
    found = program(f"{body}a, b = R.loop(trips, c, x, x, regions=[body])\nreturn a, b")
    # One copy into the carried value, one of the parameter that is a result; the sum has to wait for ``y``.
    assert num_copies(found) == 3
    a, b = run(found)
    np.testing.assert_array_equal(a, 4 * X)
    np.testing.assert_array_equal(b, X)
    assert not np.shares_memory(b, X)


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
@pytest.mark.parametrize(
    ("lines", "results", "rounds"),
    [
        # Each is computed where it may not be written in place: the old value is still read, or goes elsewhere.
        ([f"t = {call('next', 'y')}", f"s = {call('add', 't', 'y')}"], "t, s", lambda y, w: (y + 1, 2 * y + 1)),
        ([f"t = {call('next', 'y')}"], "t, y", lambda y, w: (y + 1, y)),
        ([f"t = {call('next', 'y')}"], "w, t", lambda y, w: (w, y + 1)),
        ([f"t = {call('next', 'y')}"], "t, t", lambda y, w: (y + 1, y + 1)),
        ([f"t = {call('add', 'y', 'w')}"], "t, w", lambda y, w: (y + w, w)),
        ([f"t = {call('next', 'w')}", f"s = {call('next', 't')}"], "s, t", lambda y, w: (w + 2, w + 1)),
        # And here it may.
        ([f"t = {call('next', 'y')}", f"s = {call('next', 't')}"], "s, w", lambda y, w: (y + 2, w)),
        ([f"t = {call('add', 'y', 'w')}", f"s = {call('next', 't')}"], "s, t", lambda y, w: (y + w + 1, y + w)),
    ],
)
def test_every_round_sees_the_values_of_the_last(
    lines: list[str], results: str, rounds: Callable[[NDArray, NDArray], tuple[NDArray, NDArray]], trips: int
) -> None:
    found = program(
        region("body", UNCHANGED, lines, f"{TRUE}, {results}")
        + f"v = {call('next', 'x')}\na, b = R.loop(trips, c, x, v, regions=[body])\nreturn a, b"
    )
    expected = (X, X + 1)
    for _ in range(trips):
        expected = rounds(*expected)
    for have, want in zip(run(found, trips=trips), expected, strict=True):
        np.testing.assert_array_equal(have, want)


def test_an_inner_loop_that_keeps_a_value_does_not_lose_it() -> None:
    """``k`` is an alias of ``y``, so nothing may overwrite ``y`` before ``k`` is read."""
    inner = region("inner", UNCHANGED, [f"q = {call('next', 'y')}"], f"{TRUE}, q, w")
    lines = [
        *inner.splitlines(),
        f"g, k = R.loop(i, {TRUE}, w, y, regions=[inner])",
        f"t = {call('next', 'g')}",
        f"s = {call('add', 't', 'k')}",
    ]
    found = program(
        region("body", UNCHANGED, lines, f"{TRUE}, t, s") + "a, b = R.loop(trips, c, x, x, regions=[body])\nreturn a, b"
    )
    y = w = X
    for round_ in range(3):
        y, w = w + round_ + 1, w + round_ + 1 + y
    for have, want in zip(run(found), (y, w), strict=True):
        np.testing.assert_array_equal(have, want)
