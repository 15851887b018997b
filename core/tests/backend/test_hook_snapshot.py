"""No hook changes without a note of the version; hooks used by plugins never change."""

from __future__ import annotations

from typing import Any

import pytest

from core.tests.backend.hook_snapshot import RULE, current, faults, minor_version, stored

pytestmark = pytest.mark.asks_for_plugins

HOOK: dict[str, Any] = {
    "since": "0.1",
    "required": False,
    "returns": "int",
    "arguments": {"x": {"type": "str", "since": "0.1"}},
}
BEFORE = {"group/hook": HOOK}


def changed(**fields: object) -> dict[str, Any]:
    return {"group/hook": {**HOOK, **fields}}


def with_argument(name: str, since: str, type_: str = "str") -> dict[str, Any]:
    return changed(arguments={**HOOK["arguments"], name: {"type": type_, "since": since}})


def test_the_hooks_are_those_of_the_stored_file() -> None:
    assert sorted(faults(stored(), current(), minor_version())) == [], RULE
    assert current() == stored(), RULE


@pytest.mark.parametrize(
    ("after", "fault"),
    [
        ({}, "group/hook is gone"),
        (changed(since="0.2"), "group/hook: `since` was '0.1', and is '0.2'"),
        (changed(required=True), "group/hook: `required` was False, and is True"),
        (changed(returns="str"), "group/hook: `returns` was 'int', and is 'str'"),
        (changed(arguments={}), "group/hook: argument `x` is gone"),
        (with_argument("y", "0.1"), "group/hook: argument `y` is new, and says since 0.1 instead of 0.2"),
        (
            with_argument("x", "0.1", "int"),
            "group/hook: argument `x` was {'type': 'str', 'since': '0.1'}, and is {'type': 'int', 'since': '0.1'}",
        ),
        ({**BEFORE, "group/new": HOOK}, "group/new is new, and says since 0.1 instead of 0.2"),
        ({**BEFORE, "group/new": {**HOOK, "since": "0.2", "required": True}}, "group/new is new, and required"),
    ],
)
def test_an_unlawful_change_is_told(after: dict[str, Any], fault: str) -> None:
    assert list(faults(BEFORE, after, "0.2")) == [fault]


@pytest.mark.parametrize(
    "after", [BEFORE, with_argument("y", "0.2"), {**BEFORE, "group/new": {**HOOK, "since": "0.2"}}]
)
def test_a_lawful_change_is_not(after: dict[str, Any]) -> None:
    assert list(faults(BEFORE, after, "0.2")) == []


def test_a_first_hook_of_a_group_may_be_required() -> None:
    assert list(faults({}, {"group/new": {**HOOK, "since": "0.2", "required": True}}, "0.2")) == []
