"""Damaged and hostile artifacts: the C runtime refuses or runs each, and never leaves its memory.

The sanitizers run this test too (``python -m core.tests.sanitizers.run``).
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from byoc_core.native.toolchain import Toolchain
from hypothesis import settings

from rt.tests.hostile_corpus import write_corpus

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the artifacts to mutate."""
    folder = tmp_path_factory.mktemp("hostile")
    write_corpus(folder)
    return folder


def try_mutants(library: Path, folder: Path, kind: str, count: int) -> Counter[str]:
    """Return how many mutants have each outcome; fail at the death of the process, but for an endless loop."""
    outcomes: Counter[str] = Counter()
    while (first := outcomes.total()) < count:
        child = [sys.executable, "-m", "rt.tests.hostile_child", str(library), str(folder), kind, "1", str(first)]
        done = subprocess.run([*child, str(count)], cwd=ROOT, capture_output=True, text=True, check=False)
        lines = [line.split() for line in done.stdout.splitlines()]
        outcomes.update(line[2] for line in lines if line[0] == "end")
        if done.returncode == -signal.SIGPROF:
            outcomes["endless"] += 1
            continue
        assert done.returncode == 0, f"{lines[-1:]}: status {done.returncode}\n{done.stderr[-4000:]}"
    return outcomes


@pytest.mark.parametrize("kind", ["consistent", "code", "program"])
def test_mutants_with_right_digests_are_refused_or_run(library_file: Path, corpus: Path, kind: str) -> None:
    outcomes = try_mutants(library_file, corpus, kind, 8 * settings().max_examples)
    assert set(outcomes) - {"endless"} == {"refused", "unfit", "ran"}
    assert outcomes["endless"] < outcomes.total() // 20


@pytest.mark.parametrize("kind", ["bits", "cut"])
def test_damaged_files_are_refused(library_file: Path, corpus: Path, kind: str) -> None:
    outcomes = try_mutants(library_file, corpus, kind, 8 * settings().max_examples)
    assert outcomes == {"refused": outcomes.total()}  # the artifacts have no constants too large for a check
