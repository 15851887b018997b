"""Merging and its checker on deeply nested bodies and on calls of calls: no recursion limit, no exponential time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from byoc_core.errors import InternalError
from byoc_core.ir import Binding, Function, IRModule, Var, tensor
from byoc_core.ops import FunctionBuilder, default_ops
from byoc_core.partitioning import MergeCompositeFunctions, check_partition


def nested(depth: int, claim: str | None) -> IRModule:
    """Gives an ``if`` in an ``if``, and so on, with an op in the innermost branch."""
    row, flag = tensor((4,)), tensor((), "bool")
    p, x = Var("p", flag), Var("x", row)
    relu, if_ = default_ops().find("nn.relu"), default_ops().find("if")
    result = Var("y", row)
    body = Function("yes", (p, x), (Binding((result,), relu, (x,), codegen=claim),), (result,))
    for _ in range(depth):
        p, x, q, y, result = Var("p", flag), Var("x", row), Var("p", flag), Var("x", row), Var("y", row)
        other = Function("no", (q, y), (), (y,))
        body = Function("yes", (p, x), (Binding((result,), if_, (p, p, x), regions=(body, other)),), (result,))
    return IRModule({"main": replace(body, name="main")})


@pytest.mark.parametrize("depth", [40, 200])
def test_deep_nesting_is_partitioned_in_time_that_grows_with_the_depth(depth: int) -> None:
    before = nested(depth, "aone")
    after = MergeCompositeFunctions()(before)
    assert [name for name in after.functions if name != "main"] == ["aone_main_0"]
    with pytest.raises(InternalError, match="changed the results of function `main`"):
        check_partition(nested(depth, None), nested(depth + 1, None))


def test_calls_of_calls_are_looked_at_once() -> None:
    """Each of 60 functions calls the next one twice."""
    functions: dict[str, Function] = {}
    for index in range(60):
        builder = FunctionBuilder(f"f{index}", functions=functions)
        x = builder.param("x", tensor((4,)))
        if index:
            for _ in range(2):
                (x,) = builder.bind("call", [x], {"callee": f"f{index - 1}"}).results
        else:
            (x,) = builder.bind("nn.relu", [x], {}).results
        functions[f"f{index}"] = builder.finish(x)
    claimed = {
        name: replace(
            f, bindings=tuple(replace(b, codegen="aone") if b.op.name == "nn.relu" else b for b in f.bindings)
        )
        for name, f in functions.items()
    }
    after = MergeCompositeFunctions()(IRModule(claimed))
    assert [name for name in after.functions if name not in functions] == ["aone_f0_0"]
