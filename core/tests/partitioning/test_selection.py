"""The choice among several matches for a composite, and the notes on the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import PatternError
from byoc_core.ir import IRModule, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.partitioning import (
    FuseOpsByPattern,
    PartitionLog,
    Refusal,
    RunCodegen,
    check_partition,
    partition,
)
from byoc_core.partitioning.claiming import selection
from byoc_core.pattern import CompositePattern, Rejection, is_op, wildcard

from core.tests.conftest import FakeBackend, RunCompiled

TANH = is_op("tanh")(wildcard())
RELU_TANH = is_op("nn.relu")(TANH)


def chain(*ops: str) -> IRModule:
    body = (f"    v{i + 1} = R.{op}(v{i})\n" for i, op in enumerate(ops))
    return R.parse(f"def main(v0: R.Tensor((4,))):\n{''.join(body)}    return v{len(ops)}\n")


def test_a_condition_that_raises_names_pattern_and_place() -> None:
    def is_large(value: object) -> bool:
        raise TypeError("a symbolic size has no order")

    pattern = CompositePattern("aone.tanh", is_op("tanh")(wildcard().where(is_large)))
    with pytest.raises(PatternError) as caught:
        FuseOpsByPattern([pattern])(chain("tanh"))
    assert str(caught.value) == (
        "pattern `aone.tanh`: a condition raised TypeError: a symbolic size has no order\n"
        "  @R.function\n"
        '  def main(v0: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):\n'
        ">     v1 = R.tanh(v0)\n"
        "      return v1"
    )


def fuse(module: IRModule, *patterns: CompositePattern) -> tuple[list[str], PartitionLog]:
    """Return names and pattern of ``main``'s bindings after fusion, and the log."""
    log = PartitionLog()
    fused = FuseOpsByPattern(patterns, log=log)(module)
    check_partition(module, fused)
    described = [f"{b.results[0].name}={b.attrs.get('name', b.op.name)}" for b in fused["main"].bindings]
    return described, log


def test_the_refusal_of_a_lost_match_names_the_winner() -> None:
    large = CompositePattern("aone.tanh_relu", RELU_TANH)
    small = CompositePattern("aone.tanh", TANH)
    fused, log = fuse(chain("tanh", "nn.relu", "exp"), small, large)
    assert fused == ["v2=aone.tanh_relu", "v3=exp"]
    lost = Rejection("lost", "lost to `aone.tanh_relu` at `v2`")
    assert log.refusals("main", "v1") == (Refusal("aone", lost, "aone.tanh", ("v1",)),)
    assert log.refusals("main", "v2") == ()


def test_a_match_may_lose_to_two() -> None:
    three = CompositePattern("aone.three", is_op("tanh")(is_op("nn.relu")(TANH)))
    tanh = CompositePattern("aone.tanh", TANH, priority=1)
    fused, log = fuse(chain("tanh", "nn.relu", "tanh"), three, tanh)
    assert fused == ["v1=aone.tanh", "v2=nn.relu", "v3=aone.tanh"]
    lost = Rejection("lost", "lost to `aone.tanh` at `v1` and `aone.tanh` at `v3`")
    assert log.refusals("main", "v3") == (Refusal("aone", lost, "aone.three", ("v1", "v3")),)


ORDERS = {
    "priority": (
        [CompositePattern("aone.large", RELU_TANH), CompositePattern("aone.small", TANH, priority=1)],
        ["v1=aone.small", "v2=nn.relu"],
    ),
    "more ops": (
        [CompositePattern("aone.small", TANH), CompositePattern("aone.large", RELU_TANH)],
        ["v2=aone.large"],
    ),
    "pattern order": (
        [CompositePattern("aone.first", RELU_TANH), CompositePattern("aone.second", RELU_TANH)],
        ["v2=aone.first"],
    ),
}


@pytest.mark.parametrize("label", ORDERS)
def test_the_order_of_selection(label: str) -> None:
    patterns, expected = ORDERS[label]
    assert fuse(chain("tanh", "nn.relu"), *patterns)[0] == expected


def test_among_equals_the_earlier_position_wins() -> None:
    pair = CompositePattern("aone.pair", is_op("tanh")(TANH))
    fused, log = fuse(chain("tanh", "tanh", "tanh"), pair)
    assert fused == ["v2=aone.pair", "v3=tanh"]
    assert [r.ops for r in log.refusals("main", "v3")] == [("v2",)]


def test_among_matches_of_one_pattern_at_one_root_the_first_alternative_wins() -> None:
    module = R.parse("""
def main(x: R.Tensor((4,))):
    a = R.tanh(x)
    b = R.exp(x)
    c = R.add(a, b)
    return c
""")
    either = is_op("add")(is_op("tanh")(wildcard()), wildcard()) | is_op("add")(wildcard(), is_op("exp")(wildcard()))
    swapped = is_op("add")(wildcard(), is_op("exp")(wildcard())) | is_op("add")(is_op("tanh")(wildcard()), wildcard())
    assert fuse(module, CompositePattern("aone.one", either))[0] == ["b=exp", "c=aone.one"]
    assert fuse(module, CompositePattern("aone.one", swapped))[0] == ["a=tanh", "c=aone.one"]


CROSSED = """
def main(x: R.Tensor((4,))):
    a = R.tanh(x)
    b = R.tanh(x)
    c = R.exp(a)
    d = R.exp(b)
    e = R.add(a, d)
    f = R.add(b, c)
    return e, f
"""


def test_a_composite_that_would_close_a_cycle_is_left_out_and_the_way_is_named() -> None:
    """Each pair alone is convex: `e` and `a`, `f` and `b`; but each reads the other's result."""
    pattern = CompositePattern("aone.residual", is_op("add")(TANH, wildcard()), leaked="return")
    fused, log = fuse(R.parse(CROSSED), pattern)
    assert fused == ["b=tanh", "d=exp", "e=aone.residual", "c=exp", "f=add"]
    cycle = Rejection("would-close-cycle", "the composite would depend on itself through `d`, `e`, `a`, `c`")
    assert log.refusals("main", "f") == (Refusal("aone", cycle, "aone.residual", ("d", "e", "a", "c")),)


def test_a_match_over_an_impure_call_names_it() -> None:
    module = R.parse("""
def main(x: R.Tensor((4,))):
    a = R.tanh(x)
    e = R.call_packed("log", (x,), out_types=[R.Tensor((4,))])
    b = R.nn.relu(a)
    return b, e
""")
    fused, log = fuse(module, CompositePattern("aone.pair", RELU_TANH))
    assert fused == ["a=tanh", "e=call_packed", "b=nn.relu"]
    barrier = Rejection("barrier", "ops with effects lie between the ops of the match: `call_packed` at `e`")
    assert log.refusals("main", "b") == (Refusal("aone", barrier, "aone.pair", ("e",)),)


def test_an_impure_op_itself_is_in_no_composite() -> None:
    module = R.parse("""
def main(x: R.Tensor((4,))):
    e = R.call_packed("log", (x,), out_types=[R.Tensor((4,))])
    return e
""")
    fused, log = fuse(module, CompositePattern("aone.log", is_op("call_packed")(wildcard())))
    assert fused == ["e=call_packed"]
    assert [refusal.rejection.code for refusal in log.refusals("main", "e")] == ["barrier"]


def leaking(num_ops: int) -> IRModule:
    """A ladder with a leaking pair in every rung, each read by the next two rungs."""
    builder = FunctionBuilder("main")
    left = right = builder.param("x", tensor((4,)))
    for _ in range(num_ops // 4):
        a, b = (builder.bind("tanh", (value,), {}).results[0] for value in (left, right))
        left, right = (builder.bind("add", pair, {}).results[0] for pair in ((a, b), (b, a)))
    return IRModule({"main": builder.finish(left, right)}, builder.constants)


def test_many_composites_that_leak_take_steps_in_proportion_to_the_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is an edge followed by the searches for a cycle."""
    steps = 0
    edges = selection._GroupOrder._edges

    def counted(positions: Sequence[int], sources: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
        nonlocal steps
        for edge in edges(positions, sources):
            steps += 1
            yield edge

    monkeypatch.setattr(selection._GroupOrder, "_edges", staticmethod(counted))
    pattern = CompositePattern("aone.sum", is_op("add")(TANH, wildcard()), leaked="return")
    counts = []
    for num_ops in (200, 1_600):
        module, steps = leaking(num_ops), 0
        fused = FuseOpsByPattern([pattern])(module)
        assert len(fused["main"].bindings) < len(module["main"].bindings)
        counts.append(steps)
    assert counts[0] > 200
    assert counts[1] <= 8.5 * counts[0]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_only_ties_depend_on_the_order_of_patterns(order: Sequence[int]) -> None:
    patterns = [
        CompositePattern("aone.large", RELU_TANH),
        CompositePattern("aone.small", TANH),
        CompositePattern("aone.exp", is_op("exp")(wildcard()), priority=2),
    ]
    fused, _ = fuse(chain("exp", "tanh", "nn.relu", "tanh"), *(patterns[i] for i in order))
    assert fused == ["v1=aone.exp", "v3=aone.large", "v4=aone.small"]


def _run(module: IRModule, fake: FakeBackend, run_compiled: RunCompiled) -> Any:
    parted = partition(module, [fake])
    assert any("Codegen" in function.attrs for function in parted.functions.values())
    check_partition(module, parted)
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    return run_compiled(RunCodegen(backends=[fake])(parted), "main", [x])


@pytest.mark.parametrize("constants", ["embedded", "lifted"])
@pytest.mark.parametrize("leaked", ["decline", "return"])
def test_leaked_values_and_shared_constants_through_codegen(
    constants: Literal["embedded", "lifted"],
    leaked: Literal["decline", "return"],
    fake_backend: type[FakeBackend],
    run_compiled: RunCompiled,
) -> None:
    """Two layers share a constant, each with two reads, and the first has an inner value read outside."""
    builder = FunctionBuilder("main")
    x = builder.param("x", tensor((4,)))
    c = np.arange(1, 5, dtype=np.float32)
    ref = builder.constants.add(c)
    a = builder.bind("add", (x, ref), {}).results[0]
    b = builder.bind("multiply", (a, ref), {}).results[0]
    d = builder.bind("exp", (a,), {}).results[0]
    e = builder.bind("add", (d, ref), {}).results[0]
    f = builder.bind("multiply", (e, ref), {}).results[0]
    module = IRModule({"main": builder.finish(b, f)}, builder.constants)
    assert len(module.constants) == 1
    scale = is_op("multiply")(is_op("add")(wildcard(), wildcard()), wildcard())
    pattern = CompositePattern("aone.scale", scale, leaked=leaked)
    fake = fake_backend("aone", [], [pattern], constants=constants)
    results = _run(module, fake, run_compiled)
    value = np.linspace(-1, 1, 4, dtype=np.float32)
    expected = ((value + c) * c, (np.exp(value + c) + c) * c)
    for have, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(have, want)
    assert len(fake.compiled) == (2 if leaked == "return" else 1)
    for region in fake.compiled:
        (composite,) = region.bindings
        (body,) = composite.regions
        assert len(body.params) == (1 if constants == "embedded" else 2)
        assert len(region.params) == len(body.params)
    first = fake.compiled[0].bindings[0]
    assert len(first.results) == (2 if leaked == "return" else 1)
