"""Laws of programs depending on the order of execution: tensors in use at the same time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pytest
from byoc_core.dims import Dim, parse_dim
from byoc_core.errors import ProgramError
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm import (
    Call,
    CallKind,
    DynamicTensor,
    Goto,
    If,
    PlannedTensor,
    Program,
    Ret,
    View,
    VMFunction,
    verify,
)
from hypothesis import given
from hypothesis import strategies as st

n, k = parse_dim("n"), parse_dim("k")
EXTERN = CallKind.EXTERN
FLAG = TensorSpec("flag", "bool", ())


def chain(tensors: tuple[PlannedTensor, ...], code: tuple[Any, ...], storages: tuple[Any, ...] = (256,)) -> Program:
    spec = TensorSpec("x", "float32", (n,))
    out = TensorSpec("y", "float32", (n,))
    return Program((VMFunction("main", (spec, FLAG), (out,), (), storages, tensors, (), code),), ("f",))


def block(offset: int, size: Dim = 16, storage: int = 0) -> PlannedTensor:
    return PlannedTensor(storage, offset, "float32", (size,))


def f(args: tuple[int, ...], result: int) -> Call:
    return Call(EXTERN, 0, args, (result,))


@pytest.mark.parametrize(
    ("tensors", "code"),
    [
        # t0 is needed after t1 is written.
        ((block(0), block(0)), (f((0,), 3), f((0,), 4), f((3, 4), 2), Ret((2,)))),
        ((block(0, 32), block(64)), (f((0,), 3), f((0,), 4), f((3, 4), 2), Ret((2,)))),
        # An argument and the result of one call.
        ((block(0), block(0)), (f((0,), 3), f((3,), 4), f((4,), 2), Ret((2,)))),
        # A result nobody reads destroys a live tensor.
        ((block(0), block(0)), (f((0,), 3), f((0,), 4), f((3,), 2), Ret((2,)))),
        # A loop brings t0 back to its reader after t1 was written.
        ((block(0), block(0)), (f((0,), 3), f((3,), 2), f((0,), 4), If(1, 5), Goto(1), Ret((2,)))),
        # Live on one branch only.
        ((block(0), block(0)), (f((0,), 3), f((0,), 2), f((0,), 4), If(1, 5), f((3,), 2), Ret((2,)))),
        # Symbolic sizes in one storage.
        ((block(0, n, 1), block(0, n, 1)), (f((0,), 3), f((0,), 4), f((3, 4), 2), Ret((2,)))),
    ],
)
def test_tensors_in_use_at_once_must_not_share_bytes(tensors: tuple[PlannedTensor, ...], code: tuple[Any, ...]) -> None:
    with pytest.raises(ProgramError) as caught:
        verify(chain(tensors, code, (256, parse_dim("4*n"))))
    assert "are both in use and share bytes" in str(caught.value)


def test_a_tensor_without_bytes_hides_no_conflict() -> None:
    """The tensor lies between the start of a long tensor and a start in the middle of the long tensor."""
    tensors = (block(0, 48), block(64, 0), block(128))
    code = (f((0,), 3), f((0,), 4), f((0,), 5), f((3, 4, 5), 2), Ret((2,)))
    with pytest.raises(ProgramError) as caught:
        verify(chain(tensors, code))
    assert str(caught.value) == "function `main`, instruction 3: registers t2 and t0 are both in use and share bytes"
    verify(chain((block(0), *tensors[1:]), code))


def test_tensors_that_leave_a_block_together_are_in_use_at_its_end() -> None:
    code = (f((0,), 2), f((0,), 3), f((0,), 4), If(1, 5), f((3, 4), 2), Ret((2,)))
    with pytest.raises(ProgramError) as caught:
        verify(chain((block(0), block(0)), code))
    assert str(caught.value) == "function `main`, instruction 3: registers t1 and t0 are both in use and share bytes"


@pytest.mark.parametrize("offset", [0, 64])
def test_a_tensor_is_in_use_while_any_part_of_it_is(offset: int) -> None:
    """The second half is rewritten after the other tensor, the first half is not."""
    halves = tuple(View(3, start, "float32", (8,)) for start in (0, 32))
    made = chain((block(0), block(offset)), (f((0,), 5), f((0,), 4), f((0,), 6), f((3,), 2), Ret((2,))))
    made = replace(made, functions=(replace(made.functions[0], views=halves),))
    if offset == 64:
        verify(made)
        return
    with pytest.raises(ProgramError) as caught:
        verify(made)
    assert str(caught.value) == "function `main`, instruction 1: registers t1 and t0 are both in use and share bytes"


@pytest.mark.parametrize("is_renewed", [False, True])
def test_what_a_loop_makes_stale_is_stale_in_all_its_blocks(is_renewed: bool) -> None:
    """`v1` has the size bound by `v0`, and the loop binds another size behind the block reading `v1`."""
    sizes = (DynamicTensor("float32", (k,), ("k",)), DynamicTensor("float32", (k,)))
    renewed, bound = Call(CallKind.PACKED, 0, (0,), (4,)), Call(CallKind.PACKED, 0, (0,), (3,))
    body = (*([renewed] if is_renewed else []), f((4,), 2), bound, Goto(3))
    code = (f((0,), 2), bound, renewed, If(1, 4 + len(body)), *body, Ret((2,)))
    made = chain((), code)
    made = replace(made, functions=(replace(made.functions[0], dynamics=sizes),))
    if is_renewed:
        verify(made)
        return
    with pytest.raises(ProgramError) as caught:
        verify(made)
    assert str(caught.value) == "function `main`, instruction 4: register v1 is read before it is written"


def test_tensors_may_share_bytes_one_after_the_other() -> None:
    code = (f((0,), 3), f((3,), 4), f((4,), 5), f((5,), 2), Ret((2,)))
    verify(chain((block(0), block(64), block(0)), code))
    branches = (If(1, 3), f((0,), 3), Goto(4), f((0,), 4), f((0,), 2), Ret((2,)))
    verify(chain((block(0), block(0)), branches))


def test_verifying_ten_thousand_instructions_takes_one_pass() -> None:
    count = 10_000
    tensors = tuple(block(64 * (i % 2)) for i in range(count))
    code = (f((0,), 3), *(f((2 + i,), 3 + i) for i in range(1, count)), f((2 + count,), 2), Ret((2,)))
    verify(chain(tensors, code))


@dataclass(frozen=True)
class Use:
    """A tensor of bytes, written at one point and read at another; a size of -1 is symbolic."""

    storage: int
    offset: int
    size: int
    written: int
    read: int | None

    @property
    def last(self) -> int:
        return self.written if self.read is None else self.read

    def conflicts_with(self, other: Use) -> bool:
        ends = [use.offset + use.size if use.size >= 0 else float("inf") for use in (self, other)]
        return (
            self.storage == other.storage
            and max(self.written, other.written) <= min(self.last, other.last)
            and max(self.offset, other.offset) < min(ends)
            and 0 not in (self.size, other.size)
        )


@st.composite
def tensor_uses(draw: st.DrawFn) -> list[Use]:
    count = draw(st.integers(1, 7))
    points = draw(st.permutations(range(2 * count)))
    uses = []
    for index in range(count):
        written, read = sorted(points[2 * index : 2 * index + 2])
        place = draw(st.integers(0, 1)), 64 * draw(st.integers(0, 4))
        size = draw(st.sampled_from([0, 1, 63, 64, 65, 128, 129, 200, -1]))
        uses.append(Use(*place, size, written, read if draw(st.booleans()) else None))
    return uses


@given(tensor_uses())
def test_sharing_a_single_byte_at_once_is_a_conflict_and_nothing_else_is(uses: list[Use]) -> None:
    calls: dict[int, Call] = {}
    for register, use in enumerate(uses, start=3):
        calls[use.written] = f((0,), register)
        if use.read is not None:
            calls[use.read] = f((register,), 2)
    tensors = tuple(PlannedTensor(u.storage, u.offset, "int8", (u.size if u.size >= 0 else n,)) for u in uses)
    code = (*(calls[point] for point in sorted(calls)), f((0,), 2), Ret((2,)))
    size = parse_dim("n+1000")
    if any(left.conflicts_with(right) for left, right in combinations(uses, 2)):
        with pytest.raises(ProgramError, match="are both in use and share bytes"):
            verify(chain(tensors, code, (size, size)))
    else:
        verify(chain(tensors, code, (size, size)))
