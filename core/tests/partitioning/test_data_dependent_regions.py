"""Ops with data-dependent sizes in partition and codegen: permitted claims, and compilation together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from byoc_core import VirtualMachine, build, parse
from byoc_core.errors import CodegenError, InternalError, PartitionError
from byoc_core.ir import CALL, IRModule, verify
from byoc_core.partitioning import (
    AnnotateSupported,
    FuseOpsByPattern,
    MergeCompositeFunctions,
    PartitionLog,
    RunCodegen,
    check_partition,
    partition,
)
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.runtime.module import NDArray
from byoc_core.transform import evaluate_function

from core.tests.conftest import FakeBackend

CHAIN = """
class M:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        a = R.nn.relu(x)
        i = R.nonzero(a, out_types=[R.Tensor((2, "k"), "int64")])
        f = R.reshape(i, shape=("2*k",))
        s = R.add(f, f)
        b = R.add(a, x)
        e = R.broadcast_to(R.const(1.5, "float32"), shape=("k", 3))
        g = R.sum(e, axis=(0,))
        h = R.add(b, g)
        return s, h
"""
X = np.array([[1, 0, -2], [0, 3, 4]], np.float32)


def _regions(module: IRModule) -> list[list[str]]:
    functions = [f for f in module.functions.values() if "Codegen" in f.attrs]
    return [[binding.op.name for binding in function.bindings] for function in functions]


def _check(module: IRModule, *inputs: NDArray, backends: Sequence[object] = ()) -> None:
    results = VirtualMachine(build(module, backends))["main"](*inputs)
    results = results if isinstance(results, tuple) else (results,)
    for have, want in zip(results, evaluate_function(module, "main", inputs), strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)


def test_it_is_a_region_of_its_own() -> None:
    module = parse(CHAIN)
    after = partition(module, ["host"])
    regions = _regions(after)
    assert ["nonzero"] in regions
    assert sum(map(len, regions)) == 8
    assert partition(after, ["host"]) == after
    _check(module, X)
    _check(module, np.zeros((2, 3), np.float32))


def test_an_op_that_needs_the_size_comes_after_the_one_that_tells_it() -> None:
    """``a`` and ``h`` are neighbours through ``b``; the value with the size of ``h`` must not move above ``i``."""
    after = partition(parse(CHAIN), ["host"])
    order = [str(b.attrs["callee"]) for b in after["main"].bindings]
    bodies = [[inner.op.name for inner in after[callee].bindings] for callee in order]
    size_position = bodies.index(["nonzero"])
    assert all(size_position < position for position, body in enumerate(bodies) if "broadcast_to" in body)
    call = next(b for b in after["main"].bindings if "broadcast_to" in bodies[order.index(str(b.attrs["callee"]))])
    assert call.op is CALL
    assert any('"k"' in str(operand.type) for operand in call.operands)


def test_a_region_waits_for_a_size_that_only_its_last_op_needs() -> None:
    module = parse(
        """
class M:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((3,), "float32")):
        p = R.nn.relu(y)
        i = R.nonzero(x, out_types=[R.Tensor((1, "k"), "int64")])
        e = R.broadcast_to(p, shape=("k", 3))
        return e, i
"""
    )
    after = partition(module, ["host"])
    assert _regions(after) == [["nonzero"], ["nn.relu", "broadcast_to"]]
    _check(module, np.array([0, 2, 3], np.float32), np.array([1, -1, 0], np.float32))


def test_a_backend_that_does_not_say_so_is_not_asked(fake_backend: type[FakeBackend]) -> None:
    log = PartitionLog()
    fake = fake_backend("fake", ops=None)
    module = AnnotateSupported(fake, log=log)(parse(CHAIN))
    claimed = {binding.op.name: binding.codegen for binding in module["main"].bindings}
    assert claimed["nonzero"] is None
    assert claimed["reshape"] == "fake"
    (refusal,) = log.refusals("main", "i")
    assert (refusal.rejection.code, refusal.rejection.text) == (
        "data-dependent-size",
        "backend `fake` takes no data-dependent sizes",
    )


def test_the_host_takes_it_and_the_others_take_the_rest(fake_backend: type[FakeBackend]) -> None:
    fake = fake_backend("fake", ops=None)
    executable = build(parse(CHAIN), [fake])
    assert sorted(binding.op.name for function in fake.compiled for binding in function.bindings) == sorted(
        ["nn.relu", "reshape", "add", "add", "broadcast_to", "sum", "add"]
    )
    assert "data-dependent-size" in executable.report()


def test_no_composite_holds_it() -> None:
    log = PartitionLog()
    pattern = CompositePattern("fake.select", is_op("nonzero")(is_op("nn.relu")(wildcard())))
    module = parse(CHAIN)
    assert FuseOpsByPattern([replace(pattern, leaked="return")], log=log)(module) is module
    (refusal,) = log.refusals("main", "i")
    assert (refusal.pattern, refusal.rejection.code, refusal.rejection.text) == (
        "fake.select",
        "data-dependent-size",
        "the result sizes of `nonzero` depend on data",
    )


ANNOTATED = """
class M:
    @R.function
    def select(x: R.Tensor(("n",), "float32")):
        R.func_attr({"Codegen": "BACKEND", "global_symbol": "select_lib"})
        i = R.nonzero(x, out_types=[R.Tensor((1, "k"), "int64")])
        return i
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        i = select(x)
        j = R.reshape(i, shape=("k",))
        return j
"""


def test_its_call_returns_results() -> None:
    compiled = verify(RunCodegen()(parse(ANNOTATED.replace("BACKEND", "host"))))
    call = compiled["main"].bindings[0]
    assert call.op.name == "call_packed"
    assert dict(call.attrs) == {"symbol": "select_lib", "pure": True}
    _check(parse(ANNOTATED.replace("BACKEND", "host")), np.array([0, 1, 0, 2], np.float32))


def test_a_function_annotated_by_hand_for_another_backend_is_refused(fake_backend: type[FakeBackend]) -> None:
    fake = fake_backend("fake", ops=None)
    with pytest.raises(CodegenError) as caught:
        RunCodegen(backends=[fake])(parse(ANNOTATED.replace("BACKEND", "fake")))
    assert str(caught.value).splitlines()[0] == (
        "op `nonzero` in function `select`: backend `fake` refuses the compilation (data-dependent-size): "
        "backend `fake` takes no data-dependent sizes"
    )


def test_a_size_that_only_others_need_is_returned() -> None:
    """Nothing reads a value of size ``k``: the region returns such a value all the same."""
    text = """
class M:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        u, first, inverse, counts = R.unique(x, out_types=[R.Tensor(("k",), "float32"), R.Tensor(("k",), "int64"),
            R.Tensor(("n",), "int64"), R.Tensor(("k",), "int64")])
        b = R.broadcast_to(x, shape=("k", "n"))
        return inverse, b
"""
    module = parse(text)
    after = partition(module, ["host"])
    assert [str(t) for f in after.functions.values() for t in f.result_types if f.name.startswith("host_main_0")] == [
        'R.Tensor(("k",), "float32")',
        'R.Tensor(("n",), "int64")',
    ]
    _check(module, np.array([3, 1, 3, 3, 1], np.float32))
    unused = parse(text.replace("return inverse, b", "return inverse"))
    _check(unused, np.array([3, 1, 3], np.float32))


def test_the_checker_knows_the_law() -> None:
    module = parse(CHAIN)
    claimed = AnnotateSupported("host")(module)
    merged = MergeCompositeFunctions()(claimed)
    region = next(f for f in merged.functions.values() if any(b.op.name == "nonzero" for b in f.bindings))
    both = parse(
        CHAIN.replace(
            "    @R.function\n",
            """    @R.function
    def region(x: R.Tensor(("n", 3), "float32")):
        R.func_attr({"Codegen": "host", "global_symbol": "region"})
        a = R.nn.relu(x)
        i = R.nonzero(a, out_types=[R.Tensor((2, "k"), "int64")])
        return a, i
    @R.function
""",
            1,
        ).replace(
            '        a = R.nn.relu(x)\n        i = R.nonzero(a, out_types=[R.Tensor((2, "k"), "int64")])\n        f',
            "        a, i = region(x)\n        f",
        )
    )
    assert len(region.bindings) == 1
    with pytest.raises(InternalError) as caught:
        check_partition(module, both)
    assert (
        str(caught.value).splitlines()[0]
        == "region `region`: contains other ops beside an op with data-dependent sizes"
    )


def test_sizes_reach_the_regions_of_nested_bodies() -> None:
    """No parameter of the bodies has size ``n``, and ``k`` is learnt in between."""
    module = parse(
        """
class M:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
        i = R.nonzero(x, out_types=[R.Tensor((1, "k"), "int64")])
        @R.region
        def body(j: R.Tensor((), "int64"), y: R.Tensor((3,), "float32"), d: R.Tensor((), "bool")):
            @R.region
            def then(w: R.Tensor((3,), "float32")):
                z = R.broadcast_to(w, shape=("n", "k", 3))
                s = R.sum(z, axis=(0, 1))
                return s
            @R.region
            def otherwise(w: R.Tensor((3,), "float32")):
                return w
            u = R.if_(d, y, regions=[then, otherwise])
            return R.const(True, "bool"), u, d
        start = R.abs(R.const([1.0, -2.0, 3.0], "float32"))
        v, _ = R.loop(R.const(2, "int64"), R.const(True, "bool"), start, c, regions=[body])
        return v
"""
    )
    for flag in (True, False):
        for x in ([1, 0, 2], [], [0]):
            _check(module, np.array(flag), np.array(x, np.float32))


def test_what_no_backend_takes_is_an_error(fake_backend: type[FakeBackend]) -> None:
    with pytest.raises(PartitionError) as caught:
        build(parse(CHAIN), [fake_backend("fake", ops=None)], fallback="error")
    assert str(caught.value) == (
        'fallback="error": 1 ops with 0.0% of the FLOPs stay on the host\n'
        "  i = nonzero: fake: backend `fake` takes no data-dependent sizes"
    )
