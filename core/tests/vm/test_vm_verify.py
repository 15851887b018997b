"""Each law of programs with a violating program."""

from __future__ import annotations

import sys
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
    View,
    verify,
)
from byoc_core.vm.instructions import Instruction

pytestmark = pytest.mark.interpreter

n = parse_dim("n")
EXTERN, PACKED, FUNCTION, BUILTIN = CallKind.EXTERN, CallKind.PACKED, CallKind.FUNCTION, CallKind.BUILTIN


def edit_main(**changes: Any) -> Callable[[Program], Program]:
    def edit(program: Program) -> Program:
        main, *others = program.functions
        return replace(program, functions=(replace(main, **changes), *others))

    return edit


def edit_code(index: int, *instructions: Instruction) -> Callable[[Program], Program]:
    def edit(program: Program) -> Program:
        code = program.functions[0].code
        return edit_main(code=(*code[:index], *instructions, *code[index + 1 :]))(program)

    return edit


def edit_program(**changes: Any) -> Callable[[Program], Program]:
    return lambda program: replace(program, **changes)


FLAG = TensorSpec("flag", "bool", ())
MANY_TERMS = parse_dim("+".join(f"s{index}" for index in range(8)))
SHAPE_OF_MANY = f"[{', '.join([str(MANY_TERMS)] * 4)}]"
"""The product of four sums of eight has 330 terms; of three, 120."""
UNKNOWN_FLOAT = "unknown dtype 'float'. Did you mean 'float64' or 'float32' or 'float16'?"
BROKEN: dict[str, tuple[Callable[[Program], Program], str]] = {
    "two functions of one name": (edit_main(name="double"), "program: two functions have the name `double`"),
    "a function without a name": (edit_main(name=""), "program: a function has no name"),
    "two equal externs": (edit_program(externs=("add", "add")), "program: two externs have the name `add`"),
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
        "function `main`: two parameters have the name `flag`",
    ),
    "constant index": (
        edit_main(constants=(3,)),
        "function `main`, register c0: cites a missing constant; got 3, expected less than 1",
    ),
    "negative storage": (
        edit_main(storages=(parse_dim("16*n"), -1)),
        "function `main`, storage 1: has a negative size; got -1",
    ),
    "storage of unknown size": (
        edit_main(storages=(parse_dim("16*q"), 64)),
        "function `main`, storage 0: the inputs do not determine the symbols q",
    ),
    "storage index": (
        edit_main(storages=(parse_dim("16*n"),)),
        "function `main`, register t1: lies in a missing storage; got 1, expected less than 1",
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
    "number of elements": (
        edit_main(params=(TensorSpec("x", "float32", (MANY_TERMS,) * 4), FLAG)),
        f"function `main`, parameter `x`: the number of elements cannot be computed; got {SHAPE_OF_MANY[:200]}",
    ),
    "a bound symbol that the shape lacks": (
        edit_main(dynamics=(DynamicTensor("int64", (parse_dim("k"),), ("j",)),)),
        "function `main`, register v0: symbol j cannot be computed from the shape; got [k]",
    ),
    "a bound symbol of the inputs": (
        edit_main(dynamics=(DynamicTensor("int64", (n,), ("n",)),)),
        "function `main`, register v0: binds symbol n, already bound by the inputs",
    ),
    "a bound symbol that the shape does not determine": (
        edit_main(dynamics=(DynamicTensor("int64", (parse_dim("k//2"),), ("k",)),)),
        "function `main`, register v0: symbol k cannot be computed from the shape; got [k//2]",
    ),
    "negative size": (
        edit_main(params=(TensorSpec("x", "float32", (n, -4)), FLAG)),
        "function `main`, parameter `x`: axis 1 has a negative size; got -4",
    ),
    "dtype of a parameter": (
        edit_main(params=(TensorSpec("x", "float", (n, 4)), FLAG)),
        f"function `main`, parameter `x`: {UNKNOWN_FLOAT}",
    ),
    "dtype of a result": (
        edit_main(results=(TensorSpec("y", "float", (n, 4)),)),
        f"function `main`, result `y`: {UNKNOWN_FLOAT}",
    ),
    "dtype of a tensor": (
        edit_main(tensors=(PlannedTensor(0, 0, "float", (n, 4)),)),
        f"function `main`, register t0: {UNKNOWN_FLOAT}",
    ),
    "dtype of a view": (
        edit_main(views=(View(0, 0, "float", (n, 4)),)),
        f"function `main`, register w0: {UNKNOWN_FLOAT}",
    ),
    "dtype of a dynamic register": (
        edit_main(dynamics=(DynamicTensor("float", (n,)),)),
        f"function `main`, register v0: {UNKNOWN_FLOAT}",
    ),
    "two equal results": (
        edit_main(results=(FLAG, FLAG)),
        "function `main`: two results have the name `flag`",
    ),
    "constant index one too large": (
        edit_main(constants=(1,)),
        "function `main`, register c0: cites a missing constant; got 1, expected less than 1",
    ),
    "tensor of unknown size": (
        edit_main(tensors=(PlannedTensor(0, 0, "float32", (parse_dim("q"), parse_dim("r"))),)),
        "function `main`, register t0: the inputs do not determine the symbols q, r",
    ),
    "shape of a view of unknown size": (
        edit_main(views=(View(0, 0, "float32", (parse_dim("q"),)),)),
        "function `main`, register w0: the inputs do not determine the symbols q",
    ),
    "strides of a view of unknown size": (
        edit_main(views=(View(0, 0, "float32", (n, 4), (parse_dim("q"), 4)),)),
        "function `main`, register w0: the inputs do not determine the symbols q",
    ),
    "storage bounds beyond an offset": (
        edit_main(tensors=(PlannedTensor(0, 0, "float32", (n, 4)), PlannedTensor(1, 64, "int64", ()))),
        "function `main`, register t1: reaches beyond storage 1; got 8 bytes at 64, expected at most 64 bytes",
    ),
    "no code": (edit_main(code=()), "function `main`: has no instructions"),
    "falls off the end": (
        lambda p: edit_main(code=p.functions[0].code[:-1])(p),
        "function `main`, instruction 7: the last instruction does not end the code; expected ret or goto",
    ),
    "jump target": (
        edit_code(3, Goto(9)),
        "function `main`, instruction 3: the jump target is outside the function; got 9, expected less than 9",
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
        "function `main`, instruction 4: no such builtin; got 99, expected less than 6",
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
    "plain sizes of an argument": (
        lambda p: edit_code(2, Call(FUNCTION, 1, (5,), (2,)))(
            edit_main(tensors=(PlannedTensor(0, 0, "float32", (n, 2)), p.functions[0].tensors[1]))(p)
        ),
        (
            "function `main`, instruction 2: register t0 does not fit `a` of the arguments of `double`; "
            "got float32[n, 2], expected float32[m, 4]"
        ),
    ),
    "dtype of an argument": (
        edit_main(tensors=(PlannedTensor(0, 0, "int32", (n, 4)), PlannedTensor(1, 0, "int64", ()))),
        (
            "function `main`, instruction 2: register t0 does not fit `a` of the arguments of `double`; "
            "got int32[n, 4], expected float32[m, 4]"
        ),
    ),
    "result count of a call": (
        edit_code(2, Call(FUNCTION, 1, (5,), (2, 3))),
        "function `main`, instruction 2: wrong number of results of `double`; got 2, expected 1",
    ),
    "builtin argument type": (
        edit_code(4, Call(BUILTIN, Builtin.LOOP_TEST, (0, 6, 1), (1,))),
        "function `main`, instruction 4: register p0 does not fit loop_test; got float32[n, 4], expected int64[]",
    ),
    "builtin argument rank": (
        edit_code(4, Call(BUILTIN, Builtin.LOOP_TEST, (6, 3, 1), (1,))),
        "function `main`, instruction 4: register o1 does not fit loop_test; got int64[k], expected int64[]",
    ),
    "builtin scalar": (
        edit_code(4, Call(BUILTIN, Builtin.ZERO, (), (2,))),
        "function `main`, instruction 4: register o0 does not fit zero; got float32[n, 4], expected int64[]",
    ),
    "allocation of a planned tensor": (
        edit_code(6, Call(BUILTIN, Builtin.ALLOCATE, (), (6,))),
        "function `main`, instruction 6: register t1 cannot be allocated; expected a dynamic register",
    ),
    "clone count": (
        edit_code(5, Call(BUILTIN, Builtin.CLONE, (2, 2), (7,))),
        (
            "function `main`, instruction 5: wrong operands of clone; got 2 arguments and 1 different results, "
            "expected a different result for each argument"
        ),
    ),
    "clone into one register": (
        edit_code(5, Call(BUILTIN, Builtin.CLONE, (7, 7), (8, 8))),
        (
            "function `main`, instruction 5: wrong operands of clone; got 2 arguments and 1 different results, "
            "expected a different result for each argument"
        ),
    ),
    "clone into a buffer": (
        edit_code(4, Call(BUILTIN, Builtin.CLONE, (0,), (2,))),
        "function `main`, instruction 4: register o0 cannot be defined; expected a dynamic register",
    ),
    "clone of another type": (
        edit_code(5, Call(BUILTIN, Builtin.CLONE, (2,), (7,))),
        "function `main`, instruction 5: operands of clone differ in type; got float32[n, 4], expected int64[k]",
    ),
    "no results": (
        edit_code(0, Call(EXTERN, 0, (0,), ())),
        "function `main`, instruction 0: a call without results",
    ),
    "written while read": (
        edit_code(4, Call(FUNCTION, 1, (5,), (5,))),
        "function `main`, instruction 4: register t0 is written while in use",
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
        "function `main`, instruction 0: register t0 cannot hold a returned value; expected a dynamic register",
    ),
    "buffer that binds": (
        edit_code(5, Call(EXTERN, 1, (2,), (7,))),
        "function `main`, instruction 5: register v0 binds symbols: only a returned value can define the register",
    ),
    "builtin that binds": (
        edit_code(5, Call(BUILTIN, Builtin.ALLOCATE, (), (7,))),
        "function `main`, instruction 5: register v0 binds symbols: only a returned value can define the register",
    ),
    "condition rank": (
        lambda p: edit_main(params=(p.functions[0].params[0], TensorSpec("flag", "bool", (2,))))(p),
        "function `main`, instruction 1: the condition is not a bool scalar; got bool[2]",
    ),
    "condition type": (
        edit_code(1, If(0, 4)),
        "function `main`, instruction 1: the condition is not a bool scalar; got float32[n, 4]",
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
        "function `main`, instruction 2: returns the same register twice",
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


LAWFUL: dict[str, Callable[[Program], Program]] = {
    "no elements": edit_main(
        storages=(parse_dim("16*n"), 0),
        tensors=(PlannedTensor(0, 0, "float32", (n, 4)), PlannedTensor(1, 0, "int64", (0,))),
    ),
    "a jump to the first instruction": edit_code(3, Goto(0)),
    "a symbol beside one that is known already": edit_main(
        dynamics=(
            DynamicTensor("int64", (parse_dim("k"),), ("k",)),
            DynamicTensor("int64", (parse_dim("j+k"),), ("j",)),
        ),
        code=(Call(EXTERN, 0, (0,), (2,)), Call(PACKED, 1, (2,), (7,)), Call(PACKED, 1, (2,), (8,)), Ret((2, 7))),
    ),
    "two results in their order": lambda p: edit_main(
        results=tuple(replace(p.functions[0].results[0], name=name) for name in "yz"),
        code=(Call(EXTERN, 0, (0,), (2, 3)), Ret((2, 3))),
    )(p),
}


@pytest.mark.parametrize("case", LAWFUL)
def test_lawful_edges(case: str, rich_program: Program) -> None:
    verify(LAWFUL[case](rich_program))


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
    monkeypatch.setattr(sys.modules[verify.__module__], "check_dataflow", None)
    verify(program)
    with pytest.raises(TypeError):
        verify(replace(program))
