"""The figures of structure agree with their definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results import Result
from docs import structure
from docs.op_name_uses import op_name_lines
from docs.source_counts import (
    any_parameters,
    core_imports,
    default_calls,
    docstring_words,
    function_lengths,
    lazy_imports,
)
from docs.stable_modules import MARKS
from docs.structure import find_packages, measure, stable_modules, to_result

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "line",
    [
        'binding.op.name == "add"',
        '"add" != op.name',
        "binding.op.name == _CONCAT",
        "binding.op.name in _CONVOLUTIONS",
        "binding.op.name not in kinds.SPLITS",
        'binding.op.name in ("add", "multiply")',
        "binding.op.name in {*_WHOLE, other}",
        "_KINDS[binding.op.name]",
        "_KINDS.get(binding.op.name, None)",
        '{"add": "+"}[binding.op.name]',
        "_KINDS[binding.op.name, dtype]",
        '(name := binding.op.name) == "add"',
        'dtype == x and found[0].op.name == "add"',
    ],
)
def test_a_decision_by_an_ops_name_is_a_place(line: str) -> None:
    assert op_name_lines(f"def f(binding, op):\n    return {line}\n") == [2]


@pytest.mark.parametrize(
    "line",
    [
        "binding.op.name in pattern.ops",
        "binding.op.name in ops",
        "self._rules[binding.op.name]",
        "by_name.get(binding.op.name)",
        "default_ops().get(op.name)",
        "graph.emit(binding.op.name, operands)",
        'binding.name == "add"',
        'self._top.name == "main"',
        'f"{op.name} == add"',
        "binding.op is COMPOSITE",
        "binding.op.name == other.op.name",
        "binding.op.name < LAST",
    ],
)
def test_a_name_that_is_data_is_no_place(line: str) -> None:
    assert op_name_lines(f"def f(binding, op, ops, other):\n    return {line}\n") == []


def test_a_local_name_of_an_op_is_followed_in_its_function() -> None:
    source = """\
def f(binding):
    name, bits = binding.op.name, 8
    return name == "add" or name in _SUMS

def g(name):
    return name == "add"
"""
    assert op_name_lines(source) == [3, 3]


def test_each_case_that_names_an_op_is_a_place() -> None:
    source = """\
match binding.op.name:
    case "add" | "subtract":
        pass
    case ops.SPLIT as found:
        pass
    case _:
        pass
match binding.kind:
    case "add":
        pass
"""
    assert op_name_lines(source) == [2, 4]


def test_a_function_counts_from_its_def_to_its_last_line() -> None:
    assert function_lengths("@cache\ndef f():\n    x = 1\n\n    async def g():\n        return x\n") == [5, 2]


def test_an_import_is_lazy_inside_a_function_alone() -> None:
    source = """\
import os
if TYPE_CHECKING:
    from a import b
class C:
    import x
    def f(self):
        if self:
            from a import c
        import d
"""
    assert lazy_imports(source) == [8, 9]


def test_imports_of_core_are_listed_by_module() -> None:
    source = """\
import byoc_core.ir
import byoc_corelike
from byoc_core import build, script as R
from byoc_core.ir import Binding, Function
from .byoc_core import other
"""
    found = core_imports(source, {"byoc_core.script", "byoc_core.ir"}.__contains__)
    assert found == ["byoc_core.ir", "byoc_core", "byoc_core.script", "byoc_core.ir", "byoc_core.ir"]


def test_calls_of_the_registries_are_found_under_any_name() -> None:
    source = """\
from byoc_core.backend import backends as installed_backends
from byoc_core.ops.registry import default_ops
from elsewhere import backends
backends()
installed_backends().get("x")
f(default_ops, default_ops())
"""
    assert default_calls(source) == [(5, "backends"), (6, "default_ops")]


def test_parameters_of_any_type_are_counted() -> None:
    assert any_parameters("def f(a: Any, b: list[Any], *c: typing.Any, d: 'Any', e, **f: Any) -> Any: ...") == 4


def test_words_of_docstrings_are_counted() -> None:
    words = docstring_words(['"""Gives what it is."""\ndef f():\n    """Return one."""\n', "x = 1\n"])
    assert (words.docstrings, words.words, words.relatives, words.pronouns, words.gives) == (2, 6, 1, 2, 1)
    assert words.gives_percent == 50
    assert docstring_words([]).relatives_per_1000 == 0


def write(path: Path, text: str) -> None:
    """Write a file and the folders around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a checkout of a core and a plugin."""
    core, plugin = tmp_path / "core", tmp_path / "plugins" / "mynpu"
    write(
        core / "src" / "byoc_core" / "__init__.py", '"""Gives."""\nfrom byoc_core.backend import backends\nbackends()\n'
    )
    write(core / "src" / "byoc_core" / "driver" / "build.py", "from byoc_core.ops import default_ops\ndefault_ops()\n")
    write(core / "src" / "byoc_core" / "dims.py", "x = 1\n" * 401)
    write(core / "src" / "byoc_core" / "native" / "byoc.h", "/* */\n")
    write(core / "src" / "byoc_core" / "__pycache__" / "dims.pyc", "\n")
    write(core / "csrc" / "native.c", "/* */\n\n")
    write(core / "tests" / "test_dims.py", "def test_x(y: Any) -> None: ...\n")
    imports = "from byoc_core.dims import x\nfrom byoc_core import dims, build\n"
    write(plugin / "src" / "byoc_mynpu" / "__init__.py", imports)
    write(tmp_path / "docs" / "api-stability.md", 'MODULES = """\nbyoc_core byoc_core.ir\n""".split()\n')
    return tmp_path


def test_a_checkout_is_measured(tree: Path) -> None:
    figures = measure(tree)
    core = {figure.name: figure.number for figure in figures["byoc_core"]}
    plugin = {figure.name: figure.number for figure in figures["byoc_mynpu"]}
    expected = {
        "Python lines": "406",
        "Python files": "3",
        "other lines": "1",
        "lines of the C extension": "2",
        "median file": "3",
        "files over 400 lines": "1",
        "default_ops() calls": "1",
        "backends() calls": "0",
        "such calls in driver and cli": "1",
        "`Any` test parameters": "1",
    }
    assert core | expected == core
    assert plugin["imports of core"] == "3"
    assert plugin["unstable imports of core"] == "67"
    (found,) = [figure for figure in figures["byoc_mynpu"] if figure.locations]
    assert found.locations == ("byoc_core.dims: 2",)


def test_a_folder_without_a_core_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no core/src/byoc_core"):
        find_packages(tmp_path)
    with pytest.raises(ValueError, match="no list of modules"):
        stable_modules("# What is stable\n")


def test_stable_modules_are_read_from_the_page() -> None:
    begin, end = MARKS
    page = (
        f"| `byoc_core.vm` | elsewhere |\n{begin}\n| module | what |\n|---|---|\n| `byoc_core.ir` | the IR |\n{end}\n"
    )
    assert stable_modules(page) == {"byoc_core.ir"}


def test_the_figures_of_this_checkout_are_a_result() -> None:
    figures = measure(ROOT)
    assert next(iter(figures)) == "byoc_core"
    assert {"byoc_ccompiler", "byoc_dnnl", "byoc_examplejson", "byoc_conformance", "byoc_rt"} < figures.keys()
    result = to_result(figures, "1234567")
    assert Result.model_validate_json(result.model_dump_json()) == result


def test_the_definitions_name_each_figure(tree: Path) -> None:
    found = [figure.name for figures in measure(tree).values() for figure in figures]
    assert [name for name in found if name not in (structure.__doc__ or "")] == []
