"""The areas of measured prose, and the lines for exceeded limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import prose
from docs.prose import Limits, areas, problems
from docs.source_counts import messages_in

PLAIN = '"""Return the sum."""\n'
ODD = '"""Gives what it is that they say of those."""\n'


def _tree(root: Path, **files: str) -> Path:
    core = root / "core" / "src" / "byoc_core"
    for name, text in {"__init__": "", "vm/__init__": PLAIN, **files}.items():
        path = core / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


def test_each_folder_of_core_is_an_area(tmp_path: Path) -> None:
    root = _tree(tmp_path, **{"ir/graph": PLAIN, "errors": ODD})
    (root / "README.md").write_text(
        "# Title\n\nWhat it is.\n\n    code that is\n\n```\nwhich\n```\n\nUse `what`.\n", "utf-8"
    )
    found = areas(root)
    assert list(found) == ["core: other modules", "core: ir", "core: vm", "pages"]
    (page,) = found["pages"]["README.md"]
    assert page.split() == ["#", "Title", "What", "it", "is.", "Use", "."]


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        ("raise E('the axis is not here')", ["the axis is not here"]),
        ("f('one two three', x='one two  three', y='a 1 2 3 b')", []),
        ("f('the', 'axis', 'is', 'out')", []),
        ("f('the axis ' 'is out of range')", ["the axis is out of range"]),
        ("f(b'the axis is not here', 4)", []),
        ("f(f'the axis {axis!r} is {x:>{width}} here')", ["the axis {} is {} here"]),
        ("f(f'axis {x} of {y}')", []),
        ("f(f'the axis of {x} and {y}')", ["the axis of {} and {}"]),
        ("f(f'{x}: the axis is ' f'not {y}')", ["{}: the axis is not {}"]),
    ],
)
def test_messages_are_strings_of_four_words(source: str, messages: list[str]) -> None:
    assert [*messages_in(source)] == messages


def test_messages_of_nested_f_strings_are_read_too() -> None:
    source = """f(f"the axis {a} is {f'one of the axes {b}'}, or {f'no {c}'} here")"""
    assert sorted(messages_in(source)) == ["one of the axes {}", "the axis {} is {}, or {} here"]


def test_docstrings_are_no_messages() -> None:
    source = '''\
"""The docstring of the module."""
x = "the text of a message"
"""The docstring of an attribute."""
class C:
    """The docstring of the class."""
    def f(self):
        """The docstring of the function."""
        return f"the result of {self} is {1}"
'''
    assert [*messages_in(source)] == ["the text of a message", "the result of {} is {}"]


def test_an_area_above_the_limits_is_a_problem(tmp_path: Path) -> None:
    root = _tree(tmp_path, errors=ODD)
    (line,) = problems(root)
    assert line == "core: other modules: 222.2 relative words, 333.3 pronouns per 1,000 words; at most 16 and 14"
    assert problems(root, Limits(223, 334)) == []
    assert len(problems(root, Limits(222, 334))) == len(problems(root, Limits(223, 333))) == 1


@pytest.fixture(scope="module")
def repository() -> dict[str, dict[str, list[str]]]:
    """The texts of this repository, read once."""
    return areas(prose.ROOT)


@pytest.fixture
def _read_once(repository: dict[str, dict[str, list[str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "areas", {prose.ROOT: repository}.__getitem__)


@pytest.mark.usefixtures("_read_once")
def test_no_area_of_this_repository_exceeds_its_limits() -> None:
    assert problems(prose.ROOT) == []


@pytest.mark.usefixtures("_read_once")
def test_the_worst_docstrings_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main(["--worst", "1", "docs"]) == 0
    assert prose.main(["core/src/byoc_core/dims"]) == 0
    assert "core: dims" in capsys.readouterr().out
