"""Hook specifications read as data."""

from __future__ import annotations

import types

import pytest
from byoc_core.plugin.markers import hookspec
from byoc_core.plugin.specification import HookArgument, HookSpec, read_hook_specs

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]


@hookspec(since="0.1", required=True, arguments_since={"depth": "0.3"})
def byoc_search(text: str, depth: int) -> bool:  # type: ignore[empty-body]
    """Searches. Required.

    Called by: whoever
        is curious.
    Result: kept.

    Example::

        def byoc_search(text):
            return "x" in text
    """


def test_a_specification_says_since_when() -> None:
    specs = types.ModuleType("specs")
    vars(specs).update(byoc_search=byoc_search, helper=len, NUMBER=3)
    (hook,) = read_hook_specs(specs, "some.group")
    arguments = (HookArgument("text", "str", "0.1"), HookArgument("depth", "int", "0.3"))
    assert hook == HookSpec("some.group", "byoc_search", True, arguments, "bool", "0.1", hook.doc)
    assert hook.signature == "def byoc_search(text: str, depth: int) -> bool"
    assert hook.summary == "Searches. Required."
    assert dict(hook.answers) == {"Called by": "whoever is curious.", "Result": "kept."}
    assert hook.example == 'def byoc_search(text):\n    return "x" in text\n'
