"""The kit checks the declared facts of a third-party package's ops: cases, dtypes, rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from byoc_conformance import Runner, Status, Subject, SubjectSpec, find_item
from byoc_conformance.outcome import Outcome
from byoc_conformance.promises.l2_numerics.ops import PROMISES
from byoc_core.backend import BackendHandle

from core.tests.plugin.foreign_site import foreign_paths

pytestmark = pytest.mark.interpreter

SPEC = SubjectSpec("foreign", examples=4)


@pytest.fixture(autouse=True)
def _foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_again: Callable[[], None]) -> None:
    """Install the package for this process and the processes of the kit."""
    for path in foreign_paths(tmp_path / "site"):
        monkeypatch.syspath_prepend(path)
    look_again()


def outcome_of(name: str) -> Outcome:
    with Runner(SPEC) as runner:
        return runner.run(find_item(name)).outcome


@pytest.mark.parametrize("name", ["L0-lint", "L1-own-ops", "L2-own-ops"])
def test_ops_of_a_third_party_are_claimed_compiled_and_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREIGN_ULPS", "1")
    assert outcome_of(name).status is Status.PASSED


def test_cases_are_drawn_and_an_error_beyond_the_stated_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREIGN_ULPS", "3")
    found = outcome_of("L2-own-ops")
    assert found.status is Status.FAILED
    assert "foreign.log1p(" in found.text
    assert "elements are wrong" in found.text
    assert {(cell.op, cell.dtype) for cell in found.cells} >= {
        ("foreign.log1p", "float32"),
        ("foreign.log1p", "float64"),
    }
    (claimed,) = {line for line in found.text.splitlines() if line.startswith("foreign.flatten2: ")}
    count = int(claimed.split()[1])
    assert count > 2, "more than the canonical cases"


def test_a_rounding_that_is_not_stated_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [replace(op, rounding=None) for op in Subject(SPEC).handle.ops()]
    monkeypatch.setattr(BackendHandle, "ops", lambda self: ops if self.name == "foreign" else [])
    monkeypatch.setattr("foreign_backend.OPS", ops)
    (promise,) = [promise for promise in PROMISES if promise.name == "own-ops"]
    found = promise.check(Subject(SPEC), "")
    assert isinstance(found, Outcome)
    lines = found.text.splitlines()
    assert lines[1] == "rounding not stated: no bound for each element was tried"
    assert [line for line in lines if line.startswith("rounding")] == lines[1:2]
