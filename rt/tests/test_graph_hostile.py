"""Hostile graph documents: the C runtime refuses or runs each, and never leaves its memory."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from rt.tests.kernel_programs import canonical_trials, executable_of, module_of_trials, trials_by_name
from rt.tests.kernel_table import KERNELS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an artifact for each op with a kernel."""
    folder = tmp_path_factory.mktemp("graphs")
    for index, op in enumerate(KERNELS):
        trials = canonical_trials(op)[:1]
        module = module_of_trials(trials_by_name(trials, "case"))
        executable_of(module).save(folder / f"{index:03}.byoc")
    return folder


def test_changed_documents_are_refused_or_run(library_file: Path, corpus: Path) -> None:
    count = max(2 * len(KERNELS), 8 * settings().max_examples)
    command = [sys.executable, "-m", "rt.tests.graph_mutants", str(library_file), str(corpus), "1", "0", str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{lines[-1:]}: status {done.returncode}\n{done.stderr[-4000:]}"
    outcomes = Counter(outcome for word, _, outcome in (line for line in lines if len(line) == 3) if word == "end")
    assert outcomes.total() == count
    assert set(outcomes) == {"refused", "unfit", "ran"}
