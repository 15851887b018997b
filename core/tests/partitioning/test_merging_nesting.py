"""Merging and the checker on deeply nested bodies and on calls of calls: no exponential time, and a clear limit."""

from __future__ import annotations

from dataclasses import replace

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import InternalError, VerifyError
from byoc_core.ir import Binding, Function, IRModule, Var, tensor, verify
from byoc_core.ir.verifier import MAX_NESTING
from byoc_core.ops import FunctionBuilder, default_ops
from byoc_core.partitioning import MergeCompositeFunctions, check_partition, partition
from byoc_core.pattern import CompositePattern, is_op, wildcard

from core.tests.conftest import FakeBackend


def nested(depth: int, claim: str | None) -> IRModule:
    """Return an ``if`` in an ``if``, and so on, with an op in the innermost branch."""
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


@pytest.mark.parametrize("depth", [30, MAX_NESTING - 1])
def test_deep_nesting_is_partitioned_in_time_that_grows_with_the_depth(depth: int) -> None:
    before = nested(depth, "aone")
    after = MergeCompositeFunctions()(before)
    assert [name for name in after.functions if name != "main"] == ["aone_main_0"]
    with pytest.raises(InternalError, match="changed the results of function `main`"):
        check_partition(nested(depth, None), nested(depth + 1, None))


def test_the_deepest_nest_is_partitioned_built_and_run(fake_backend: type[FakeBackend]) -> None:
    module = nested(MAX_NESTING, None)
    pattern = CompositePattern("aone.relu", is_op("nn.relu")(wildcard()))
    after = partition(module, [fake_backend("aone", patterns=[pattern])])
    assert [name for name in after.functions if name != "main"] == ["aone_main_0"]
    executable = byoc_core.build(module, backends=[])
    x = np.array([-1, 0, 1, 2], np.float32)
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](np.array(True), x), np.maximum(x, 0))


@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 300, 3000])
def test_a_deeper_nest_is_refused_by_name(depth: int) -> None:
    module = nested(depth, None)
    for use in (verify, lambda nest: partition(nest, []), lambda nest: byoc_core.build(nest, backends=[])):
        with pytest.raises(VerifyError) as caught:
            use(module)
        assert str(caught.value) == (
            "function `main`, binding `y`: bodies are nested more than 64 deep. "
            "Move the inner bodies into a function and call the function."
        )


def test_calls_of_calls_are_looked_at_once() -> None:
    """Each of 60 functions calls the next twice."""
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
