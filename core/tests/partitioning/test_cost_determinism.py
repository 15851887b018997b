"""Placement by cost is the same in every process, for any seed of hashes."""

from __future__ import annotations

from core.tests.partitioning.plugins import run_program

_PROGRAM = """
from byoc_core.backend import Estimate
from byoc_core.partitioning import ByCost, PartitionLog, partition
from core.tests.conftest import FakeBackend
from core.tests.partitioning.graphs import grow, plan_of_seed

def estimate(function):
    return Estimate(len(function.name) * 3e-7, call_seconds=4e-7, bytes_per_second=2e8)

for seed in (3, 6, 14, 22, 34):
    case = grow(plan_of_seed(seed))
    ops = ["nn.relu", "add", "tanh", "maximum", "split"]
    backends = [
        FakeBackend(name, ops[i:], [p for p in case.patterns if p.backend == name], estimate=estimate)
        for i, name in enumerate(case.backends)
    ]
    log = PartitionLog()
    print(partition(case.module, backends, policy=ByCost(), log=log))
    print(log)
"""


def _printed(hash_seed: str) -> bytes:
    return run_program(_PROGRAM, [], [], PYTHONHASHSEED=hash_seed)


def test_every_hash_seed_gives_the_same_placement_and_the_same_reasons() -> None:
    first, *further = (_printed(seed) for seed in ("0", "1", "4242"))
    assert first.count(b"global_symbol") > 10
    assert first.count(b"costs-more") > 10
    assert all(other == first for other in further)
