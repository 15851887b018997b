"""Decision records have the same form, unique numbers and an index; notes on plugins have an index too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
NOTES = sorted(ROOT.glob("plugins/*/docs/notes"))
TITLE = re.compile(r"# (\d+)\. (.+)\n")
MOVED = re.compile(r"^\| (\d+) \| \[.+\]\((.+)\) of ", re.MULTILINE)
"""A row of the table of moved numbers."""
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
ANCHOR = re.compile(r"benchmarks/RESULTS\.md#([\w-]+)")


def name_of(path: Path) -> str:
    """Return the path in the repository."""
    return path.relative_to(ROOT).as_posix()


def parts_of(text: str) -> list[tuple[str, str]]:
    """Return the headings of a page, each with the following text."""
    _, *parts = re.split(HEADING, text)
    return list(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def number_and_title(record: Path) -> tuple[int, str]:
    """Return number and title from the first line of a record."""
    found = TITLE.match(record.read_text("utf-8"))
    assert found is not None, "the first line is not `# N. Title`"
    return int(found[1]), found[2]


def index_rows() -> list[tuple[str, str, str]]:
    """Return number, file and title of each record in the index."""
    return re.findall(r"^\| \[(\d+)\]\((.+)\) \| (.+) \|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("record", RECORDS, ids=name_of)
def test_a_record_has_the_headings_of_the_template(record: Path) -> None:
    expected = [heading for heading, _ in parts_of((FOLDER / "template.md").read_text("utf-8"))]
    assert expected == ["Status", "Context", "Decision", "Consequences", "Alternatives considered"]
    parts = parts_of(record.read_text("utf-8"))
    assert [heading for heading, _ in parts] == expected
    assert [heading for heading, text in parts if not text] == []
    assert dict(parts)["Status"].startswith(("Accepted.", "Replaced by ["))


@pytest.mark.parametrize("record", RECORDS, ids=name_of)
def test_the_number_of_a_record_is_that_of_its_file(record: Path) -> None:
    number, title = number_and_title(record)
    assert record.name.startswith(f"{number:04}-")
    assert not title.endswith(".")


def test_the_index_lists_each_record_with_its_title() -> None:
    expected = [(str(number), path.name, title) for path in RECORDS for number, title in [number_and_title(path)]]
    assert index_rows() == expected


def test_each_number_is_a_record_or_has_moved() -> None:
    moved = [int(number) for number, _ in MOVED.findall((FOLDER / "README.md").read_text("utf-8"))]
    present = [number_and_title(record)[0] for record in RECORDS]
    assert sorted([*present, *moved]) == list(range(1, len(present) + len(moved) + 1))


@pytest.mark.parametrize("folder", NOTES, ids=name_of)
def test_the_index_of_notes_lists_each_with_its_title(folder: Path) -> None:
    index = (folder / "README.md").read_text("utf-8")
    listed = {name: title for title, name in re.findall(r"^\| \[(.+?)\]\((.+?)\) \|", index, re.MULTILINE)}
    notes = [path for path in folder.glob("*.md") if path.name != "README.md"]
    assert listed == {path.name: path.read_text("utf-8").partition("\n")[0].removeprefix("# ") for path in notes}


def test_there_are_notes_on_plugins() -> None:
    assert [name_of(folder) for folder in NOTES] == ["plugins/ccompiler/docs/notes", "plugins/dnnl/docs/notes"]


def test_cited_results_are_on_the_page_of_results() -> None:
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    anchors = {heading.replace(" ", "-") for heading in HEADING.findall(results)}
    pages = [*ROOT.glob("docs/**/*.md"), *(page for folder in NOTES for page in folder.glob("*.md"))]
    cited = {(name_of(page), anchor) for page in pages for anchor in ANCHOR.findall(page.read_text("utf-8"))}
    assert cited, "no page cites a result"
    assert sorted((page, anchor) for page, anchor in cited if anchor not in anchors) == []
