"""Programs shared by tests of the machine."""

from __future__ import annotations

import pytest
from byoc_core.dims import parse_dim
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
)


@pytest.fixture
def rich_program() -> Program:
    """A program with every kind of register, instruction and call."""
    n, k = parse_dim("n"), parse_dim("k")
    scalar = TensorSpec("flag", "bool", ())
    x = TensorSpec("x", "float32", (n, 4))
    main = VMFunction(
        "main",
        (x, scalar),
        (TensorSpec("y", "float32", (n, 4)), TensorSpec("z", "int64", (k,))),
        (0,),
        (parse_dim("16*n"), 64),
        (PlannedTensor(0, 0, "float32", (n, 4)), PlannedTensor(1, 0, "int64", ())),
        (DynamicTensor("int64", (k,), ("k",)), DynamicTensor("int64", (k,))),
        (
            Call(CallKind.EXTERN, 0, (0, 4), (5,)),
            If(1, 4),
            Call(CallKind.FUNCTION, 1, (5,), (2,)),
            Goto(5),
            Call(CallKind.BUILTIN, Builtin.COPY, (0,), (2,)),
            Call(CallKind.PACKED, 1, (2,), (7,)),
            Call(CallKind.BUILTIN, Builtin.ALLOCATE, (), (8,)),
            Call(CallKind.BUILTIN, Builtin.COPY, (7,), (8,)),
            Ret((2, 8)),
        ),
    )
    double = VMFunction(
        "double",
        (TensorSpec("a", "float32", (parse_dim("m"), 4)),),
        (TensorSpec("b", "float32", (parse_dim("m"), 4)),),
        (),
        (),
        (),
        (),
        (Call(CallKind.EXTERN, 0, (0, 0), (1,)), Ret((1,))),
    )
    return Program((main, double), ("add", "nonzero"), (ConstantRef("0" * 64, "float32", (4,)),))
