"""The generated pages are complete and equal to the output of the generator."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from byoc_conformance import all_promises
from byoc_core.backend import hook_specs
from byoc_core.backend.hooks import BackendInfo
from byoc_core.dtypes import all_dtypes
from byoc_core.ir import STRUCTURAL_OPS
from byoc_core.ops import default_ops
from byoc_core.plugin.specification import QUESTIONS

from docs.drawings.all_drawings import DRAWINGS
from docs.generate import DOCS, generated_pages
from docs.op_reference import taken_dtypes
from docs.promise_table import MARKS, with_promises
from docs.type_reference import TYPES, field_rows

PAGES = generated_pages()
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_page_is_what_the_code_makes(page: Path) -> None:
    assert page.read_text("utf-8") == PAGES[page], "run `python -m docs.generate`"


def test_no_page_is_left_of_a_hook_that_is_gone() -> None:
    assert sorted((DOCS / "hooks").iterdir()) == sorted(page for page in PAGES if page.parent.name == "hooks")


def test_every_drawing_is_shown_by_a_page_and_has_a_text_for_readers_without_it() -> None:
    drawings = sorted(path.name for path in (DOCS / "drawings").glob("*.svg"))
    assert drawings == sorted(DRAWINGS)
    pages = "".join(path.read_text("utf-8") for path in DOCS.glob("*.md"))
    assert [name for name in drawings if not re.search(rf"!\[[^\]]{{20,}}\]\(drawings/{name}\)", pages)] == []
    for name in drawings:
        root = ET.fromstring((DOCS / "drawings" / name).read_text("utf-8"))
        assert [root.findtext(f"{SVG}{tag}") for tag in ("title", "desc")].count(None) == 0


@pytest.mark.parametrize("name", [hook.name for hook in hook_specs()])
def test_a_hook_has_a_complete_page(name: str) -> None:
    page = (DOCS / "hooks" / f"{name}.md").read_text("utf-8")
    assert page.startswith(f"# {name}\n")
    assert [question for question in QUESTIONS if f"\n**{question}:** " not in page] == []
    example = page.partition("\n## Example\n\n```python\n")[2].partition("```")[0]
    assert f"\n@hookimpl\ndef {name}(" in example
    assert f"({name}.md)" in (DOCS / "hooks" / "README.md").read_text("utf-8")


def test_every_op_has_a_section_with_its_operands_attributes_and_dtypes() -> None:
    page = (DOCS / "ops.md").read_text("utf-8")
    sections = {part.partition("`")[0]: part for part in page.split("\n### `")[1:]}
    assert sections.keys() == default_ops().keys()
    for name, op in default_ops().items():
        assert op.doc, "an op without a meaning"
        section = sections[name]
        assert [spec.name for spec in op.attrs if f"| `{spec.name}` | {spec.kind.value} | " not in section] == []
        assert [spec.name for spec in op.attrs if not spec.doc] == []
        assert "\nDtypes: " in section
        if op not in STRUCTURAL_OPS:
            assert [spec.name for spec in op.operands if spec.name not in section.partition("\n\n")[2]] == []


@pytest.mark.parametrize(
    ("op", "dtypes"),
    [
        ("where", {("x", "y"): all_dtypes(), ("condition",): ("bool",)}),
        ("nn.relu", {("x",): tuple(name for name in all_dtypes() if name != "bool")}),
        ("arange", {(): all_dtypes()}),
        ("call", {}),
    ],
)
def test_dtypes_are_those_that_the_type_rule_takes(op: str, dtypes: dict[tuple[str, ...], tuple[str, ...]]) -> None:
    assert taken_dtypes(default_ops()[op]) == dtypes


TYPES_OF_PAGE = [type_ for types in TYPES.values() for type_ in types]


@pytest.mark.parametrize(
    "type_", list(filter(dataclasses.is_dataclass, TYPES_OF_PAGE)), ids=lambda type_: type_.__name__
)
def test_every_field_of_a_type_has_a_meaning(type_: type) -> None:
    assert [name for name, _, _, meaning in field_rows(type_) if not meaning] == [], "the docstring has no entry"
    declared = [field.name for field in dataclasses.fields(type_) if field.init]
    assert [f"`{name}`" for name in declared if f"`{name}`" not in [row[0] for row in field_rows(type_)]] == []


def test_a_new_field_is_a_new_row() -> None:
    @dataclasses.dataclass(frozen=True)
    class Grown(BackendInfo):
        """A backend.

        Attributes:
            threads: the number
                of threads.
        """

        threads: int = 3
        order: tuple[str, ...] = ()

    rows = {row[0]: row[1:] for row in field_rows(Grown)}
    assert rows["`threads`"] == ("`int`", "`3`", "the number of threads.")
    assert rows["`order`"] == ("`tuple[str, ...]`", "`()`", "")


def test_types_of_the_hooks_are_on_the_page() -> None:
    named = {word for hook in hook_specs() for word in re.findall(r"\b[A-Z]\w+", hook.signature)}
    shown = {type_.__name__ for type_ in TYPES_OF_PAGE}
    # The IR, the run half and the page about lowering describe these: they are no records of fields.
    assert named - shown == {
        "Sequence",
        "Mapping",
        "Callable",
        "None",
        "Device",
        "IRModule",
        "Function",
        "Binding",
        "RuntimeModule",
        "LoweringBuilder",
    }


def test_every_promise_stands_in_the_table() -> None:
    page = (DOCS / "conformance.md").read_text("utf-8")
    assert [p.name for p in all_promises() if f"| `{p.level}-{p.name}` |" not in page] == []


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page must contain <!-- promises"):
        with_promises("no marks")
    assert with_promises("\n".join(MARKS)) != "\n".join(MARKS)
