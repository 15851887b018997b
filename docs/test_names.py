"""The names checked by `docs.names`: definitions, vague words, and the lines printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import names
from docs.names import ODD, PROMISED, ROOT, VAGUE, advice, names_in, vague_names

SOURCE = """\
import numpy as made
class Place(Base):
    kept: int = 0
def f(a, /, b, *c, d=told, **e):
    x, *y = a
    self.held = b.given = 1
    read.taken
    x[whole] += 1
    for i in x: pass
    with z as w: pass
    return [v for v in (n := y)] + (lambda m: m)(1)
async def g(): pass
match x:
    case {"key": p, **q}: pass
    case [r, *s] | C(t=r) as s: pass
try: pass
except E as error: pass
"""


def _write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


def test_definitions_are_classes_functions_parameters_variables_and_attributes() -> None:
    definitions = "Place a b c d e error f g given held i kept m made n p q r s v w x y"
    assert " ".join(sorted({name for name, _ in names_in(SOURCE)})) == definitions


def test_uses_and_keywords_are_no_definitions() -> None:
    found = {name for name, _ in names_in(SOURCE)}
    assert found.isdisjoint({"numpy", "Base", "told", "read", "taken", "whole", "z", "E", "C", "t"})


def test_each_definition_has_its_line() -> None:
    source = "def f(\n    a,\n    b,\n):\n    c = 1\n    d.e = c\n    f(c=1)\n"
    assert sorted(names_in(source)) == [("a", 2), ("b", 3), ("c", 5), ("e", 6), ("f", 1)]


@pytest.mark.parametrize("name", [word for words in VAGUE.values() for word in words])
def test_a_vague_word_alone_is_a_vague_name(name: str) -> None:
    better = advice(name)
    assert better is not None
    assert advice(f"_{name}") == advice(f"{name}_") == advice(f"_{name.upper()}") == advice(name.title()) == better


@pytest.mark.parametrize(
    "name", ["is_known", "known_sizes", "_KNOWN_SIZES", "KnownSizes", "num_places", "replaced", "someone", "_", "_1"]
)
def test_a_longer_name_may_contain_a_vague_word(name: str) -> None:
    assert advice(name) is None


@pytest.mark.parametrize("word", sorted(ODD))
def test_no_name_contains_an_odd_word(word: str) -> None:
    for name in (word, f"is_{word}", f"_{word.upper()}_IDS", f"New{word.title()}Test"):
        assert advice(name) is not None
    assert advice(f"{word}x") is None


def test_vague_names_are_listed_by_file_and_line(tmp_path: Path) -> None:
    source = "def f(\n    whole: int,\n    what: int,\n) -> None:\n    whole = what\n"
    root = _write(tmp_path, **{"core/src/byoc_core/known": source, "docs/x": "a = b.place\n", "out/x": "place = 1\n"})
    lines = [
        "core/src/byoc_core/known.py:1: known: better: the noun: facts, sizes, constants",
        "core/src/byoc_core/known.py:2: whole: better: full, entire, or the noun",
        "core/src/byoc_core/known.py:3: what: better: subject, label, or the noun",
        "core/src/byoc_core/known.py:5: whole: better: full, entire, or the noun",
    ]
    assert vague_names(root) == lines
    assert vague_names(root, [root / "core" / "src"]) == lines
    assert vague_names(root, [root / "docs", root / "out"]) == []


def test_the_exit_status_tells_whether_names_are_vague(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _write(tmp_path, **{"sessions/x": "first = 1\n", "plugins/mynpu/src/byoc_mynpu/y": "place = 1\n"})
    monkeypatch.setattr(names, "ROOT", root)
    assert names.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "plugins/mynpu/src/byoc_mynpu/y.py:1: place: better: index, offset, slot, location, rank",
        "1 vague names",
    ]
    assert names.main([str(root / "sessions")]) == 0
    assert capsys.readouterr().out == "0 vague names\n"


def test_no_name_of_this_repository_is_vague() -> None:
    assert vague_names(ROOT) == []


@pytest.mark.parametrize(("path", "name"), sorted(PROMISED))
def test_a_promised_name_is_defined_and_vague(path: str, name: str) -> None:
    assert name in {defined for defined, _ in names_in((ROOT / path).read_text("utf-8"))}
    assert advice(name)
