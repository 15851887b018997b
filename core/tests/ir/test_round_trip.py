"""Printing and parsing are inverse; equality and hash cover all and only the relevant parts."""

from __future__ import annotations

import contextlib
import random

from byoc_core.errors import ByocError
from byoc_core.ir import IRModule, OpRegistry, parse_module, print_module, structural_hash, verify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Modules = st.SearchStrategy[IRModule]
relaxed = settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)


@relaxed
@given(data=st.data())
def test_a_random_module_is_valid(data: st.DataObject, modules: Modules) -> None:
    module = data.draw(modules)
    assert verify(module) is module


@relaxed
@given(data=st.data())
def test_parsing_what_was_printed_gives_the_module_back(data: st.DataObject, modules: Modules, ops: OpRegistry) -> None:
    module = data.draw(modules)
    text = print_module(module)
    again = parse_module(text, ops, constants=module.constants)
    assert again == module, text
    assert structural_hash(again) == structural_hash(module)
    assert list(again.functions) == list(module.functions)
    assert print_module(again) == text
    verify(again)


@relaxed
@given(data=st.data())
def test_printed_text_is_python(data: st.DataObject, modules: Modules) -> None:
    text = print_module(data.draw(modules))
    compile(text, "<script>", "exec")


@settings(relaxed, max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_mutated_text_raises_only_errors_of_byoc(
    data: st.DataObject, seed: int, modules: Modules, ops: OpRegistry
) -> None:
    module = data.draw(modules)
    text = print_module(module)
    chance = random.Random(seed)
    pieces = [
        "(",
        ")",
        ",",
        '"',
        "'",
        "R",
        ".",
        " ",
        "\n",
        "0",
        "n",
        "-",
        "=",
        "[",
        "]",
        "{",
        "}",
        ":",
        "#",
        "*",
        "\x00",
    ]
    for _ in range(chance.randint(1, 4)):
        first = chance.randrange(len(text) + 1)
        last = min(len(text), first + chance.choice([0, 1, 1, 5, 40]))
        start = chance.randrange(len(text) + 1)
        inserted = chance.choice([*pieces, "", text[start : start + 30], text[start : start + 8]])
        text = text[:first] + inserted + text[last:]
    with contextlib.suppress(ByocError):
        verify(parse_module(text, ops, constants=module.constants))
