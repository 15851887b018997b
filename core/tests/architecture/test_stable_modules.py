"""Plugins, the kit, the examples and the templates import stable modules only; all names of these are documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from byoc_core.ir import OpDef

from docs.stable_modules import STABLE_MODULES

REPOSITORY = Path(__file__).parents[3]
FOLDERS = sorted(
    path
    for pattern in (
        "plugins/*/src",
        "conformance/src",
        "rt/src",
        "examples/*",
        "core/src/byoc_core/scaffold/templates/*",
    )
    for path in REPOSITORY.glob(pattern)
    if path.is_dir()
)
PLACEHOLDER = re.compile(r"@(\w+)@")


def sources_of(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each Python file of a folder, including templates."""
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.py.tmpl")]):
        yield str(path.relative_to(REPOSITORY)), PLACEHOLDER.sub(r"\1", path.read_text("utf-8"))


def unstable_imports(source: str) -> list[str]:
    """Return each import from byoc_core outside the stable modules, with the line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.partition(".")[0] == "byoc_core"]
            found += [f"{node.lineno}: {name}" for name in names if name not in STABLE_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "byoc_core":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [f"{node.lineno}: {name}" for name in names if not is_promised(name)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "byoc_core":
            name = f"byoc_core.{node.attr}"
            found += [] if is_promised(name) else [f"{node.lineno}: {name}"]
    return found


def is_promised(name: str) -> bool:
    """Return whether a dotted name is a stable module or a name exported by a stable module."""
    module, _, attribute = name.rpartition(".")
    return name in STABLE_MODULES or (module in STABLE_MODULES and attribute in import_module(module).__all__)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(REPOSITORY).as_posix())
def test_only_what_is_stable_is_imported(folder: Path) -> None:
    found = {path: lines for path, source in sources_of(folder) if (lines := unstable_imports(source))}
    assert found == {}


def test_there_are_sources() -> None:
    assert {"plugins", "conformance", "examples", "core"} <= {path.relative_to(REPOSITORY).parts[0] for path in FOLDERS}
    assert all(any(sources_of(folder)) for folder in FOLDERS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from byoc_core.kernels import KERNELS", ["1: byoc_core.kernels.KERNELS"]),
        ("from byoc_core.runtime import serial", ["1: byoc_core.runtime.serial"]),
        ("from byoc_core.runtime.module import np", ["1: byoc_core.runtime.module.np"]),
        ("import byoc_core.vm.machine as machine", ["1: byoc_core.vm.machine"]),
        ("import byoc_core\nbyoc_core.driver.build.build()", ["2: byoc_core.driver"]),
        ("from byoc_core.runtime import hooks\nfrom byoc_core.dims import Dim\nimport byoc_core\nbyoc_core.load", []),
    ],
)
def test_the_check_sees(source: str, expected: list[str]) -> None:
    assert unstable_imports(source) == expected


def documented_names(module: ModuleType) -> set[str]:
    """Return the names bound in a module's source with a text behind them, or as a documented definition."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))]
    found = set()
    for node, after in (pair for body in bodies for pair in zip(body, [*body[1:], None], strict=True)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


def home_of(module: str, name: str) -> str:
    """Return the module binding a name: the module itself, or the origin of its import."""
    path = import_module(module).__file__
    assert path is not None
    for node in ast.walk(ast.parse(Path(path).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return home_of(str(node.module), name)
    return module


def undocumented(module: str) -> list[str]:
    """Return a module's exported names without a describing text."""
    exported = import_module(module)
    found = []
    for name in exported.__all__:
        value = getattr(exported, name)
        if isinstance(value, ModuleType) or (isinstance(value, OpDef) and value.doc):
            continue
        home = home_of(module, name)
        if name not in documented_names(import_module(home)):
            found.append(f"{home}.{name}")
    return found


@pytest.mark.interpreter
@pytest.mark.parametrize("module", STABLE_MODULES)
def test_each_name_of_a_stable_module_is_there_and_documented(module: str) -> None:
    assert undocumented(module) == []


def test_a_name_without_a_text_is_seen() -> None:
    this_module = import_module(__name__)
    assert "documented_names" in documented_names(this_module)
    assert "PLACEHOLDER" not in documented_names(this_module)
