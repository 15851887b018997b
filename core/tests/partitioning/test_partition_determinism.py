"""Partition is the same in every process, whatever seed hashes have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from byoc_core import script as R
from byoc_core.ir import IRModule
from byoc_core.partitioning import partition

_PROGRAM = """
import importlib.util, random, sys
from dataclasses import replace

def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

fakes = load("fakes", sys.argv[1])
graphs = load("graphs", sys.argv[2])
from byoc_core.ir import structural_hash
from byoc_core.partitioning import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen, partition

rng = random.Random(7)
kinds = graphs._KINDS
for size in (6, 20, 60, 100):
    steps = [(rng.choice(kinds), rng.randrange(60), rng.randrange(60), rng.randrange(4)) for _ in range(size)]
    picks = [(rng.randrange(3), what, 9) for what in graphs._PATTERNS]
    case = graphs.make_case(steps, steps[:3], picks, 3)
    backends = [
        fakes.FakeBackend(name, ["nn.relu", "add", "split"][i:], [p for p in case.patterns if p.backend == name])
        for i, name in enumerate(case.backends)
    ]
    parted = partition(case.module, backends)
    print(parted, structural_hash(parted))
    print(RunCodegen(backends=backends)(parted))
    print(MergeCompositeFunctions()(case.claimed()))
    leaking = [replace(pattern, leaked="return") for pattern in case.patterns]
    print(MergeCompositeFunctions()(FuseOpsByPattern(leaking)(case.module)))
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


def test_every_hash_seed_gives_the_same_bytes() -> None:
    first, *others = (_printed(seed) for seed in ("0", "1", "4242"))
    assert first.count(b"global_symbol") > 50
    assert b"call_dps_packed" in first
    assert all(other == first for other in others)


def test_p25_names_of_any_script_give_plain_symbols(fake_backend: type) -> None:
    text = "def größe_1(x: R.Tensor((4,))):\n    ü = R.nn.relu(x)\n    return ü"
    parted: IRModule = partition(R.parse(text), [fake_backend("aone", ["nn.relu"])])
    symbols = [str(f.attrs["global_symbol"]) for f in parted.functions.values() if "global_symbol" in f.attrs]
    assert symbols == ["aone_gr__e_1_0"]
