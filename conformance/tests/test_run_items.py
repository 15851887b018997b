"""Many tests at a time: all results arrive, a fault of the kit is raised, and an early exit ends the rest at once."""

from __future__ import annotations

import threading
import time

import pytest
from byoc_conformance.outcome import Outcome
from byoc_conformance.promise import Item, Level
from byoc_conformance.run_items import run_items
from byoc_conformance.runner import ItemResult, Runner
from byoc_conformance.subject import SubjectSpec
from byoc_core.errors import InternalError

from conformance.tests.samples import new_item

SPEC = SubjectSpec("host")
ITEMS = [new_item(level, "promise", str(number)) for level in (Level.L0, Level.L1) for number in range(4)]


@pytest.mark.parametrize("num_parallel", [1, 3, 20])
def test_every_item_has_its_result_once(monkeypatch: pytest.MonkeyPatch, num_parallel: int) -> None:
    monkeypatch.setattr(Runner, "run", lambda self, item: ItemResult(item, Outcome(), 0.0))
    found = [result.item for result in run_items(SPEC, ITEMS, num_parallel=num_parallel)]
    assert sorted(item.id for item in found) == sorted(item.id for item in ITEMS)
    assert num_parallel > 1 or found == ITEMS


def test_no_items_no_results() -> None:
    assert list(run_items(SPEC, [], num_parallel=4)) == []


@pytest.mark.parametrize("num_parallel", [1, 3])
def test_a_fault_of_the_kit_is_raised(monkeypatch: pytest.MonkeyPatch, num_parallel: int) -> None:
    def run(self: Runner, item: Item) -> ItemResult:
        if item is ITEMS[3]:
            raise InternalError("kit", "is at fault")
        return ItemResult(item, Outcome(), 0.0)

    monkeypatch.setattr(Runner, "run", run)
    before = threading.active_count()
    with pytest.raises(InternalError) as caught:
        list(run_items(SPEC, ITEMS, num_parallel=num_parallel))
    assert str(caught.value) == "kit: is at fault"
    assert threading.active_count() == before


def test_leaving_early_stops_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def run(self: Runner, item: Item) -> ItemResult:
        if item is not ITEMS[0]:
            assert ended.wait(60)
        return ItemResult(item, Outcome(), 0.0)

    monkeypatch.setattr(Runner, "run", run)
    results = run_items(SPEC, ITEMS)
    assert next(results).item is ITEMS[0]
    monkeypatch.setattr(Runner, "stop", lambda self: ended.set())
    before = time.monotonic()
    results.close()
    assert ended.is_set()
    assert time.monotonic() - before < 30
