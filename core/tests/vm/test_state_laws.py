"""Laws of states in programs: slots, stale reads, the binary form, and the listing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import parse_dim, symbol
from byoc_core.errors import LinkError, ProgramError
from byoc_core.runtime.module import CallTraits
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    ConstantRef,
    Goto,
    If,
    Program,
    Ret,
    View,
    VirtualMachine,
    VMFunction,
    decode,
    disassemble,
    encode,
    verify,
)
from byoc_core.vm.program import StateSlot
from byoc_core.vm.state_summary import summarise_states

from core.tests.lower.view_modules import IN_PLACE, TraitModule
from core.tests.vm.programs import Executable, spec

P, N = symbol("p"), symbol("n")
# Registers: 0 p0 x, 1 p1 h, 2 p2 flag, 3 o0 y, 4 o1 g, then the views.
PARAMS = (spec("x", 4), spec("h", 4), spec("flag", dtype="bool"))
RESULTS = (spec("y", 4), spec("g", 4))


def add(left: int, right: int, result: int) -> Call:
    return Call(CallKind.EXTERN, 1, (left, right), (result,))


def copy(source: int, target: int) -> Call:
    return Call(CallKind.BUILTIN, Builtin.COPY, (source,), (target,))


def program(*code: Any, views: tuple[View, ...] = (), **changes: Any) -> Program:
    main = VMFunction("main", PARAMS, RESULTS, (), (), (), (), (*code, Ret((3, 4))), views, (StateSlot(1, 1),))
    return Program((replace(main, **changes),), ("next", "add"), (ConstantRef("0" * 64, "float32", (4,)),))


def moving(*code: Any, views: tuple[View, ...]) -> Program:
    """Return a program with registers 0 p0 x[n, 2], 1 p1 h[p, 2], 2 o0 y[n, 2], 3 o1 g[p + n, 2], and views."""
    params, results = (spec("x", N, 2), spec("h", P, 2)), (spec("y", N, 2), spec("g", P + N, 2))
    state = StateSlot(1, 1, axis=0)
    main = VMFunction("main", params, results, (), (), (), (), (*code, Ret((2, 3))), views, (state,))
    return Program((main,), ("next", "add"))


OLD_ROWS = View(3, 0, "float32", (P, 2))
NEW_ROWS = View(3, 8 * P, "float32", (N, 2))

LAWFUL = {
    "the old value is read first": program(add(0, 1, 3), copy(0, 4)),
    "the old value is read by the destroying extern, element by element": program(add(0, 1, 4), copy(0, 3)),
    "the old value stays": program(copy(1, 4), add(0, 1, 3)),
    "reads in another branch": program(If(2, 4), copy(0, 4), copy(0, 3), Goto(6), add(0, 1, 3), copy(0, 4)),
    "new rows are written beyond the old rows": moving(
        copy(0, 5), copy(1, 4), add(0, 0, 2), views=(OLD_ROWS, NEW_ROWS)
    ),
    "the old rows are read after the new rows are written": moving(
        Call(CallKind.EXTERN, 0, (0,), (5,)),
        Call(CallKind.EXTERN, 0, (0,), (2,)),
        copy(1, 4),
        views=(OLD_ROWS, NEW_ROWS),
    ),
}

STALE_READS = {
    "a read after the write": (program(copy(0, 4), add(0, 1, 3)), 1),
    "a read of a view after the write": (
        program(copy(0, 4), copy(0, 3), copy(5, 6), views=(View(1, 0, "float32", (2,)), View(3, 0, "float32", (2,)))),
        2,
    ),
    "a write on one path": (program(If(2, 2), copy(0, 4), copy(0, 4), add(0, 1, 3)), 3),
    "a write in the round before": (
        program(copy(0, 3), add(0, 1, 4), If(2, 4), Goto(1)),
        1,
    ),
    "a copy to other places": (
        program(
            copy(5, 6),
            copy(7, 8),
            copy(0, 3),
            views=(
                View(1, 0, "float32", (2,)),
                View(4, 8, "float32", (2,)),
                View(1, 8, "float32", (2,)),
                View(4, 0, "float32", (2,)),
            ),
        ),
        0,
    ),
    "old rows written before their copy": (
        moving(
            copy(1, 6),
            copy(0, 5),
            copy(0, 2),
            views=(OLD_ROWS, View(3, 0, "float32", (N, 2)), View(3, 8 * N, "float32", (P, 2))),
        ),
        0,
    ),
}


@pytest.mark.parametrize("name", LAWFUL)
def test_lawful_programs(name: str) -> None:
    lawful = LAWFUL[name]
    verify(lawful)
    assert decode(encode(lawful)) == lawful
    assert encode(lawful)[8] == 3


@pytest.mark.parametrize("name", STALE_READS)
def test_stale_reads_are_found(name: str) -> None:
    broken, instruction = STALE_READS[name]
    with pytest.raises(ProgramError, match=f"instruction {instruction}: register .* reads state `h`, overwritten"):
        verify(broken)
    stateless = replace(broken, functions=tuple(replace(f, states=()) for f in broken.functions))
    verify(stateless)


def test_a_state_without_a_write_is_refused() -> None:
    with pytest.raises(ProgramError, match="register o1 is read before it is written"):
        verify(program(copy(0, 3)))


def test_new_values_are_not_read_through_the_result_before_they_are_written() -> None:
    with pytest.raises(ProgramError, match="register o1 is read before it is written"):
        verify(program(copy(4, 3), copy(0, 4)))


def moving_with(*states: StateSlot, **changes: Any) -> Program:
    """Return a program with moving lengths and other slots."""
    (main,) = moving(views=()).functions
    results = (spec("y", 2 * P, 2), spec("g", 3 * P, 2)) if changes else main.results
    return Program((replace(main, states=states, results=results, **changes),))


def with_shapes(old: tuple[Any, ...], new: tuple[Any, ...]) -> Program:
    """Return a program with a state of moving length, of other shapes."""
    (main,) = moving(views=()).functions
    params, results = (main.params[0], spec("h", *old)), (main.results[0], spec("g", *new))
    return Program((replace(main, params=params, results=results),))


def moving_and(*shape: str, axis: int | None = None) -> Program:
    """Return a program with a state of moving length `p`, and before it a state of a shape."""
    (main,) = moving(views=()).functions
    dims = [parse_dim(text) for text in shape]
    other = spec("k", *dims), spec("l", *dims)
    params, results = (*main.params, other[0]), (*main.results, other[1])
    return Program((replace(main, params=params, results=results, states=(StateSlot(2, 2, axis=axis), *main.states)),))


SLOTS: dict[str, tuple[Program, str]] = {
    "no param": (program(states=(StateSlot(3, 1),)), "state 0: names a missing param; got 3, expected less than 3"),
    "no result": (program(states=(StateSlot(1, 2),)), "state 0: names a missing result; got 2, expected less than 2"),
    "one param twice": (
        program(states=(StateSlot(1, 1), StateSlot(1, 0))),
        "state 1: names the param of another state; got 1",
    ),
    "one result twice": (
        program(states=(StateSlot(1, 1), StateSlot(0, 1))),
        "state 1: names the result of another state; got 1",
    ),
    "another type": (
        program(results=(spec("y", 4), spec("g", 5))),
        "state 0: result `g` does not fit parameter `h`; got float32[5], expected float32[4]",
    ),
    "no axis": (program(states=(StateSlot(1, 1, axis=1),)), "state 0: has no axis 1; got [4]"),
    "no constant": (program(states=(StateSlot(1, 1, 1),)), "state 0: cites a missing constant; got 1"),
    "a constant of another type": (
        program(
            params=(PARAMS[0], spec("h", 4, dtype="int32"), PARAMS[2]),
            results=(RESULTS[0], spec("g", 4, dtype="int32")),
            states=(StateSlot(1, 1, 0),),
        ),
        "state 0: the initial constant has another type; got constant 0",
    ),
    "a moving length with a constant": (
        moving_with(StateSlot(1, 1, 0, 0)),
        "state 0: has a moving length and an initial constant",
    ),
    "a length without a symbol": (
        program(states=(StateSlot(1, 1, axis=0),)),
        "state 0: has a moving length that is no symbol; got 4",
    ),
    "lengths growing apart": (
        moving_with(StateSlot(0, 1, axis=0), StateSlot(1, 0, axis=0), params=(spec("x", P, 2), spec("h", P, 2))),
        "state 1: grows to another length than other states of p rows; got 2*p",
    ),
    "a moving length of another state": (
        moving_and("p"),
        "state 0: has the moving length p on an axis that does not move; got [p]",
    ),
    "a moving length inside a size of another state": (
        moving_and("p+1"),
        "state 0: has the moving length p on an axis that does not move; got [p+1]",
    ),
    "a moving length on a later axis of another moving state": (
        moving_and("q", "p", axis=0),
        "state 0: has the moving length p on an axis that does not move; got [q, p]",
    ),
    "a moving length on two axes": (
        with_shapes((P, P), (P + N, P)),
        "state 0: has the moving length p on an axis that does not move; got [p, p]",
    ),
}


@pytest.mark.parametrize("name", SLOTS)
def test_each_law_of_slots(name: str) -> None:
    broken, message = SLOTS[name]
    with pytest.raises(ProgramError) as caught:
        verify(broken)
    assert str(caught.value) == f"function `main`, {message}"


def test_functions_with_states_are_not_called() -> None:
    (main,) = LAWFUL["the old value stays"].functions
    call = Call(CallKind.FUNCTION, 1, (0, 1, 2), (3, 4))
    outer = replace(main, name="outer", code=(call, Ret((3, 4))), states=())
    with pytest.raises(ProgramError, match="function `outer`, instruction 0: calls `main`, a function with states"):
        verify(replace(LAWFUL["the old value stays"], functions=(outer, main)))


def test_the_listing_shows_states() -> None:
    assert "    state p1 -> o1\n" in disassemble(LAWFUL["the old value stays"])
    assert "    state p1 -> o1 moving along axis 0\n" in disassemble(LAWFUL["new rows are written beyond the old rows"])
    assert "initially constant 0" in disassemble(program(copy(0, 3), copy(0, 4), states=(StateSlot(1, 1, 0),)))


def test_copies_of_states_are_counted() -> None:
    def copied(name: str) -> list[dict[int, Any]]:
        lawful = LAWFUL[name]
        return [summary.copied_nbytes for summary in summarise_states(lawful, lawful.functions[0])]

    assert copied("the old value stays") == [{}]
    assert copied("the old value is read first") == [{1: 16}]
    assert copied("new rows are written beyond the old rows") == [{0: 8 * N}]
    assert copied("the old rows are read after the new rows are written") == [{}]


def test_linking_asks_for_the_permission_to_write_in_place() -> None:
    lawful = LAWFUL["the old value is read by the destroying extern, element by element"]
    traits = {"next": CallTraits(), "add": CallTraits(in_place=IN_PLACE)}
    constants = {"0" * 64: np.ones(4, np.float32)}
    VirtualMachine(Executable(lawful, (TraitModule(traits),), constants))
    with pytest.raises(LinkError) as caught:
        VirtualMachine(Executable(lawful, (TraitModule({**traits, "add": CallTraits()}),), constants))
    assert str(caught.value) == (
        "function `main`, instruction 0: `add` does not permit output 0 in the memory of input 1; got o1 and p1"
    )


def test_damaged_states_raise_only_errors_of_programs() -> None:
    data = encode(LAWFUL["new rows are written beyond the old rows"])
    for position in range(len(data) - 12, len(data)):
        for byte in (0, 1, 2, 3, 127):
            damaged = data[:position] + bytes([byte]) + data[position + 1 :]
            try:
                verify(decode(damaged))
            except ProgramError:
                continue
    older = bytearray(
        encode(
            replace(
                LAWFUL["the old value stays"],
                functions=tuple(replace(f, states=()) for f in LAWFUL["the old value stays"].functions),
            )
        )
    )
    assert older[8] == 1
    older[8] = 3
    with pytest.raises(ProgramError):
        decode(bytes(older) + b"\0\0")
