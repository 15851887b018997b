"""Derived fields of a report follow from the tests; a report is read back as written, and fits the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from byoc_conformance.outcome import Cell, Status
from byoc_conformance.promise import Level
from byoc_conformance.promises import all_items
from byoc_conformance.report import new_report as build_report
from byoc_conformance.report import read_report, write_report
from byoc_conformance.report.badge import describe_result
from byoc_conformance.report.model import Coverage, Report
from byoc_conformance.report.schema import new_schema, read_schema
from byoc_conformance.subject import SubjectSpec
from byoc_conformance.verdict import Judgement, Verdict
from byoc_core.errors import OptionsError

from conformance.tests.samples import ALL_PASSED, STARTED, new_report

pytestmark = pytest.mark.lowest


@pytest.mark.parametrize(
    ("changed", "reached", "is_red"),
    [
        ({}, Level.L4, False),
        ({"L4-promise": Verdict.DECLINED}, Level.L3, False),
        ({"L0-promise": Verdict.FAILED}, None, True),
        ({"L2-promise": Verdict.CRASHED}, Level.L1, True),
        ({"L2-other": Verdict.HUNG}, Level.L1, True),
        ({"L3-other": Verdict.XPASSED}, Level.L2, True),
        ({"L3-other": Verdict.XFAILED}, Level.L4, False),
        ({"L3-other": Verdict.DECLINED, "L1-other": Verdict.NOT_COVERED}, Level.L4, False),
        ({"L2-other": Verdict.NOT_RUN}, Level.L1, False),
        ({"L2-promise": Verdict.NOT_COVERED}, Level.L1, False),
    ],
)
def test_the_level_reached(changed: dict[str, Verdict], reached: Level | None, is_red: bool) -> None:
    report = new_report(ALL_PASSED | changed)
    assert (report.level_reached, report.is_red) == (reached, is_red)


def test_a_changed_suite_reaches_nothing_and_is_red() -> None:
    report = new_report(ALL_PASSED, changes=("`TestX.test_L2` has the name of a test of the kit",))
    assert (report.level_reached, report.is_red, describe_result(report)) == (None, True, "suite changed")


def test_counts() -> None:
    report = new_report(ALL_PASSED | {"L1-a": Verdict.FAILED, "L1-b": Verdict.DECLINED, "L1-c": Verdict.XFAILED})
    assert report.counts == dict.fromkeys(Verdict, 0) | {
        Verdict.PASSED: 5,
        Verdict.FAILED: 1,
        Verdict.DECLINED: 1,
        Verdict.XFAILED: 1,
    }
    assert report.levels[1].counts[Verdict.FAILED] == 1
    assert sum(sum(level.counts.values()) for level in report.levels) == len(report.items)
    assert describe_result(report) == "L0 5/7"


def test_a_part_never_looks_like_the_whole() -> None:
    report = new_report(ALL_PASSED | {"L4-other": Verdict.NOT_RUN})
    assert (report.is_complete, describe_result(report)) == (False, "partial 5/5, 1 not run")


def test_a_built_report_lists_all_tests_in_the_order_of_the_kit() -> None:
    first, second = all_items()[:2]
    worst = Judgement(second.id, Verdict.FAILED, "no", 0.1, "", (Cell("add", "float32", Status.FAILED),))
    good = Judgement(
        first.id,
        Verdict.PASSED,
        "",
        0.2,
        "",
        (Cell("exp", "int8", Status.DECLINED), Cell("add", "float32", Status.PASSED)),
    )
    spec = SubjectSpec("host")
    report = build_report(spec, [worst, good], STARTED)
    assert [item.id for item in report.items] == [item.id for item in all_items()]
    assert [item.status for item in report.items[:3]] == [Verdict.PASSED, Verdict.FAILED, Verdict.NOT_RUN]
    assert report.coverage == (
        Coverage(op="add", dtype="float32", status=Status.FAILED),
        Coverage(op="exp", dtype="int8", status=Status.DECLINED),
    )
    swapped = build_report(spec, [good, worst], STARTED)
    assert swapped.model_copy(update={"finished": report.finished}) == report
    environment = report.environment
    assert [(p.group, p.name, p.distribution) for p in environment.plugins] == [
        ("byoc.backends", "host", "byoc-core"),
        ("byoc.runtimes", "csource", "byoc-core"),
        ("byoc.runtimes", "graph", "byoc-core"),
        ("byoc.runtimes", "specialised", "byoc-core"),
    ]
    assert "" not in environment.model_dump().values()


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    report = new_report(ALL_PASSED, coverage=(Coverage(op="add", dtype="int8", status=Status.PASSED),))
    write_report(report, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert read_report(folder / "conformance.json") == report
    names = ["badge.json", "badge.svg", "conformance.html", "conformance.json", "conformance.md"]
    assert sorted(path.name for path in folder.iterdir()) == names
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_report(report, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "is no JSON file: "),
        ("[" * 100_000, "is no JSON file: "),
        ("[]", "is no conformance report: the whole: "),
        ('{"schema_version": "2"}', "is no conformance report: schema_version: Input should be a valid integer"),
        ('{"schema_version": 1}', "is no conformance report: started: Field required"),
        (
            '{"schema_version": 2, "anything": 0}',
            "is a report of a newer kit; got schema version 2, expected 1 at most. pip install --upgrade byoc-conf",
        ),
    ],
)
def test_what_is_no_report(tmp_path: Path, content: str, text: str) -> None:
    path = tmp_path / "conformance.json"
    path.write_text(content)
    with pytest.raises(OptionsError) as caught:
        read_report(path)
    assert str(caught.value).startswith(f"{path}: {text}")


def strip(schema: object) -> Any:
    """Return a schema without the parts worded differently by versions of pydantic."""
    if isinstance(schema, list):
        return [strip(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"title", "description", "propertyNames"} if "type" in schema or "$ref" in schema else set()
    return {key: strip(value) for key, value in schema.items() if key not in dropped}


def test_the_shipped_schema_is_that_of_the_model() -> None:
    assert strip(read_schema()) == strip(new_schema())


def test_the_schema_demands_every_field_that_a_report_has() -> None:
    written = json.loads(new_report(ALL_PASSED).model_dump_json())
    schema = read_schema()
    assert sorted(schema["required"]) == sorted(schema["properties"]) == sorted(written)
    parts = {"ReportItem": written["items"][0], "Environment": written["environment"], "Settings": written["settings"]}
    for name, part in parts.items():
        assert sorted(schema["$defs"][name]["required"]) == sorted(part)
    assert schema["$defs"]["Verdict"]["enum"] == [verdict.value for verdict in Verdict]
    assert Report.model_validate(written) == new_report(ALL_PASSED)
