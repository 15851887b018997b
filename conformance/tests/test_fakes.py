"""The kit is itself proven: a good backend passes, and each broken one fails where it should, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from byoc_conformance import Runner, Status, SubjectSpec, all_items, all_promises

sys.path.insert(0, str(Path(__file__).parent / "fakes"))

from fakenpu.faults import FAULTS


def broken_promises(backend: str) -> dict[str, str]:
    """Gives the promises that are broken, each with the first text."""
    found: dict[str, str] = {}
    with Runner(SubjectSpec(backend, examples=5), patience=1.0) as runner:
        for item in all_items():
            result = runner.run(item)
            if result.outcome.status.is_broken:
                found.setdefault(item.id.partition("[")[0], f"{item.id} {result.outcome.status} {result.outcome.text}")
    return found


def test_a_good_backend_keeps_every_promise(fakenpu: str) -> None:
    assert broken_promises(fakenpu) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_by_its_own_test_alone(
    fault: str, fakenpu: str, install_fakenpu: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKENPU_FAULT", fault)
    install_fakenpu(**FAULTS[fault].metadata)
    broken = broken_promises(fakenpu)
    assert broken.keys() == FAULTS[fault].caught_by, broken


def test_every_promise_has_a_fault() -> None:
    names = {f"{promise.level}-{promise.name}" for promise in all_promises()}
    caught = frozenset[str]().union(*(fault.caught_by for fault in FAULTS.values()))
    assert caught <= names


def test_a_good_backend_is_covered(fakenpu: str) -> None:
    """It does at least something on every level: a green by declining is no green."""
    passed = set()
    with Runner(SubjectSpec(fakenpu, examples=5)) as runner:
        for item in all_items():
            if runner.run(item).outcome.status is Status.PASSED:
                passed.add(item.promise.name)
    assert passed == {promise.name for promise in all_promises()}
