"""Partition gives the same bytes in every process: for any seed of hashes, and any order of discovery of plugins.

The plugins are real distributions on disk: two with a backend and a runtime each, and a third taking no part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.tests.partitioning.plugins import install_plugins, run_program

# What is printed is what is compared.
_PROGRAM = """
import hashlib, json, sys
from pathlib import Path
import byoc_core
from byoc_core.ir import structural_hash
from byoc_core.partitioning import MergeCompositeFunctions, RunCodegen, partition
from core.tests.conftest import FakeBackend
from core.tests.partitioning.graphs import grow, plan_of_seed

def simplify(results):
    return results[0] if len(results) == 1 else tuple(results)

for name in sys.argv[1].split(","):
    byoc_core.backends.get(name)  # the order in which plugins are first asked for
for seed in (3, 6, 14, 22, 34):
    case = grow(plan_of_seed(seed))
    parted = byoc_core.partition(case.module, backends=["alpha", "beta"])
    executable = byoc_core.build(case.module, backends=["alpha", "beta"])
    print(parted, structural_hash(parted))
    print(json.dumps(executable.report_data))
    executable.save(sys.argv[2])
    digest = hashlib.sha256(Path(sys.argv[2]).read_bytes()).hexdigest()
    print(digest, [module.type_key for module in executable.modules])
    if not case.count()["call_packed"]:
        results = byoc_core.VirtualMachine(byoc_core.load(sys.argv[2]))["main"](*case.inputs)
        print(repr(results), repr(results) == repr(simplify(case.evaluate(case.module)[0])))
    fakes = case.plugins(FakeBackend)
    print(RunCodegen(backends=fakes)(partition(case.module, fakes)))
    for sideways in (False, True):
        print(MergeCompositeFunctions(sideways=sideways)(case.claimed()))
"""


@dataclass(frozen=True)
class Arrangement:
    """An order of discovery of the same plugins.

    Attributes:
        hash_seed: of the process.
        folders: the distributions in each folder of the path, in order of installation.
        asked: the order of first requests for the plugins.
    """

    hash_seed: str
    folders: tuple[tuple[str, ...], ...]
    lookup_order: str


ARRANGEMENTS = (
    Arrangement("1", (("alpha", "beta"),), "alpha,beta"),
    Arrangement("4242", (("beta", "alpha"),), "beta,alpha"),
    Arrangement("0", (("alpha",), ("beta",)), "beta,alpha"),
    Arrangement("0", (("beta",), ("alpha",)), "alpha,beta"),
    Arrangement("7", (("idle", "beta"), ("alpha",)), "beta,host,alpha"),
)


def _printed(arrangement: Arrangement, folder: Path) -> bytes:
    """Run the program in a fresh process with the arranged plugins; return the output."""
    sites = install_plugins(folder, arrangement.folders)
    arguments = [arrangement.lookup_order, str(folder / "model.byoc")]
    return run_program(_PROGRAM, arguments, sites, PYTHONHASHSEED=arrangement.hash_seed)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _printed(ARRANGEMENTS[0], tmp_path_factory.mktemp("first"))


def test_what_is_compared_says_something(first: bytes) -> None:
    text = first.decode()
    assert text.count("global_symbol") > 500
    assert "call_dps_packed" in text
    assert 'composite("alpha.nn.relu_of_two"' in text
    modules = re.findall(r"^[0-9a-f]{64} (\[.*\])$", text, re.MULTILINE)
    assert len(modules) == 5
    assert sum("'alpha'" in types and "'beta'" in types for types in modules) == 4
    assert len(re.findall(r"\) True$", text, re.MULTILINE)) == 2  # the artifacts that can run without externs
    assert " False\n" not in text


@pytest.mark.parametrize("arrangement", ARRANGEMENTS[1:], ids=str)
def test_hash_seeds_and_the_order_of_plugins_change_no_byte(
    arrangement: Arrangement, first: bytes, tmp_path: Path
) -> None:
    """The printed module, the report, the artifact and the results, for all of :data:`ARRANGEMENTS`."""
    assert _printed(arrangement, tmp_path) == first
