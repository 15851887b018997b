"""Handmade results and reports, for tests of derived data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from byoc_conformance.outcome import Outcome
from byoc_conformance.promise import Item, Level, Promise
from byoc_conformance.report.model import Coverage, Environment, Plugin, Report, ReportItem, Settings
from byoc_conformance.runner import ItemResult
from byoc_conformance.verdict import Verdict

STARTED = datetime(2026, 5, 17, 12, 30, tzinfo=UTC)


def new_item(level: Level, name: str, case: str = "") -> Item:
    """Return a test with a check never run."""
    return Item(Promise(level, name, "keeps its word", lambda subject, case: None), case)


def new_result(outcome: Outcome, item: Item | None = None) -> ItemResult:
    """Return a result with a duration of a second and a half."""
    return ItemResult(item or new_item(Level.L2, "op", "add"), outcome, 1.5)


def new_report(
    statuses: Mapping[str, Verdict],
    *,
    backend: str = "mynpu",
    texts: Mapping[str, str] | None = None,
    xfail: Mapping[str, str] | None = None,
    coverage: tuple[Coverage, ...] = (),
    changes: tuple[str, ...] = (),
) -> Report:
    """Return a report.

    Args:
        statuses: by test id.
        backend: the name.
        texts: of tests.
        xfail: reasons of tests.
        coverage: the table.
        changes: of the suite.
    """
    items = []
    for name, status in statuses.items():
        level, _, rest = name.partition("-")
        promise, _, case = rest.removesuffix("]").partition("[")
        items.append(
            ReportItem(
                id=name,
                level=Level(level),
                promise=promise,
                case=case,
                status=status,
                text=(texts or {}).get(name, ""),
                seconds=0.25,
                xfail=(xfail or {}).get(name, ""),
            )
        )
    plugin = Plugin(group="byoc.backends", name=backend, distribution=f"byoc-{backend}", version="1.2")
    return Report(
        started=STARTED,
        finished=STARTED + timedelta(seconds=90),
        environment=Environment(
            kit="0.1.0",
            core="0.1.0",
            python="CPython 3.12.1",
            numpy="2.1.0",
            onnx="",
            platform="Linux",
            cpu="a CPU",
            plugins=(plugin,),
        ),
        settings=Settings(
            backend=backend,
            options={"effort": 2},
            companions=("other",),
            companion_options={"other": {"level": "high"}},
            examples=20,
            seed=3,
        ),
        changes=changes,
        items=tuple(items),
        coverage=coverage,
    )


ALL_PASSED = {f"{level}-promise": Verdict.PASSED for level in Level}
"""A test on each level."""
