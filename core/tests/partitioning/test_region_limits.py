"""Limits on the size of regions: `min_ops`, `min_flops`, `min_bytes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from byoc_core import script as R
from byoc_core.ir import FunctionBuilder, IRModule, OpDef, OperandSpec, TensorType
from byoc_core.ops import default_ops
from byoc_core.partitioning import PartitionLog, PartitionOptions, PartitionRequest, Policy, partition
from byoc_core.pattern import CompositePattern, Match, Rejection, is_op, wildcard

from core.tests.conftest import FakeBackend
from core.tests.partitioning.conftest import Placement

MIXED = """
def main(x: R.Tensor((8,))):
    a = R.tanh(x)
    b = R.exp(a)
    c = R.tanh(b)
    d = R.nn.relu(c)
    e = R.tanh(d)
    return e
"""


@pytest.fixture
def offloaded(placement: type[Placement]) -> Callable[..., str]:
    """Gives the backend's first letter behind the name of each op that is offloaded."""

    def find(
        module: str | IRModule,
        backends: Sequence[FakeBackend],
        log: PartitionLog | None = None,
        policy: Policy | None = None,
        **kwargs: Any,
    ) -> str:
        source = R.parse(module) if isinstance(module, str) else module
        options = PartitionOptions(**kwargs)
        parted = partition(source, backends, partition_options=options, log=log, policy=policy)
        assert partition(parted, backends, partition_options=options, policy=policy) == parted
        where = placement(parted)
        backend_of = {name: where.backend_of[region] for name, region in where.region_of.items()}
        return " ".join(f"{name}:{backend[0]}" for name, backend in sorted(backend_of.items()))

    return find


LIMITS: Mapping[str, tuple[dict[str, int], str, str]] = {
    "nothing": ({}, "a:a c:a d:a e:a", ""),
    "ops": ({"min_ops": 2}, "c:a d:a e:a", "the region is below the user's limits: 1 of 2 ops"),
    "FLOPs": ({"min_flops": 9}, "c:a d:a e:a", "the region is below the user's limits: 8 of 9 FLOPs"),
    "bytes": ({"min_bytes": 65}, "c:a d:a e:a", "the region is below the user's limits: 64 of 65 bytes"),
    "several": (
        {"min_ops": 1, "min_flops": 1_000, "min_bytes": 1_000},
        "",
        "the region is below the user's limits: 8 of 1,000 FLOPs, 64 of 1,000 bytes",
    ),
}


def test_what_symbolic_sizes_count_as_is_said(fake_backend: type[FakeBackend]) -> None:
    module = R.parse('def main(x: R.Tensor(("n", 4))):\n    a = R.tanh(x)\n    return a\n')
    log = PartitionLog()
    partition(module, [fake_backend("aone", ["tanh"])], log=log, partition_options=PartitionOptions(min_flops=99))
    (refusal,) = log.refusals("main", "a")
    assert refusal.rejection.text.endswith("FLOPs, symbolic sizes counted as 1")


@pytest.mark.parametrize("label", LIMITS)
def test_a_region_below_a_limit_is_given_back(
    label: str, offloaded: Callable[..., str], fake_backend: type[FakeBackend]
) -> None:
    limits, expected, text = LIMITS[label]
    log = PartitionLog()
    assert offloaded(MIXED, [fake_backend("aone", ["tanh", "nn.relu"])], log, **limits) == expected
    refusals = [refusal.rejection for refusal in log.refusals("main", "a")]
    assert refusals == ([Rejection("too-small", text)] if text else [])


def test_a_backend_states_which_regions_are_worth_a_call(
    offloaded: Callable[..., str], fake_backend: type[FakeBackend]
) -> None:
    def backend() -> Any:
        return fake_backend("aone", ["tanh", "nn.relu"], min_region_flops=9)

    log = PartitionLog()
    assert offloaded(MIXED, [backend()], log) == "c:a d:a e:a"
    (refusal,) = log.refusals("main", "a")
    text = "the region is below the backend's minimum: 8 of 9 FLOPs"
    assert refusal.rejection == Rejection("too-small", text)
    assert offloaded(MIXED, [backend()], backend_limits=False) == "a:a c:a d:a e:a"
    assert offloaded(MIXED, [backend()], force={"a": "aone"}) == "a:a c:a d:a e:a"
    assert offloaded(MIXED, [backend()], min_flops=99) == ""
    assert offloaded(MIXED, [backend(), fake_backend("btwo", ["tanh"])]) == "a:b c:a d:a e:a"
    unstated = OpDef("aone.twice", (OperandSpec("x"),), lambda context: (context.tensor(0),))
    builder = FunctionBuilder("main", ops=default_ops().extended([unstated]))
    result = builder.bind(unstated, [builder.param("x", TensorType((8,), "float32"))], {}).result
    unknown = IRModule({"main": builder.finish(result)})
    assert offloaded(unknown, [fake_backend("aone", ["aone.twice"], min_region_flops=9)]) == f"{result.name}:a"
    symbolic = 'def main(x: R.Tensor(("n",))):\n    a = R.tanh(x)\n    return a\n'
    assert offloaded(symbolic, [backend()]) == "a:a"


def test_the_next_backend_is_asked_for_what_was_given_back(
    offloaded: Callable[..., str], fake_backend: type[FakeBackend]
) -> None:
    backends = [fake_backend("aone", ["tanh"]), fake_backend("btwo", ["tanh", "nn.relu", "exp"])]
    assert offloaded(MIXED, backends) == "a:a b:b c:a d:b e:a"
    assert offloaded(MIXED, backends, min_ops=2) == "a:b b:b c:b d:b e:b"
    log = PartitionLog()
    assert offloaded(MIXED, backends, log, min_ops=6) == ""
    assert [(r.backend, r.rejection.text) for r in log.refusals("main", "e")] == [
        ("aone", "the region is below the user's limits: 1 of 6 ops"),
        ("btwo", "the region is below the user's limits: 5 of 6 ops"),
    ]


def test_ops_of_composites_count_singly(offloaded: Callable[..., str], fake_backend: type[FakeBackend]) -> None:
    pattern = CompositePattern("aone.pair", is_op("nn.relu")(is_op("tanh")(wildcard())))
    backends = [fake_backend("aone", [], [pattern])]
    assert offloaded(MIXED, backends, min_ops=2) == "c:a d:a"
    assert offloaded(MIXED, backends, min_ops=3) == ""


def test_symbolic_sizes_count_as_one(offloaded: Callable[..., str], fake_backend: type[FakeBackend]) -> None:
    module = MIXED.replace("(8,)", '("n",)')
    backends = [fake_backend("aone", ["tanh", "nn.relu"])]
    assert offloaded(module, backends, min_bytes=8) == "a:a c:a d:a e:a"
    assert offloaded(module, backends, min_bytes=9) == "c:a d:a e:a"


def test_a_region_with_a_forced_op_stays(offloaded: Callable[..., str], fake_backend: type[FakeBackend]) -> None:
    backends = [fake_backend("aone", ["tanh", "nn.relu"])]
    assert offloaded(MIXED, backends, min_ops=4, force={"d": "aone"}) == "c:a d:a e:a"


def test_what_was_claimed_before_stays(offloaded: Callable[..., str], fake_backend: type[FakeBackend]) -> None:
    main = R.parse(MIXED)["main"]
    claimed = replace(main, bindings=(replace(main.bindings[0], codegen="aone"), *main.bindings[1:]))
    module = R.parse(MIXED).with_function(claimed)
    assert offloaded(module, [fake_backend("aone", ["tanh"])], min_ops=2) == "a:a"


def test_bodies_have_regions_of_their_own(offloaded: Callable[..., str], fake_backend: type[FakeBackend]) -> None:
    module = """
def main(flag: R.Tensor((), "bool"), x: R.Tensor((4,))):
    def then_branch(p: R.Tensor((4,))):
        q = R.tanh(p)
        r = R.tanh(q)
        return r
    def else_branch(u: R.Tensor((4,))):
        v = R.tanh(u)
        return v
    y = R.if_(flag, x, regions=[then_branch, else_branch])
    return y
"""
    assert offloaded(module, [fake_backend("aone", None)], min_ops=2) == "q:a r:a"


def test_a_second_round_takes_what_only_now_is_large_enough(
    offloaded: Callable[..., str], fake_backend: type[FakeBackend]
) -> None:
    """`aone` gives back the pair `a, b`, the favourite; `btwo` then takes `a`, and `b, c` is another pair."""
    module = "def main(x: R.Tensor((4,))):\n    a = R.tanh(x)\n    b = R.exp(a)\n    c = R.sin(b)\n    return c\n"
    tanh_exp = is_op("exp")(is_op("tanh")(wildcard()))
    exp_sin = is_op("sin")(is_op("exp")(wildcard()))

    def small(match: Match) -> Rejection | None:
        return None

    patterns = [
        CompositePattern("aone.first", tanh_exp, small, priority=1),
        CompositePattern("aone.second", exp_sin),
    ]
    backends = [fake_backend("aone", [], patterns), fake_backend("btwo", ["tanh"])]
    assert offloaded(module, backends) == "a:a b:a"
    assert offloaded(module, backends, min_ops=1) == "a:a b:a"
    assert offloaded(module, backends, min_ops=3) == ""


class ByHand:
    """A policy without questions: all `tanh` are claimed for the first backend."""

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        (handle, *_) = request.backends
        main = module["main"]
        bindings = [replace(b, codegen=handle.name) if b.op.name == "tanh" else b for b in main.bindings]
        return module.with_function(replace(main, bindings=tuple(bindings)))


def test_limits_hold_for_a_policy_that_does_not_ask(
    offloaded: Callable[..., str], fake_backend: type[FakeBackend]
) -> None:
    backends = [fake_backend("aone", None)]
    assert offloaded(MIXED, backends, policy=ByHand()) == "a:a c:a e:a"
    assert offloaded(MIXED, backends, policy=ByHand(), min_ops=2) == ""
