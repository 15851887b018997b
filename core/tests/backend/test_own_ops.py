"""Ops of backends, in registries and in the modules built for these backends."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import BackendHandle, BackendInfo, Backends, CodegenResult, Rejection
from byoc_core.backend.contained import ContainedBackend, HookFailure
from byoc_core.backend.hooks import hookimpl
from byoc_core.backend.own_ops import ops_with, with_own_ops
from byoc_core.errors import HookError, IRError
from byoc_core.ir import IRModule, OpDef, OperandSpec, OpRegistry
from byoc_core.ops import default_ops
from byoc_core.partitioning import partition
from byoc_core.pattern import is_op, wildcard
from byoc_core.plugin import Catalog
from byoc_core.runtime.module import NDArray
from byoc_core.transform.rewriter import pattern_rule, rewrite_module

pytestmark = pytest.mark.asks_for_plugins

TEXT = """
def main(x: R.Tensor(("n",), "float32")):
    a = R.sigmoid(x)
    b = R.multiply(x, a)
    return b
"""


def make_swish(name: str = "mynpu.swish") -> OpDef:
    def kernel(x: NDArray) -> Any:
        return x / (1 + np.exp(-x))

    return OpDef(name, (OperandSpec("x"),), infer=lambda context: (context.operands[0],), kernel=kernel)


def backend_of(name: str = "mynpu", **hooks: Callable[..., object]) -> types.SimpleNamespace:
    hooks = {
        "byoc_backend_info": lambda: BackendInfo(name),
        "byoc_codegen": lambda functions: CodegenResult(None),
        "byoc_supports": lambda binding: Rejection("no", "takes nothing"),
        **hooks,
    }
    return types.SimpleNamespace(**{key: hookimpl(function) for key, function in hooks.items()})


def handle_of(name: str = "mynpu", **hooks: Callable[..., object]) -> BackendHandle:
    return Backends(Catalog("byoc.backends", [])).get(backend_of(name, **hooks))


def test_texts_are_parsed_with_the_ops_of_backends() -> None:
    handle = handle_of(byoc_ops=lambda: [make_swish()])
    ops = ops_with([handle])
    assert [*ops] == [*default_ops(), "mynpu.swish"]
    assert ops["mynpu.swish"] is handle.ops()[0]  # asked once: an op is one object
    assert dict(ops_with([])) == dict(default_ops())


def test_a_module_gets_the_ops_of_its_backends() -> None:
    swish, module = make_swish(), R.parse(TEXT)
    handle = handle_of(byoc_ops=lambda: [swish])
    known = with_own_ops(module, [handle])
    assert known == module
    assert known.knows(swish)
    assert with_own_ops(known, [handle]) is known
    assert with_own_ops(module, [handle_of()]) is module


def test_names_of_the_module_keep_their_meaning() -> None:
    mine, theirs = make_swish(), make_swish()
    module = IRModule(ops=default_ops().extended([mine]))
    handle = handle_of(byoc_ops=lambda: [theirs, make_swish("add")])
    assert with_own_ops(module, [handle]) is module
    assert module.knows(mine)
    assert not module.knows(theirs)


def test_a_registry_of_a_few_ops_gets_the_core_s() -> None:
    module = IRModule(ops=OpRegistry([default_ops()["exp"], make_swish()]))
    assert with_own_ops(module, []).ops.keys() == {*default_ops(), "mynpu.swish"}


def test_another_op_under_a_name_of_the_core_s_is_an_error() -> None:
    with pytest.raises(IRError) as caught:
        with_own_ops(IRModule(ops=OpRegistry([make_swish("add")])), [])
    assert str(caught.value) == (
        "op `add`: is in the module's registry, but differs from the core's op. Rename the op: "
        "rules for the core's op would rewrite the op of the module."
    )


def test_two_backends_with_different_ops_of_one_name() -> None:
    handles = [handle_of(name, byoc_ops=lambda: [make_swish()]) for name in ("one", "two")]
    with pytest.raises(IRError) as caught:
        with_own_ops(IRModule(), handles)
    assert str(caught.value) == (
        "op `mynpu.swish`: has different definitions in backends `one` and `two`. Build the module "
        "with a registry holding the intended op."
    )
    meant = IRModule(ops=default_ops().extended([make_swish()]))
    assert with_own_ops(meant, handles) is meant


def fail() -> list[OpDef]:
    raise ValueError("no ops today")


def test_a_hook_that_raises_takes_the_backend_out_of_a_build() -> None:
    with pytest.raises(HookError, match="no ops today"):
        with_own_ops(IRModule(), [handle_of(byoc_ops=fail)])
    failures: list[HookFailure] = []
    contained = ContainedBackend(handle_of(byoc_ops=fail), failures)
    assert with_own_ops(IRModule(), [contained]).ops is default_ops()
    assert [(failure.hook, failure.text) for failure in failures] == [("byoc_ops", "raised ValueError: no ops today")]
    assert contained.patterns() == ()
    assert contained.ops() == ()


def fuse(module: IRModule) -> IRModule:
    """Rewrite to the backend's own op, found by name."""
    x = wildcard().named("x")
    pattern = is_op("multiply")(x, is_op("sigmoid")(x))
    rule = pattern_rule(pattern, lambda match, graph: graph.emit("mynpu.swish", [match["x"]]))
    return rewrite_module(module, {"multiply": [rule]})


def test_what_prepares_a_module_emits_the_backend_s_ops_by_name() -> None:
    plugin = backend_of(byoc_ops=lambda: [make_swish()], byoc_prepare=fuse)
    executable = byoc_core.build(R.parse(TEXT), [plugin], strict=True)
    assert [op["op"] for op in executable.report_data["ops"]] == ["mynpu.swish"]
    x = np.linspace(-3, 3, 5, dtype=np.float32)
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), x / (1 + np.exp(-x)))


def test_partition_gives_the_module_the_ops_of_its_backends() -> None:
    module = R.parse(TEXT)
    assert "mynpu.swish" in partition(module, [backend_of(byoc_ops=lambda: [make_swish()])]).ops
    assert "mynpu.swish" not in module.ops
    assert partition(replace(module, name="Same"), [backend_of()]).ops is default_ops()
