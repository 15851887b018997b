"""Access to the process's registry of ops: only listed files name it; others take the registry of their module."""

from __future__ import annotations

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
SOURCES = [REPOSITORY / "core/src", *sorted(REPOSITORY.glob("plugins/*/src")), REPOSITORY / "conformance/src"]

ALLOWED = {
    "byoc_core/backend/own_ops.py": "texts are parsed for backends with the core's ops and theirs",
    "byoc_core/frontend/core_operators.py": "plugins and scripts replace no operator and no op of the core",
    "byoc_core/ir/builder.py": "the ops of a builder that is given none",
    "byoc_core/ir/module.py": "the ops of a module that states none",
    "byoc_core/ir/parser.py": "the ops of a text that is parsed without a registry",
    "byoc_core/driver/compiler.py": "the ops of a compiler that is given none",
    "byoc_core/ops/__init__.py": "exports it",
    "byoc_ccompiler/byte_ops.py": "its convolution of bytes has the type rule of the core's convolution",
    "byoc_conformance/core_ops.py": "the ids of the kit's tests are those of the core's ops",
}
"""The files allowed to name `default_ops`, each with a reason."""


def names_default_ops(source: str) -> bool:
    """Return whether code names `default_ops`: by import, call or as argument. Strings and comments do not count."""
    return any(
        (isinstance(node, ast.Name) and node.id == "default_ops")
        or (isinstance(node, ast.Attribute) and node.attr == "default_ops")
        or (isinstance(node, ast.alias) and node.name.rpartition(".")[2] == "default_ops")
        for node in ast.walk(ast.parse(source))
    )


def test_only_entry_points_ask_for_the_registry_of_the_process() -> None:
    files = [(path.relative_to(source).as_posix(), path) for source in SOURCES for path in source.rglob("*.py")]
    assert len(files) > 500
    found = {name for name, path in files if names_default_ops(path.read_text("utf-8"))}
    assert found == ALLOWED.keys()


def test_the_check_sees_each_way_to_name_it() -> None:
    assert names_default_ops("from byoc_core.ops import default_ops as ops")
    assert names_default_ops("import byoc_core.ops\nbyoc_core.ops.default_ops()")
    assert names_default_ops("f(default_ops)")
    assert not names_default_ops("x = 'default_ops()'  # default_ops()")
