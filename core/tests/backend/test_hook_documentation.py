"""Every hook says who calls it, when, and what happens if it raises; and every example is Python."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import ModuleType

import pytest
from byoc_core.backend import hooks as backend_hooks
from byoc_core.runtime import hooks as runtime_hooks

SPECS = [
    (module, name) for module in (backend_hooks, runtime_hooks) for name in module.__all__ if name.startswith("byoc_")
]


@pytest.mark.parametrize(("module", "name"), SPECS, ids=[name for _, name in SPECS])
def test_a_hook_is_documented(module: ModuleType, name: str) -> None:
    text = inspect.getdoc(getattr(module, name)) or ""
    assert "Called " in text
    assert "raise" in text
    assert text.splitlines()[0].endswith((".", "Optional.", "Required.")), "one sentence first"
    example = textwrap.dedent(text.partition("Example::\n")[2])
    defined = [node.name for node in ast.parse(example).body if isinstance(node, ast.FunctionDef)]
    assert defined == [name]
    parameters = set(inspect.signature(getattr(module, name)).parameters)
    (function,) = (node for node in ast.parse(example).body if isinstance(node, ast.FunctionDef))
    assert {argument.arg for argument in function.args.args} <= parameters


@pytest.mark.parametrize("module", [backend_hooks, runtime_hooks])
def test_the_smallest_plugin_of_the_module_text_is_python(module: ModuleType) -> None:
    example = textwrap.dedent((module.__doc__ or "").rpartition("::\n")[2])
    compile(example, module.__name__, "exec")
