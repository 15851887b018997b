"""The database of measured ops: merging, several processes, and content from anywhere."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from byoc_core.errors import ArtifactError
from byoc_core.measurements import Measurement, Measurements, merged
from byoc_core.measurements.database import SWITCH
from byoc_core.measurements.measurement import export_text, read_text
from hypothesis import given
from hypothesis import strategies as st

ROW = Measurement(
    "cpu", 1, "aone", "byoc-aone 1.0", "", "", "00ff", "add", "elementwise", 10, 80, 2e-6, 1e-6, 6, "2026-01-31"
)
TIMES = st.floats(0, 1, allow_nan=False)
ROWS = st.builds(
    lambda key, seconds, samples, day, op: replace(
        ROW, key=key, seconds=seconds, samples=samples, date=f"2026-01-0{day}", op=op
    ),
    st.sampled_from(["a", "b"]),
    TIMES,
    st.integers(1, 40),
    st.integers(1, 3),
    st.sampled_from(["add", "nn.relu"]),
)
LISTS = st.lists(ROWS, max_size=6)


@pytest.fixture
def database(tmp_path: Path) -> Measurements:
    return Measurements(str(tmp_path / "folder" / "measured ops?.sqlite"))


@given(LISTS, LISTS, LISTS)
def test_a_merge_knows_no_order_and_no_repetition(
    first: list[Measurement], second: list[Measurement], third: list[Measurement]
) -> None:
    both = merged(first, second)
    assert both == merged(second, first) == merged(both, first)
    assert merged(both, third) == merged(first, merged(third, second))
    assert {row.key for row in both} == {row.key for row in first + second}


def test_a_merge_keeps_the_measurement_with_more_samples_then_the_later_then_the_shorter() -> None:
    more, later = replace(ROW, samples=7, seconds=1.0), replace(ROW, date="2026-02-01", seconds=1.0)
    assert merged([ROW], [more]) == [more]
    assert merged([later], [ROW]) == [later]
    assert merged([replace(ROW, seconds=1.0)], [ROW]) == [ROW]
    assert merged([replace(ROW, samples=1000)], [replace(later, samples=20)]) == [replace(later, samples=20)]


@given(first=LISTS, second=LISTS)
def test_added_rows_are_merged(tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any) -> None:
    database = Measurements(str(tmp_path_factory.mktemp("added") / "db"))
    database.add(first)
    database.add(second)
    assert database.rows() == merged(first, second)
    assert database.add([*first, *second]) == 0


def test_rows_are_selected_by_fields(database: Measurements) -> None:
    assert database.rows() == []
    two = replace(ROW, threads=2)
    assert database.add([ROW, two]) == 2
    assert database.rows(threads=2) == [two]
    assert database.rows(threads=1, backend="aone", processor="cpu") == [ROW]
    assert database.rows(backend="btwo") == []
    database.clear()
    assert database.rows() == []
    database.clear()


@given(LISTS)
def test_exported_text_is_read_back(rows: list[Measurement]) -> None:
    assert read_text(export_text(rows), "x") == (rows, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("processor", 3),
        ("threads", 0),
        ("threads", True),
        ("backend", "x" * 1000),
        ("key", None),
        ("flops", -1),
        ("nbytes", 1.5),
        ("nbytes", 10**30),
        ("estimated", float("nan")),
        ("seconds", -1e-9),
        ("seconds", float("inf")),
        ("seconds", 1e300),
        ("seconds", "1e-6"),
        ("samples", 0),
        ("date", "yesterday"),
        ("date", 20260101),
    ],
)
def test_rows_with_values_that_do_not_fit_are_left_out(database: Measurements, field: str, value: object) -> None:
    poisoned = replace(ROW, **{field: value})  # type: ignore[arg-type]
    assert Measurement.read(astuple(ROW)) == ROW
    assert Measurement.read(astuple(poisoned)) is None
    head = json.loads(export_text([]))
    text = json.dumps({**head, "rows": [astuple(ROW), astuple(poisoned), [], 3]})
    assert read_text(text, "x") == ([ROW], 3)
    database.add([ROW])
    file = database.file
    assert file is not None
    if value is None or value != value or (isinstance(value, int) and abs(value) > 1 << 62):
        return  # SQLite refuses these values itself
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE measurements SET {field} = ?", (value,))
    is_bool = value is True
    assert database.rows() == ([ROW] if is_bool else [])
    assert database.add([ROW]) == (0 if is_bool else 1)
    assert database.rows() == [ROW]


OTHER = "file x: holds no measurements of this version; expected schema 1, as written by `byoc measurements export`"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "file x: is malformed JSON: JSONDecodeError"),
        ("[" * 100_000, "file x: is malformed JSON: RecursionError"),
        (b"\xff\xfe\xff", "file x: is malformed JSON: UnicodeDecodeError"),
        ("[]", OTHER),
        (export_text([]).replace("1", "2", 1), OTHER),
        (export_text([]).replace("[\n\n]", "3"), "file x, `rows`: is not a list; got int"),
    ],
)
def test_other_texts_are_refused(text: str | bytes, problem: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_text(text, "file x")
    assert str(caught.value) == problem


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + bytes(1000)])
def test_a_damaged_file_is_an_error_with_a_remedy_and_no_measurement(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "db"
    path.write_bytes(content)
    database = Measurements(str(path))
    for call in (database.rows, lambda: database.add([ROW])):
        with pytest.raises(ArtifactError, match="byoc measurements clear"):
            call()
    assert database.usable_rows(threads=1) == []
    assert "measured ops do not count" in caplog.text
    database.clear()
    assert database.add([ROW]) == 1


def test_a_database_of_another_version_is_left_alone(database: Measurements) -> None:
    database.add([ROW])
    file = database.file
    assert file is not None
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(ArtifactError, match="version 9 of the database, expected 1"):
        database.rows()
    with pytest.raises(ArtifactError, match="version 9"):
        database.add([ROW])


def test_a_folder_without_write_access_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be used"):
        Measurements(str(tmp_path / "file" / "db")).add([ROW])
    with pytest.raises(ArtifactError, match="cannot be used"):
        Measurements(str(tmp_path)).clear()


def test_the_environment_names_the_users_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(SWITCH, raising=False)
    assert Measurements().file == tmp_path / "cache" / "measurements.sqlite"
    monkeypatch.setenv(SWITCH, str(tmp_path / "own"))
    assert Measurements().add([ROW]) == 1
    assert (tmp_path / "own").is_file()
    monkeypatch.setenv(SWITCH, "0")
    assert Measurements().file is None
    assert Measurements().rows() == []
    assert Measurements().add([ROW]) == 0
    Measurements().clear()
    assert Measurements(str(tmp_path / "own")).rows() == [ROW]


WRITER = """
import random, sys
from dataclasses import replace
from byoc_core.measurements import Measurement, Measurements

path, seed = sys.argv[1], int(sys.argv[2])
row = Measurement("cpu", 1, "aone", "1", "", "", "", "add", "elementwise", 1, 1, 1e-6, 1e-6, 6, "2026-01-01")
draw = random.Random(seed)
for _ in range(30):
    keys = draw.sample(range(60), 5)
    rows = [replace(row, key=f"k{key}", samples=draw.randint(1, 9), seconds=draw.random()) for key in keys]
    Measurements(path).add(rows)
    print(*(f"{row.key} {row.samples} {row.seconds!r}" for row in rows), sep="\\n")
"""


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "db"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in (1, 2)
    ]
    outputs = [writer.communicate(timeout=60)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    base = Measurement("cpu", 1, "aone", "1", "", "", "", "add", "elementwise", 1, 1, 1e-6, 1e-6, 6, "2026-01-01")
    written = [
        replace(base, key=key, samples=int(samples), seconds=float(seconds))
        for output in outputs
        for key, samples, seconds in (line.split() for line in output.splitlines())
    ]
    assert len(written) == 300
    random.Random(0).shuffle(written)
    assert Measurements(str(path)).rows() == merged(written)
