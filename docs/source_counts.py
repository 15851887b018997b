"""Counts over Python files, by syntax tree; `docs.structure` defines each count."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    "DocstringWords",
    "any_parameters",
    "core_imports",
    "default_calls",
    "docstring_words",
    "docstrings_in",
    "function_lengths",
    "lazy_imports",
    "messages_in",
    "statements",
    "words_of",
]

RELATIVES = frozenset({"that", "what", "which", "who", "whom", "whose", "whoever", "whatever"})
PRONOUNS = frozenset({"it", "they", "them", "its", "those", "one", "ones"})
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (*FUNCTIONS, ast.ClassDef, ast.Module)
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""The fields of nodes with lists of statements, handlers or cases."""
CORE = "byoc_core"
DEFAULTS = {
    ("byoc_core.ops", "default_ops"): "default_ops",
    ("byoc_core.ops.registry", "default_ops"): "default_ops",
    ("byoc_core.ir.op_registry", "default_ops"): "default_ops",
    ("byoc_core.backend", "backends"): "backends",
    ("byoc_core.backend.registry", "backends"): "backends",
    ("byoc_core.backend", "installed_backends"): "backends",
    ("byoc_core.backend.registry", "installed_backends"): "backends",
}
"""The functions returning the registries of the process, by module and imported name."""


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements inside a node at any depth, with handlers and cases.

    A walk over all expressions takes ten times as long.
    """
    for block in BLOCKS:
        for statement in getattr(node, block, ()):
            yield statement
            yield from statements(statement)


def function_lengths(source: str) -> list[int]:
    """Return the number of lines of each function, from ``def`` to the last line, docstring included."""
    functions = (node for node in statements(ast.parse(source)) if isinstance(node, FUNCTIONS))
    return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]


def lazy_imports(source: str) -> list[int]:
    """Return the lines of the import statements inside functions."""
    return [*_lazy(ast.parse(source), inside=False)]


def _lazy(node: ast.AST, *, inside: bool) -> Iterator[int]:
    if inside and isinstance(node, ast.Import | ast.ImportFrom):
        yield node.lineno
    for block in BLOCKS:
        for child in getattr(node, block, ()):
            yield from _lazy(child, inside=inside or isinstance(node, FUNCTIONS))


def core_imports(source: str, is_module: Callable[[str], bool]) -> list[str]:
    """Return the module of core named by each import, once for each imported name.

    Args:
        source: the text of the importing module.
        is_module: whether a dotted name is a module of core; ``from byoc_core import script`` imports a module.
    """
    found = []
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if _is_core(alias.name)]
        elif isinstance(node, ast.ImportFrom) and not node.level and _is_core(node.module or ""):
            base = node.module or ""
            inner = (f"{base}.{alias.name}" for alias in node.names)
            found += [name if is_module(name) else base for name in inner]
    return found


def _is_core(name: str) -> bool:
    return name.partition(".")[0] == CORE


def default_calls(source: str) -> list[tuple[int, str]]:
    """Return line and registry (``default_ops``, ``backends``) of each call asking for a registry of the process."""
    if not any(name in source for _, name in DEFAULTS):
        return []
    tree = ast.parse(source)
    local = {}
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (registry := DEFAULTS.get((node.module or "", alias.name))) is not None:
                    local[alias.asname or alias.name] = registry
    nodes = ast.walk(tree) if local else ()
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    named = ((node.lineno, node.func.id) for node in calls if isinstance(node.func, ast.Name))
    return sorted((line, local[name]) for line, name in named if name in local)


def any_parameters(source: str) -> int:
    """Return the number of parameters annotated with ``Any``."""
    if "Any" not in source:
        return 0
    functions = [node for node in statements(ast.parse(source)) if isinstance(node, FUNCTIONS)]
    return sum(_is_any(argument.annotation) for node in functions for argument in _arguments(node.args))


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from filter(None, (arguments.vararg, arguments.kwarg))


def _is_any(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Name(id="Any") | ast.Attribute(attr="Any") | ast.Constant(value="Any"):
            return True
    return False


@dataclass(frozen=True)
class DocstringWords:
    """Counts over the docstrings of modules, classes and functions."""

    docstrings: int
    words: int
    relatives: int
    pronouns: int
    gives: int

    @property
    def relatives_per_1000(self) -> float:
        """Relative words (``RELATIVES``) per 1,000 words."""
        return 1000 * self.relatives / max(1, self.words)

    @property
    def pronouns_per_1000(self) -> float:
        """Pronouns (``PRONOUNS``) per 1,000 words."""
        return 1000 * self.pronouns / max(1, self.words)

    @property
    def gives_percent(self) -> float:
        """The share of the docstrings beginning with "Gives", in per cent."""
        return 100 * self.gives / max(1, self.docstrings)


def messages_in(source: str) -> Iterator[str]:
    """Yield the strings of at least four words, without docstrings; a replacement field of an f-string is ``{}``."""
    tree = ast.parse(source)
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    parts = (part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node))
    left_out = {id(node) for node in (*statements, *(part for part in parts if not isinstance(part, ast.JoinedStr)))}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if (text := _string(node)).count(" ") >= 3 and len(re.findall(r"[A-Za-z']+", text)) >= 4:
            yield text


def _string(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_string(part) or "{}" for part in parts)
    return ""


def docstring_words(sources: Iterable[str]) -> DocstringWords:
    """Return the counts over all docstrings of some modules."""
    return words_of([text for source in sources for text in docstrings_in(source)])


def words_of(texts: Sequence[str]) -> DocstringWords:
    """Return the counts over some texts."""
    words = [word.lower() for text in texts for word in re.findall(r"[A-Za-z']+", text)]
    return DocstringWords(
        docstrings=len(texts),
        words=len(words),
        relatives=_count(words, RELATIVES),
        pronouns=_count(words, PRONOUNS),
        gives=sum(text.startswith("Gives") for text in texts),
    )


def docstrings_in(source: str) -> Iterator[str]:
    """Yield the docstrings of a module with all classes and functions."""
    tree = ast.parse(source)
    for node in (tree, *statements(tree)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield text


def _count(words: Sequence[str], counted: frozenset[str]) -> int:
    return sum(word in counted for word in words)
