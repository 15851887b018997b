"""Packages with names imported at first use: the lists of names agree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import byoc_core
import pytest

ROOT = Path(byoc_core.__file__).parent


def is_typing_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def defines_getattr(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) == "__getattr__"
    return isinstance(node, ast.FunctionDef) and node.name == "__getattr__"


def lazy_facades() -> dict[str, ast.Module]:
    """Return the syntax of packages defining ``__getattr__`` and importing names for the type checker only."""
    found: dict[str, ast.Module] = {}
    for path in sorted(ROOT.rglob("__init__.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        is_lazy = any(map(defines_getattr, tree.body))
        if is_lazy and any(map(is_typing_only, tree.body)):
            found[".".join(path.parent.relative_to(ROOT.parent).parts)] = tree
    return found


FACADES = lazy_facades()


def typed_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name seen by the type checker, with the module of origin."""
    for block in filter(is_typing_only, tree.body):
        for node in ast.walk(block):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                yield from ((alias.name, node.module) for alias in node.names)


def test_the_facades_are_found() -> None:
    assert {"byoc_core", "byoc_core.artifact", "byoc_core.backend", "byoc_core.runtime"} <= set(FACADES)


@pytest.mark.parametrize("facade", FACADES)
def test_a_name_is_what_the_type_checker_takes_it_for(facade: str) -> None:
    module = import_module(facade)
    typed = dict(typed_names(FACADES[facade]))
    assert set(typed) - {"Backends"} <= set(module.__all__)  # the type of `byoc_core.backends`
    for name, home in typed.items():
        if name in module.__all__:
            assert getattr(module, name) is getattr(import_module(home), name), name


@pytest.mark.parametrize("facade", FACADES)
def test_every_public_name_is_typed_and_found(facade: str) -> None:
    module, tree = import_module(facade), FACADES[facade]
    eager = {name for node in tree.body if not is_typing_only(node) for name in _bound(node)}
    declared = {ast.unparse(node.target) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)}
    assert set(module.__all__) - {name for name, _ in typed_names(tree)} <= eager | declared
    assert all(hasattr(module, name) for name in module.__all__)


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
