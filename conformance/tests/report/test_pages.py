"""The pages and badges: complete, self-contained, and texts from a backend stay text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from byoc_conformance.outcome import Status
from byoc_conformance.report.badge import render_badge, render_endpoint
from byoc_conformance.report.markdown import render_markdown
from byoc_conformance.report.model import Coverage, Report
from byoc_conformance.report.page import render_page
from byoc_conformance.verdict import Verdict

from conformance.tests.samples import ALL_PASSED, new_report

pytestmark = pytest.mark.lowest

HOSTILE = "</pre><script src='//x'>alert(1)</script>&amp; \x1b[31m `code` ```\n| a *b* [c](http://d)"
VOID = {"meta", "link", "br", "img", "input"}


class Page(HTMLParser):
    """A parser checking the nesting of tags, and collecting tags, attributes, texts and table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def report() -> Report:
    return new_report(
        ALL_PASSED
        | {
            "L2-op[add]": Verdict.FAILED,
            "L2-op[exp]": Verdict.XFAILED,
            "L2-op[log]": Verdict.DECLINED,
            "L4-threads": Verdict.CRASHED,
        },
        texts={"L2-op[add]": HOSTILE, "L2-op[exp]": "failed: off by 3 ULP", "L4-threads": "while it ran: SIGSEGV"},
        xfail={"L2-op[exp]": "the table of <exp> is coarse"},
        coverage=(
            Coverage(op="add", dtype="float32", status=Status.PASSED),
            Coverage(op="add", dtype="int8", status=Status.FAILED),
            Coverage(op="exp", dtype="float32", status=Status.DECLINED),
            Coverage(op="exp", dtype="int8", status=Status.HUNG),
            Coverage(op="lo_g", dtype="float32", status=Status.DECLINED),
            Coverage(op="lo_g", dtype="int64", status=Status.NOT_COVERED),
            Coverage(op="sin", dtype="float32", status=Status.DECLINED),
        ),
        changes=("`T.test_L2` <is> named as a test of the kit",),
    )


def test_the_page_stands_alone(report: Report) -> None:
    text = render_page(report)
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in {"src", "href", "style"} or name.startswith("on")]
    assert re.findall(r"url\(|@import|https?:", text.replace("http://d", "")) == []
    assert "default-src 'none'" in text
    assert "\x1b" not in text
    assert {"html", "head", "body", "h1", "table"} <= set(page.tags)


def test_the_page_shows_everything(report: Report) -> None:
    page = Page(render_page(report))
    rows = page.rows
    assert ["level", "about", "passed", "declined", "xfailed", "failed", "crashed"] in rows
    assert ["L2", "numerics: every claimed op, dtype and pattern", "1", "1", "1", "1", "0"] in rows
    assert ["all", "", "5", "1", "1", "1", "1"] in rows
    assert ["op", "float32", "int8"] in rows
    assert ["add", "✓", "✗"] in rows
    assert ["exp", "–", "∞"] in rows
    assert not {"lo_g", "sin"} & {row[0] for row in rows}
    assert "Declined or not covered in every dtype: lo_g, sin." in "".join(page.texts)
    assert ["backend mynpu", "byoc-mynpu 1.2"] in rows
    assert ["options", "mynpu.effort=2, other.level='high'"] in rows
    assert ["onnx", "not installed"] in rows
    assert ["took", "90.0 s"] in rows
    listed = {row[0] for row in rows}
    assert {item.id for item in report.items} <= listed
    assert HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}") in page.texts
    assert "Why: the table of <exp> is coarse" in page.texts
    assert "`T.test_L2` <is> named as a test of the kit" in page.texts
    assert "mynpu with other: suite changed" in page.texts


def test_the_page_of_a_good_report_has_no_section_of_faults() -> None:
    page = Page(render_page(new_report(ALL_PASSED)))
    assert [text for text in page.texts if "roken" in text or "changed" in text] == []
    assert "mynpu with other: L4 5/5" in page.texts


def test_markdown(report: Report) -> None:
    lines = render_markdown(report).splitlines()
    assert lines[0] == "# Conformance of mynpu with other: suite changed"
    assert "| L4 | behaviour: threads, buffers, sizes, memory | 1 | 0 | 0 | 0 | 1 |" in lines
    assert "- \\`T.test\\_L2\\` \\<is\\> named as a test of the kit" in lines
    assert "| L2-op\\[exp\\] | the table of \\<exp\\> is coarse | failed: off by 3 ULP |" in lines
    assert "| add | ✓ | ✗ |" in lines
    assert "Declined or not covered in every dtype: lo\\_g, sin." in lines
    start = lines.index("### L2-op\\[add\\]: failed")
    assert lines[start + 2 : start + 6] == [
        "````text",
        *HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}").splitlines(),
        "````",
    ]


def test_markdown_tables_have_as_many_cells_in_each_row(report: Report) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", render_markdown(report), re.MULTILINE)
    tables = [table for table in tables if "| --- |" in table]
    assert len(tables) == 4
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_equal_errors_of_many_tests_are_shown_once() -> None:
    names = [f"L2-op[{number}]" for number in range(9)]
    texts = dict.fromkeys(names[:8], "cannot be imported") | {names[8]: "off by 3 ULP"}
    report = new_report(dict.fromkeys(names, Verdict.FAILED), texts=texts)
    page = Page(render_page(report))
    assert page.texts.count(f"{', '.join(names[:5])} and 3 more") == page.tags.count("article") - 1 == 1
    assert "Broken (9)" in page.texts
    assert {*names} <= {row[0] for row in page.rows}
    assert render_markdown(report).count("cannot be imported") == 1


@pytest.mark.parametrize(
    ("statuses", "message", "color"),
    [
        (ALL_PASSED, "L4 5/5", "brightgreen"),
        (ALL_PASSED | {"L3-b": Verdict.XFAILED}, "L4 5/6", "brightgreen"),
        (ALL_PASSED | {"L4-promise": Verdict.NOT_COVERED}, "L3 4/4", "green"),
        (ALL_PASSED | {"L2-b": Verdict.HUNG}, "L1 5/6", "red"),
        (ALL_PASSED | {"L0-b": Verdict.FAILED}, "no level 5/6", "red"),
        (ALL_PASSED | {"L4-b": Verdict.NOT_RUN}, "partial 5/5, 1 not run", "yellow"),
    ],
)
def test_badges(statuses: dict[str, Verdict], message: str, color: str) -> None:
    report = new_report(statuses)
    endpoint = render_endpoint(report)
    assert endpoint == {"schemaVersion": 1, "label": "byoc conformance", "message": message, "color": color}
    json.dumps(endpoint)
    root = ET.fromstring(render_badge(report))
    name = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{name}svg"
    assert [node.text for node in root.iter(f"{name}text")] == ["byoc conformance", message]
    boxes = [(float(node.get("x", 0)), float(node.get("width", 0))) for node in root.iter(f"{name}rect")][1:]
    for text, (x, width) in zip(root.iter(f"{name}text"), boxes, strict=True):
        middle, half = float(text.get("x", 0)), float(text.get("textLength", 0)) / 2
        assert x <= middle - half
        assert middle + half <= x + width
