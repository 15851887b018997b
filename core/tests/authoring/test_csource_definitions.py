"""Definitions shared by the functions of a source."""

from __future__ import annotations

from byoc_core.authoring.csource_shared import Definitions


def test_equal_texts_are_written_once() -> None:
    definitions = Definitions()
    names = [definitions.name("f", text) for text in ("int {name};", "int {name};", "long {name};")]
    for _ in range(2):
        definitions.add("static int g(void) { return 1; }")
    assert names[0] == names[1] != names[2]
    assert definitions.texts == [f"int {names[0]};", f"long {names[2]};", "static int g(void) { return 1; }"]
