"""Options, levels and patterns, as text."""

from __future__ import annotations

import pytest
from byoc_conformance.choices import choose_items, parse_levels, parse_options
from byoc_conformance.promise import Level
from byoc_core.errors import OptionsError

from conformance.tests.samples import new_item

ITEMS = [new_item(Level.L0, "lint"), new_item(Level.L2, "op", "add"), new_item(Level.L2, "op", "exp")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": 1}),
        ("a=[1, 2]", {"a": [1, 2]}),
        ("a=text", {"a": "text"}),
        ('a="1"', {"a": "1"}),
        ("a=true", {"a": True}),
        ("a=", {"a": ""}),
        ("a=x=y", {"a": "x=y"}),
        ("a.b=1", {"a.b": 1}),
    ],
)
def test_an_option_is_json_or_text(text: str, expected: dict[str, object]) -> None:
    assert parse_options([text], ()) == (expected, {})


def test_options_of_companions() -> None:
    found = parse_options(["fast=2", "other.fast=3", "third.fast=4"], ["other"])
    assert found == ({"fast": 2, "third.fast": 4}, {"other": {"fast": 3}})


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_a_malformed_option(text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        parse_options([text], ())
    assert str(caught.value) == f"--option: is malformed; got {text!r}, expected KEY=VALUE, or NAME.KEY=VALUE"


def test_levels() -> None:
    assert parse_levels([]) == tuple(Level)
    assert parse_levels(["L3", "L0", "L3"]) == (Level.L0, Level.L3)
    with pytest.raises(OptionsError) as caught:
        parse_levels(["l2"], "--byoc-level")
    assert str(caught.value) == "--byoc-level: names no level; got 'l2', expected L0, L1, L2, L3, L4"


@pytest.mark.parametrize(
    ("levels", "patterns", "expected"),
    [
        (tuple(Level), [], ["L0-lint", "L2-op[add]", "L2-op[exp]"]),
        ((Level.L2,), [], ["L2-op[add]", "L2-op[exp]"]),
        (tuple(Level), ["*exp*", "L0-*"], ["L0-lint", "L2-op[exp]"]),
        ((Level.L0, Level.L2), ["L2-op[add]"], ["L2-op[add]"]),
        (tuple(Level), ["L2-op[?dd]", "*[e*"], ["L2-op[add]", "L2-op[exp]"]),
    ],
)
def test_items(levels: tuple[Level, ...], patterns: list[str], expected: list[str]) -> None:
    assert [item.id for item in choose_items(ITEMS, levels, patterns)] == expected


@pytest.mark.parametrize(
    ("levels", "patterns", "exceptions", "expected"),
    [
        (tuple(Level), [], ["L2-op[add]"], ["L0-lint", "L2-op[exp]"]),
        (tuple(Level), ["L2-*"], ["*exp*"], ["L2-op[add]"]),
        (tuple(Level), [], ["L0-*", "*[e*"], ["L2-op[add]"]),
    ],
)
def test_exceptions(levels: tuple[Level, ...], patterns: list[str], exceptions: list[str], expected: list[str]) -> None:
    assert [item.id for item in choose_items(ITEMS, levels, patterns, exceptions)] == expected


@pytest.mark.parametrize(
    ("exceptions", "text"),
    [
        (["L3-*"], "--except L3-*: matches no test"),
        (["L0-*", "L2-*"], "--except: leaves no test; got L0-*, L2-*"),
    ],
)
def test_exceptions_without_effect_or_remainder(exceptions: list[str], text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        choose_items(ITEMS, tuple(Level), [], exceptions)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("levels", "pattern", "text"),
    [
        ((Level.L0,), "L3-*", "--only L3-*: matches no test"),
        (tuple(Level), "L2-op[a-d]", "--only L2-op[a-d]: matches no test. Did you mean 'L2-op[add]' or 'L2-op[exp]'?"),
        (tuple(Level), "L0-lind", "--only L0-lind: matches no test. Did you mean 'L0-lint'?"),
        (
            (Level.L0,),
            "L2-op[add]",
            "--only L2-op[add]: matches no test of L0, but tests of L2. Leave out the level L0, or choose L2.",
        ),
        (
            (Level.L1, Level.L3),
            "*",
            "--only *: matches no test of L1, L3, but tests of L0, L2. Leave out the level L1, L3, or choose L0, L2.",
        ),
    ],
)
def test_a_pattern_that_matches_nothing(levels: tuple[Level, ...], pattern: str, text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        choose_items(ITEMS, levels, [pattern])
    assert str(caught.value) == text
