"""Placement by cost is the same in every process, whatever seed hashes have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import random, runpy, sys
fakes, graphs = map(runpy.run_path, sys.argv[1:])
from byoc_core.backend import Estimate
from byoc_core.partitioning import ByCost, PartitionLog, partition

def estimate(function):
    return Estimate(len(function.name) * 3e-7, call_seconds=4e-7, bytes_per_second=2e8)

rng = random.Random(7)
for size in (6, 20, 60, 100):
    steps = [(rng.choice(graphs["_KINDS"]), rng.randrange(60), rng.randrange(60), 0) for _ in range(size)]
    case = graphs["make_case"](steps, steps[:3], [(rng.randrange(3), what, 9) for what in graphs["_PATTERNS"]], 3)
    ops = ["nn.relu", "add", "tanh", "maximum", "split"]
    backends = [
        fakes["FakeBackend"](name, ops[i:], [p for p in case.patterns if p.backend == name], estimate=estimate)
        for i, name in enumerate(case.backends)
    ]
    log = PartitionLog()
    print(partition(case.module, backends, policy=ByCost(), log=log))
    print(log)
"""


def _printed(hash_seed: str) -> bytes:
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(here.parent / "conftest.py"), str(here / "conftest.py")],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_every_hash_seed_gives_the_same_placement_and_the_same_reasons() -> None:
    first, *others = (_printed(seed) for seed in ("0", "1", "4242"))
    assert first.count(b"global_symbol") > 10
    assert first.count(b"costs-more") > 10
    assert all(other == first for other in others)
