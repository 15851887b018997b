"""Differences between two reports."""

from __future__ import annotations

import pytest
from byoc_conformance.outcome import Status
from byoc_conformance.report import compare_reports
from byoc_conformance.report.comparison import Change
from byoc_conformance.report.model import Coverage
from byoc_conformance.verdict import Verdict

from conformance.tests.samples import new_report

pytestmark = pytest.mark.lowest


def test_a_report_beside_itself_is_unchanged() -> None:
    report = new_report({"L0-a": Verdict.FAILED, "L1-b": Verdict.PASSED})
    comparison = compare_reports(report, report)
    assert not comparison.is_worse
    empty: dict[str, object] = {"better": (), "worse": (), "appeared": (), "vanished": ()}
    assert comparison.to_json() == {"tests": empty, "coverage": empty, "tested_with": (), "is_worse": False}


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (Verdict.PASSED, Verdict.DECLINED, "worse"),
        (Verdict.PASSED, Verdict.XFAILED, "worse"),
        (Verdict.DECLINED, Verdict.FAILED, "worse"),
        (Verdict.XFAILED, Verdict.FAILED, "worse"),
        (Verdict.FAILED, Verdict.CRASHED, "worse"),
        (Verdict.PASSED, Verdict.XPASSED, "worse"),
        (Verdict.FAILED, Verdict.DECLINED, "better"),
        (Verdict.XFAILED, Verdict.PASSED, "better"),
        (Verdict.HUNG, Verdict.FAILED, "better"),
        (Verdict.NOT_RUN, Verdict.PASSED, "appeared"),
        (Verdict.NOT_RUN, Verdict.XFAILED, "appeared"),
        (Verdict.PASSED, Verdict.NOT_RUN, "vanished"),
        (Verdict.DECLINED, Verdict.NOT_COVERED, ""),
        (Verdict.NOT_RUN, Verdict.NOT_RUN, ""),
    ],
)
def test_one_test(before: Verdict, after: Verdict, kind: str) -> None:
    comparison = compare_reports(new_report({"L2-a": before}), new_report({"L2-a": after}))
    found = {name: getattr(comparison.tests, name) for name in ("better", "worse", "appeared", "vanished")}
    sides = ["" if verdict is Verdict.NOT_RUN else verdict.value for verdict in (before, after)]
    assert found == dict.fromkeys(found, ()) | ({kind: (Change("L2-a", *sides),)} if kind else {})
    assert comparison.is_worse == (kind == "worse")


def test_tests_of_one_report_alone_appear_and_vanish() -> None:
    before = new_report({"L0-b": Verdict.PASSED, "L0-a": Verdict.PASSED, "L0-c": Verdict.PASSED})
    after = new_report({"L0-c": Verdict.PASSED, "L0-d": Verdict.DECLINED})
    comparison = compare_reports(before, after)
    assert comparison.tests.vanished == (Change("L0-a", "passed", ""), Change("L0-b", "passed", ""))
    assert comparison.tests.appeared == (Change("L0-d", "", "declined"),)
    assert not comparison.is_worse


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict.is_red])
def test_one_that_appears_and_is_red_makes_it_worse(verdict: Verdict) -> None:
    after = new_report({"L0-a": verdict})
    for before in (new_report({}), new_report({"L0-a": Verdict.NOT_RUN})):
        comparison = compare_reports(before, after)
        assert comparison.tests.appeared == (Change("L0-a", "", verdict.value),)
        assert (comparison.tests.worse, comparison.is_worse) == ((), True)
        assert not compare_reports(after, before).is_worse


def test_a_suite_that_was_changed_is_worse() -> None:
    unchanged, changed = new_report({}), new_report({}, changes=("L0-a was taken out",))
    assert compare_reports(unchanged, changed).tests.worse == (Change("kit-is-whole", "passed", "failed"),)
    assert compare_reports(unchanged, changed).is_worse
    assert not compare_reports(changed, unchanged).is_worse


def test_what_reports_were_made_with() -> None:
    before, after = new_report({}), new_report({}, backend="other")
    assert compare_reports(before, after).tested_with == (
        Change("backend mynpu", "byoc-mynpu 1.2", ""),
        Change("options", "mynpu.effort=2, other.level='high'", "other.level='high'"),
        Change("backend other", "", "byoc-other 1.2"),
    )
    later = before.model_copy(update={"started": before.started.replace(year=2027)})
    assert compare_reports(before, later).tested_with == ()


def test_coverage() -> None:
    def table(**cells: Status) -> tuple[Coverage, ...]:
        return tuple(Coverage(op=op, dtype="int8", status=status) for op, status in cells.items())

    before = new_report({}, coverage=table(add=Status.PASSED, exp=Status.DECLINED, log=Status.PASSED))
    after = new_report({}, coverage=table(add=Status.DECLINED, exp=Status.PASSED, tan=Status.PASSED))
    coverage = compare_reports(before, after).coverage
    assert coverage.worse == (Change("add int8", "passed", "declined"),)
    assert coverage.better == (Change("exp int8", "declined", "passed"),)
    assert coverage.appeared == (Change("tan int8", "", "passed"),)
    assert coverage.vanished == (Change("log int8", "passed", ""),)
    assert compare_reports(before, after).is_worse
    expected = new_report({"L2-op[tan]": Verdict.XFAILED}, coverage=table(tan=Status.FAILED))
    assert not compare_reports(new_report({}), expected).is_worse
