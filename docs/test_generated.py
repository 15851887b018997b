"""Pages that are made from the code are what the code makes, and complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from byoc_conformance import all_promises
from byoc_core.backend import hook_specs
from byoc_core.plugin.specification import QUESTIONS

from docs.dnnl_ops import undecided_ops
from docs.generate import DOCS, generated_pages
from docs.promise_table import MARKS, with_promises

PAGES = generated_pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_page_is_what_the_code_makes(page: Path) -> None:
    assert page.read_text("utf-8") == PAGES[page], "run `python -m docs.generate`"


def test_no_page_is_left_of_a_hook_that_is_gone() -> None:
    assert sorted((DOCS / "hooks").iterdir()) == sorted(page for page in PAGES if page.parent.name == "hooks")


@pytest.mark.parametrize("name", [hook.name for hook in hook_specs()])
def test_a_hook_has_a_complete_page(name: str) -> None:
    page = (DOCS / "hooks" / f"{name}.md").read_text("utf-8")
    assert page.startswith(f"# {name}\n")
    assert [question for question in QUESTIONS if f"\n**{question}:** " not in page] == []
    example = page.partition("\n## Example\n\n```python\n")[2].partition("```")[0]
    assert f"\n@hookimpl\ndef {name}(" in example
    assert f"({name}.md)" in (DOCS / "hooks" / "README.md").read_text("utf-8")


def test_every_promise_stands_in_the_table() -> None:
    page = (DOCS / "conformance.md").read_text("utf-8")
    assert [p.name for p in all_promises() if f"| `{p.level}-{p.name}` |" not in page] == []


def test_dnnl_takes_each_op_or_says_why_not() -> None:
    assert undecided_ops() == []


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page does not have <!-- promises"):
        with_promises("no marks")
    assert with_promises("\n".join(MARKS)) != "\n".join(MARKS)
