"""The dated result files fit their schema, and the page of results is generated from the files."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.recording import to_result
from benchmarks.results import NOT_KEPT, PAGE, RESULTS, Result, load_results, results_page, to_json

TABLE: dict[str, Any] = {
    "title": "Calls",
    "command": "python -m benchmarks.run calls",
    "rows_are": "way",
    "columns": [{"name": "add"}, {"name": "a | b"}],
    "rows": [{"name": "ours", "unit": "us", "figures": ["0.10", None]}],
}
RESULT = {
    "subject": "calls",
    "title": "Calls of tiny models",
    "date": "2026-11-21",
    "machine": None,
    "versions": {"numpy": "2.3", "onnx": None},
    "tables": [TABLE],
}


def test_every_result_file_is_as_the_program_writes_it() -> None:
    files = sorted(RESULTS.iterdir())
    assert [path.suffix for path in files] == [".json"] * len(files)
    results = load_results()
    assert [path.read_text("utf-8") for path in files] == [to_json(result) for result in results]


def test_every_row_has_units_and_a_command() -> None:
    for result in load_results():
        for table in result.tables:
            assert "python -m " in table.command or table.command.startswith(NOT_KEPT), table.title
            for row in table.rows:
                assert row.unit or all(column.unit for column in table.columns), (result.file_name, row.name)


def test_the_page_is_what_the_files_make() -> None:
    assert PAGE.read_text("utf-8") == results_page(load_results()), "run `python -m benchmarks.results`"


def test_a_result_keeps_its_digits_on_its_way_to_the_page(tmp_path: Path) -> None:
    result = Result.model_validate(RESULT)
    (tmp_path / result.file_name).write_text(to_json(result), "utf-8")
    assert load_results(tmp_path) == (result,)
    page = results_page((result,))
    assert "| [Calls of tiny models](#2026-11-21-calls) | 2026-11-21 | (not written down) |" in page
    assert "Versions: numpy 2.3, onnx (unknown)." in page
    assert page.endswith("| way | unit | add | a \\| b |\n|---|---|---|---|\n| ours | us | 0.10 |  |\n")


def samples(median: float, num_rounds: int = 3) -> dict[str, float]:
    """Return samples in the form written by a benchmark."""
    return {"median": median, "best": median, "spread": median / 100, "rounds": num_rounds}


def test_figures_with_a_unit_are_recorded() -> None:
    figure = {
        "unit": "us",
        "goals": {"ours": {"add": 3.0}},
        "microseconds": {"ours": {"add": samples(0.39123), "chain": samples(12345.6)}, "peer": {"add": samples(6, 1)}},
        "ratios": {"peer / ours": {"add": samples(1e-5)}},
    }
    result = to_result("calls", {"call-overhead": figure})
    assert [table.title for table in result.tables] == ["call-overhead: microseconds", "call-overhead: ratios"]
    assert [(row.name, row.unit, row.figures) for table in result.tables for row in table.rows] == [
        ("ours", "us", ("0.391 ± 0.00391", "12,346 ± 123")),
        ("peer", "us", ("6", None)),
        ("peer / ours", "ratio", ("1e-05 ± 1e-07",)),
    ]
    assert result.machine is not None
    assert "Python" in result.versions


@pytest.mark.parametrize("figure", [{"microseconds": {"ours": {"add": samples(1)}}}, {"unit": "us", "goals": {}}])
def test_figures_without_a_table_of_one_unit_are_not_recorded(figure: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="threads: cannot be recorded without a table with a unit"):
        to_result("threads", {"threads": figure})


@pytest.mark.parametrize("figure", ["1", "-1.50", "1,095,371", "4.4e-5", "1.41 ± 0.06", "0.90 to 0.98", "11"])
def test_a_figure_is_a_number(figure: str) -> None:
    Result.model_validate(
        {**RESULT, "tables": [{**TABLE, "rows": [{"name": "x", "unit": "s", "figures": [figure, None]}]}]}
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rows": []}, "at least one row"),
        ({"rows": [{"name": "x", "unit": "s", "figures": ["1"]}]}, "x: 1 figures for 2 columns"),
        ({"rows": TABLE["rows"] * 2}, "two rows have the same name"),
        ({"rows": [{"name": "x", "figures": ["1", "2"]}]}, "either each column has a unit"),
        ({"columns": [{"name": "a", "unit": "s"}, {"name": "b", "unit": "s"}]}, "either each column has a unit"),
        ({"rows": [{"name": "x", "unit": "s", "figures": ["fast", None]}]}, "should match pattern"),
        ({"command": " "}, "at least 1 character"),
        ({"colour": "red"}, "Extra inputs are not permitted"),
    ],
)
def test_a_faulty_table_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Result.model_validate({**RESULT, "tables": [{**TABLE, **change}]})


def test_a_file_has_the_name_of_its_date_and_subject(tmp_path: Path) -> None:
    (tmp_path / "2026-11-22-calls.json").write_text(json.dumps(RESULT), "utf-8")
    with pytest.raises(ValueError, match=r"expected the name 2026-11-21-calls\.json"):
        load_results(tmp_path)


def test_a_result_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Result.model_validate(RESULT).date = date(2026, 1, 1)
