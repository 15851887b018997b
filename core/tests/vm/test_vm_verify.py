"""Each law of programs has one program that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import ProgramError
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    ConstantRef,
    DynamicTensor,
    Goto,
    If,
    PlannedTensor,
    Program,
    Ret,
    VMFunction,
    verify,
)

n = parse_dim("n")
EXTERN, PACKED, FUNCTION, BUILTIN = CallKind.EXTERN, CallKind.PACKED, CallKind.FUNCTION, CallKind.BUILTIN


def edit_main(**changes: Any) -> Callable[[Program], Program]:
    def edit(program: Program) -> Program:
        main, *others = program.functions
        return replace(program, functions=(replace(main, **changes), *others))

    return edit


def edit_code(index: int, *instructions: Any) -> Callable[[Program], Program]:
    def edit(program: Program) -> Program:
        code = program.functions[0].code
        return edit_main(code=(*code[:index], *instructions, *code[index + 1 :]))(program)

    return edit


def edit_program(**changes: Any) -> Callable[[Program], Program]:
    return lambda program: replace(program, **changes)


FLAG = TensorSpec("flag", "bool", ())
BROKEN: dict[str, tuple[Callable[[Program], Program], str]] = {
    "two functions of one name": (edit_main(name="double"), "program: two functions are called `double`"),
    "a function without a name": (edit_main(name=""), "program: a function has no name"),
    "two equal externs": (edit_program(externs=("add", "add")), "program: two externs are called `add`"),
    "digest": (
        edit_program(constants=(ConstantRef("abc", "float32", (4,)),)),
        "constant 0: has no valid digest; got 'abc'",
    ),
    "dtype": (
        edit_program(constants=(ConstantRef("0" * 64, "flot32", (4,)),)),
        "constant 0: unknown dtype 'flot32'. Did you mean 'float32' or 'float64' or 'float16'?",
    ),
    "two equal params": (
        edit_main(params=(FLAG, FLAG)),
        "function `main`: two parameters are called `flag`",
    ),
    "constant index": (
        edit_main(constants=(3,)),
        "function `main`, register c0: cites a constant that the program does not have; got 3, expected less than 1",
    ),
    "negative storage": (
        edit_main(storages=(parse_dim("16*n"), -1)),
        "function `main`, storage 1: has a negative size; got -1",
    ),
    "storage of unknown size": (
        edit_main(storages=(parse_dim("16*q"), 64)),
        "function `main`, storage 0: the inputs do not determine q",
    ),
    "storage index": (
        edit_main(storages=(parse_dim("16*n"),)),
        "function `main`, register t1: lies in a storage that does not exist; got 1, expected less than 1",
    ),
    "alignment": (
        edit_main(tensors=(PlannedTensor(0, 0, "float32", (n, 4)), PlannedTensor(1, 8, "int64", ()))),
        "function `main`, register t1: is not aligned; got 8, expected a multiple of 64",
    ),
    "storage bounds": (
        edit_main(storages=(parse_dim("16*n"), 7)),
        "function `main`, register t1: reaches beyond storage 1; got 8 bytes at 0, expected at most 7 bytes",
    ),
    "symbolic storage bounds": (
        edit_main(storages=(parse_dim("8*n"), 64)),
        "function `main`, register t0: reaches beyond storage 0; got 16*n bytes at 0, expected at most 8*n bytes",
    ),
    "a bound symbol that the shape lacks": (
        edit_main(dynamics=(DynamicTensor("int64", (parse_dim("k"),), ("j",)),)),
        "function `main`, register v0: cannot bind the symbol j from the shape; got [k]",
    ),
    "a bound symbol of the inputs": (
        edit_main(dynamics=(DynamicTensor("int64", (n,), ("n",)),)),
        "function `main`, register v0: binds the symbol n, which the inputs bind",
    ),
    "no code": (edit_main(code=()), "function `main`: has no instructions"),
    "falls off the end": (
        lambda p: edit_main(code=p.functions[0].code[:-1])(p),
        "function `main`, instruction 7: the code runs past its end; expected ret or goto",
    ),
    "jump target": (
        edit_code(3, Goto(9)),
        "function `main`, instruction 3: jumps out of the function; got 9, expected less than 9",
    ),
    "register range": (
        edit_code(0, Call(EXTERN, 0, (0, 9), (5,))),
        "function `main`, instruction 0: no such register; got 9, expected less than 9",
    ),
    "extern range": (
        edit_code(0, Call(EXTERN, 2, (0,), (5,))),
        "function `main`, instruction 0: no such extern; got 2, expected less than 2",
    ),
    "function range": (
        edit_code(2, Call(FUNCTION, 2, (5,), (2,))),
        "function `main`, instruction 2: no such function; got 2, expected less than 2",
    ),
    "builtin range": (
        edit_code(4, Call(BUILTIN, 99, (0,), (2,))),
        "function `main`, instruction 4: no such builtin; got 99, expected less than 5",
    ),
    "argument count": (
        edit_code(2, Call(FUNCTION, 1, (5, 5), (2,))),
        "function `main`, instruction 2: wrong number of arguments of `double`; got 2, expected 1",
    ),
    "argument type": (
        edit_code(2, Call(FUNCTION, 1, (1,), (2,))),
        (
            "function `main`, instruction 2: register p1 does not fit `a` of the arguments of `double`; "
            "got bool[], expected float32[m, 4]"
        ),
    ),
    "builtin operand count": (
        edit_code(4, Call(BUILTIN, Builtin.COPY, (), (2,))),
        (
            "function `main`, instruction 4: wrong number of operands of copy; "
            "got 0 arguments and 1 results, expected 1 arguments and 1 results"
        ),
    ),
    "builtin operand type": (
        edit_code(4, Call(BUILTIN, Builtin.COPY, (1,), (2,))),
        "function `main`, instruction 4: operands of copy differ in type; got bool[], expected float32[n, 4]",
    ),
    "builtin scalar": (
        edit_code(4, Call(BUILTIN, Builtin.ZERO, (), (2,))),
        "function `main`, instruction 4: register o0 does not fit zero; got float32[n, 4], expected int64[]",
    ),
    "allocation of a planned tensor": (
        edit_code(6, Call(BUILTIN, Builtin.ALLOCATE, (), (6,))),
        "function `main`, instruction 6: register t1 cannot be allocated; expected a dynamic register",
    ),
    "no results": (
        edit_code(0, Call(EXTERN, 0, (0,), ())),
        "function `main`, instruction 0: a call without results",
    ),
    "written while read": (
        edit_code(4, Call(FUNCTION, 1, (5,), (5,))),
        "function `main`, instruction 4: register t0 is written while it is in use",
    ),
    "written input": (
        edit_code(0, Call(EXTERN, 0, (4,), (0,))),
        "function `main`, instruction 0: register p0 is read-only",
    ),
    "written constant": (
        edit_code(0, Call(EXTERN, 0, (0,), (4,))),
        "function `main`, instruction 0: register c0 is read-only",
    ),
    "value in a buffer": (
        edit_code(0, Call(PACKED, 0, (0,), (5,))),
        "function `main`, instruction 0: register t0 cannot take a returned value; expected a dynamic register",
    ),
    "buffer that binds": (
        edit_code(5, Call(EXTERN, 1, (2,), (7,))),
        "function `main`, instruction 5: register v0 binds symbols, so only a returned value can define it",
    ),
    "condition type": (
        edit_code(1, If(0, 4)),
        "function `main`, instruction 1: the condition is no bool scalar; got float32[n, 4]",
    ),
    "result count": (
        edit_code(8, Ret((2,))),
        "function `main`, instruction 8: wrong number of results of `main`; got 1, expected 2",
    ),
    "result register": (
        edit_code(8, Ret((5, 8))),
        "function `main`, instruction 8: result `y` is in the wrong register; got t0, expected o0",
    ),
    "dynamic result register": (
        edit_code(8, Ret((2, 3))),
        "function `main`, instruction 8: result `z` is in the wrong register; got o1, expected a dynamic register",
    ),
    "one register returned twice": (
        lambda p: edit_main(
            results=(p.functions[0].results[0], *(replace(p.functions[0].results[1], name=c) for c in "zw")),
            code=(Call(BUILTIN, Builtin.COPY, (0,), (2,)), Call(PACKED, 1, (0,), (8,)), Ret((2, 8, 8))),
        )(p),
        "function `main`, instruction 2: returns one register twice",
    ),
    "read before written": (
        edit_code(0, Goto(1)),
        "function `main`, instruction 2: register t0 is read before it is written",
    ),
    "written on one path only": (
        edit_code(4, Goto(5)),
        "function `main`, instruction 5: register o0 is read before it is written",
    ),
    "no buffer": (
        edit_code(6, Goto(7)),
        "function `main`, instruction 7: register v1 has no buffer to write",
    ),
    "symbol not known yet": (
        edit_code(5, Call(BUILTIN, Builtin.ALLOCATE, (), (8,))),
        "function `main`, instruction 5: the shape of register v1 needs k, not yet known",
    ),
    "a symbol learnt again makes old sizes stale": (
        edit_code(7, Call(BUILTIN, Builtin.COPY, (7,), (8,)), Call(PACKED, 1, (2,), (7,))),
        "function `main`, instruction 9: register v1 is read before it is written",
    ),
}


def test_the_unbroken_program_passes(rich_program: Program) -> None:
    verify(rich_program)


@pytest.mark.parametrize("law", BROKEN)
def test_law(law: str, rich_program: Program) -> None:
    edit, text = BROKEN[law]
    program = edit(rich_program)
    for _ in range(2):
        with pytest.raises(ProgramError) as caught:
            verify(program)
        assert str(caught.value) == text
    assert not program.is_verified


def test_a_lawful_program_is_checked_once(rich_program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program = replace(rich_program)
    verify(program)
    assert program.is_verified
    assert program == replace(program)
    assert not replace(program).is_verified
    monkeypatch.setitem(verify.__globals__, "check_dataflow", None)
    verify(program)
    with pytest.raises(TypeError):
        verify(replace(program))


def chain(tensors: tuple[PlannedTensor, ...], code: tuple[Any, ...], storages: tuple[Any, ...] = (256,)) -> Program:
    spec = TensorSpec("x", "float32", (n,))
    out = TensorSpec("y", "float32", (n,))
    return Program((VMFunction("main", (spec, FLAG), (out,), (), storages, tensors, (), code),), ("f",))


def block(offset: int, size: Any = 16, storage: int = 0) -> PlannedTensor:
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
    assert "are in use at once and share bytes" in str(caught.value)


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
