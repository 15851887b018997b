"""``ByCost`` where ops left on the host are an error of the build: an op stays there only if no backend takes it."""

from __future__ import annotations

import byoc_core
import pytest
from byoc_core.backend import Estimate
from byoc_core.driver.fallback import Fallback
from byoc_core.errors import PartitionError
from byoc_core.ir import IRModule
from byoc_core.partitioning import ByCost, MachineModel
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.partitioning.test_cost_margin import chain

OPS = ("sin", "tanh", "exp")
FAST_HOST = {"host": MachineModel(1e15, 1e15)}


def expensive(name: str, *ops: str, border: float = 1e-3) -> FakeBackend:
    """Return a backend far slower than the host."""
    return FakeBackend(name, ops, estimate=lambda _: Estimate(1e-3, border))


def outcomes(module: IRModule, *backends: FakeBackend, policy: ByCost, fallback: Fallback) -> list[str]:
    """Return the places of the ops of a chain, in order."""
    report = byoc_core.build(module, list(backends), policy=policy, fallback=fallback).report_data
    return [row["outcome"] for row in report["ops"]]


@pytest.mark.parametrize("policy", [ByCost(), ByCost(machines=FAST_HOST), ByCost(margin=0)])
def test_a_cheap_host_is_no_error(policy: ByCost) -> None:
    backend = expensive("aone", "nn.relu")
    assert outcomes(chain("nn.relu"), backend, policy=policy, fallback="allow") == ["host"]
    assert outcomes(chain("nn.relu"), backend, policy=policy, fallback="error") == ["aone"]


def test_an_op_without_a_backend_is_an_error_still() -> None:
    with pytest.raises(PartitionError, match="1 ops with") as caught:
        byoc_core.build(chain("nn.relu", "tanh"), [expensive("aone", "nn.relu")], policy=ByCost(), fallback="error")
    assert "tanh" in str(caught.value)
    assert "nn.relu" not in str(caught.value)


def test_the_host_among_the_backends_is_allowed() -> None:
    report = byoc_core.build(
        chain("nn.relu"), [expensive("aone", "nn.relu"), "host"], policy=ByCost(), fallback="error"
    ).report_data
    assert [row["outcome"] for row in report["ops"]] == ["host"]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(OPS), min_size=1, max_size=6),
    st.lists(st.sets(st.sampled_from(OPS)), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.15, 0.9]),
    st.sampled_from([0.0, 1e-6, 1.0]),
)
def test_all_ops_with_a_backend_are_offloaded(
    ops: list[str], claims: list[set[str]], margin: float, border: float
) -> None:
    backends = [expensive(f"back{index}", *taken, border=border) for index, taken in enumerate(claims)]
    policy = ByCost(machines=FAST_HOST, margin=margin)
    taken = set().union(*claims)
    if set(ops) <= taken:
        found = outcomes(chain(*ops), *backends, policy=policy, fallback="error")
        assert "host" not in found
        assert all(op in claims[int(name.removeprefix("back"))] for op, name in zip(ops, found, strict=True))
    else:
        with pytest.raises(PartitionError, match=f"{sum(op not in taken for op in ops)} ops with"):
            outcomes(chain(*ops), *backends, policy=policy, fallback="error")
