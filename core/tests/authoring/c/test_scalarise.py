"""Scalarisation: lanes computed in sequence equal lanes computed side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.authoring.c import (
    C11,
    Alias,
    Assign,
    Block,
    Broadcast,
    Buffer,
    Call,
    Callee,
    Cast,
    CType,
    Declare,
    Function,
    Lane,
    Let,
    Load,
    MemoryAccess,
    Raw,
    Size,
    Store,
    Variable,
    interpret,
    print_function,
    scalarise,
    verify,
)
from byoc_core.errors import InternalError

FLOAT = CType("float32")
VECTOR = FLOAT.with_lanes(4)
V = Variable("v", VECTOR)
X = Buffer("x", "float32", MemoryAccess.WRITE)
ONE, OTHER = (Buffer(name, "float32", MemoryAccess.SHARED) for name in ("one", "other"))
ROW = Load(X, Size(0), 4)
POINTER = Buffer("p", "float32", MemoryAccess.WRITE)

BODIES: dict[str, Block] = {
    "shifted": (Store(X, Size(1), Load(X, Size(0), 4)),),
    "in place": (Store(X, Size(1), Load(X, Size(1), 4) * 2),),
    "by an element of its own": (Store(X, Size(0), Load(X, Size(0), 4) * Broadcast(X[1], 4)),),
    "by a lane of its own": (
        Store(X, Size(0), Load(X, Size(0), 4) * Broadcast(Lane(Load(X, Size(0), 4), Size(1)), 4)),
    ),
    "shared memory": (Store(ONE, Size(1), Load(OTHER, Size(0), 4)),),
    "by way of a pointer": (Alias(POINTER, X, Size(1)), Store(POINTER, Size(0), Load(X, Size(0), 4))),
    "a variable by its own lane": (
        Declare(V, Load(X, Size(2), 4)),
        Assign(V, V * Broadcast(Lane(V, Size(0)), 4)),
        Store(X, Size(0), V),
    ),
    "a conversion": (Store(X, Size(2), Cast(Cast(Load(X, Size(0), 4), CType("int32", 4)), VECTOR)),),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_lanes_one_after_another_compute_the_same(body: Block) -> None:
    function = verify(Function("f", (X, ONE, OTHER), body))
    results = []
    for item in (function, verify(scalarise(function))):
        memory: npt.NDArray[Any] = np.arange(1.5, 7, dtype=np.float32)
        shared: npt.NDArray[Any] = np.arange(1.5, 7, dtype=np.float32)
        interpret(item, {X: memory, ONE: shared, OTHER: shared})
        results.append([*memory.tolist(), *shared.tolist()])
    assert results[0] == results[1]


def test_no_vector_is_left() -> None:
    body = (Let(V, Load(X, Size(0), 4)), Store(X, Size(4), V * V))
    assert print_function(scalarise(Function("f", (X,), body)), C11).splitlines()[1:-1] == [
        "  float v[4];",
        "  for (int64_t lane = 0; lane < 4; ++lane) v[lane] = x[lane];",
        "  for (int64_t lane = 0; lane < 4; ++lane) x[4 + lane] = v[lane] * v[lane];",
    ]


@pytest.mark.parametrize(
    "body",
    [
        (Store(X, Size(0), Raw("__builtin_shuffle({0}, {0})", VECTOR, (Load(X, Size(0), 4),))),),
        (Store(X, Size(0), Call(Callee("total"), (Load(X, Size(0), 4),), FLOAT)),),
    ],
    ids=["a text", "a call"],
)
def test_what_has_no_form_by_lanes_is_an_error(body: Block) -> None:
    with pytest.raises(InternalError, match="has no scalar form"):
        scalarise(Function("f", (X,), body))
