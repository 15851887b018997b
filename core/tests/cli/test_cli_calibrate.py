"""``byoc calibrate`` and ``byoc measurements``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from byoc_core.measurements import Measurement, Measurements

from core.tests.cli.conftest import RunByoc
from core.tests.cli.test_cli_explain import PLUGIN

pytestmark = pytest.mark.lowest

ROW = Measurement("cpu", 1, "aone", "1", "", "", "k||", "add", "elementwise", 1, 1, 2e-6, 1e-6, 6, "2026-01-01")


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measurements:
    """The user's database of measured ops."""
    path = tmp_path / "measured.sqlite"
    monkeypatch.setenv("BYOC_MEASUREMENTS", str(path))
    return Measurements(str(path))


@pytest.fixture
def part(install_backend: Callable[[str, str], Path]) -> str:
    """The name of an installed backend claiming ``matmul`` and ``add``."""
    install_backend("part", PLUGIN)
    return "part"


def test_a_calibration_measures_ops_and_keeps_them(byoc: RunByoc, part: str, database: Measurements) -> None:
    done = byoc("calibrate", "--backend", part, "--threads", "1")
    assert (done.code, done.err) == (0, "")
    rows = database.rows()
    assert {row.op for row in rows} == {"matmul", "add"}
    assert {(row.backend, row.version, row.threads) for row in rows} == {("part", "byoc-part 1.0", 1)}
    assert "part: products, 9 measured ops, " in done.out
    assert "predicted/measured, mean and spread" in done.out
    assert done.out.endswith(f"{len(rows)} measured ops, kept in {database.path}\n")
    shown = byoc("measurements")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"{database.path}: {len(rows)} measured ops, {len(rows)} of this machine (")
    assert f"  {len(rows)} ops on part, byoc-part 1.0, 1 threads\n" in shown.out
    table = shown.out[shown.out.index("backend  ") :].rstrip()
    assert len(table.splitlines()) > 2
    assert table in done.out


def test_a_calibration_may_leave_no_trace(byoc: RunByoc, part: str, database: Measurements) -> None:
    done = byoc("calibrate", "--backend", part, "--seconds", "0", "--no-measurements")
    assert done.code == 0
    assert done.out.endswith("measured ops (the calibration ended early), kept nowhere\n")
    assert not Path(database.path).exists()


def test_tuning_keeps_the_times_of_ops(byoc: RunByoc, model: Path, part: str, database: Measurements) -> None:
    arguments = ("tune", model, "--seconds", "0", "--threads", "1", "--dim", "n=3")
    assert byoc(*arguments, "--no-measurements").code == 0
    assert database.rows() == []
    assert byoc(*arguments).code == 0
    assert {row.backend for row in database.rows()} == {part}


def test_without_backends_there_is_nothing_to_calibrate(byoc: RunByoc, database: Measurements) -> None:
    done = byoc("calibrate")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: calibrate, backends: no backend can compile here. `byoc doctor` lists the reasons.\n"
    assert byoc("calibrate", "--threads", "0").code == 2
    assert byoc("calibrate", "--seconds", "-1").code == 2


@pytest.mark.parametrize("command", ["calibrate", "measurements"])
def test_help_has_examples(byoc: RunByoc, command: str) -> None:
    done = byoc(command, "--help")
    assert done.code == 0
    assert "Examples:" in done.out
    assert "database of measured ops" in done.out


def test_exported_measurements_are_merged_elsewhere(byoc: RunByoc, database: Measurements, tmp_path: Path) -> None:
    database.add([ROW])
    assert byoc("measurements", "export", "m.json").out == "wrote m.json\n"
    assert byoc("measurements", "export").out == Path("m.json").read_text("utf-8")
    other = tmp_path / "other"
    done = byoc("measurements", "merge", "m.json", "--database", other)
    assert (done.code, done.out) == (0, "1 measured ops read, 1 of them new or better\n")
    assert Measurements(str(other)).rows() == [ROW]
    assert byoc("measurements", "merge", "m.json").out == "1 measured ops read, 0 of them new or better\n"
    assert byoc("measurements", "clear").out == "the database is empty\n"
    assert database.rows() == []
    assert byoc("measurements").out.startswith(f"{database.path}: 0 measured ops, 0 of this machine (")


def test_rows_that_do_not_fit_are_left_out(byoc: RunByoc, database: Measurements) -> None:
    database.add([ROW])
    byoc("measurements", "export", "m.json")
    data = json.loads(Path("m.json").read_text("utf-8"))
    data["rows"].append([*data["rows"][0][:-1], "tomorrow"])
    Path("m.json").write_text(json.dumps(data))
    done = byoc("measurements", "merge", "m.json")
    assert done.out == "1 measured ops read, 0 of them new or better, 1 left out: a value does not fit\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("merge",), "byoc measurements merge: needs the file to merge\n"),
        (("show", "x"), "byoc measurements show: takes no file; got x. Use --database.\n"),
        (("merge", "x.json"), "measurements `x.json`: is malformed JSON: JSONDecodeError\n"),
    ],
)
def test_wrong_arguments_are_told(
    byoc: RunByoc, database: Measurements, arguments: tuple[str, ...], problem: str
) -> None:
    Path("x.json").write_text("{")
    done = byoc("measurements", *arguments)
    assert (done.code, done.out, done.err) == (1, "", f"error: {problem}")


def test_a_damaged_database_is_told_with_the_remedy(byoc: RunByoc, database: Measurements) -> None:
    Path(database.path).write_bytes(b"damaged" * 1000)
    done = byoc("measurements")
    assert done.code == 1
    assert "`byoc measurements clear` removes the file" in done.err
    assert byoc("measurements", "clear").code == 0
    assert byoc("measurements").code == 0


def test_the_database_may_be_off(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_MEASUREMENTS", "0")
    assert byoc("measurements").out == "the database is switched off (BYOC_MEASUREMENTS=0)\n"
