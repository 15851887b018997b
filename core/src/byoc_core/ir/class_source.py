"""Finding the source of a class: in a file, a notebook's cell, at a prompt, or in text given to `exec`."""

from __future__ import annotations
import __future__

import ast
import linecache
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType

from byoc_core.errors import ScriptError

__all__ = ["ClassSource", "find_class_source"]

_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag
_UNNAMED = "<string>"
"""Name of the program of `python -c`, kept by `linecache`, and of every text for `exec`."""
_NO_SOURCE = (
    "Python keeps no source of a program from a pipe, nor of a text passed to `exec`. Define the class in a "
    "file or in a notebook's cell, or parse the text with `byoc_core.parse(text)`."
)


@dataclass(frozen=True)
class ClassSource:
    """The text of a class statement.

    Attributes:
        text: the statement with decorators, without the indentation of the first line.
        name: name of the file or the cell.
        first_line: number of the text's first line in the file.
    """

    text: str
    name: str
    first_line: int


def find_class_source(definition: type, frame: FrameType | None) -> ClassSource:
    """Return the source of a class defined by a class statement.

    `linecache` knows files, archives, and the cells of IPython and Jupyter. If `linecache` has no source, the texts
    held by the process are searched: the command line, the prompt's history, the variables of callers of `exec`. A text
    found there is accepted only if it compiles to the exact code of the class's functions.

    Args:
        definition: the class.
        frame: the frame of the class statement; callers of the frame are searched for the text.

    Raises:
        ScriptError: no source is kept.
    """
    site = _find_site(definition, frame)
    if site is not None:
        for text in site.cached_texts():
            found = site.find_in(text)
            if found is not None and (site.filename != _UNNAMED or site.compiles_to_functions(text)):
                return found
        for text in site.process_texts():
            found = site.find_in(text)
            if found is not None and site.compiles_to_functions(text):
                return found
    raise ScriptError(f"class `{definition.__name__}`", "the source cannot be found", hint=_NO_SOURCE)


def _find_site(definition: type, frame: FrameType | None) -> _DefinitionSite | None:
    """Return the site of a class's definition: from the functions of the class, or from the frame if none exist."""
    functions = tuple(
        value
        for value in vars(definition).values()
        if isinstance(value, FunctionType) and value.__qualname__ == f"{definition.__qualname__}.{value.__name__}"
    )
    if functions:
        names = {function.__code__.co_filename for function in functions}
        if len(names) == 1:
            return _DefinitionSite(definition.__name__, names.pop(), functions, functions[0].__globals__, frame, 0)
    elif frame is not None and frame.f_globals.get("__name__") == definition.__module__:
        return _DefinitionSite(
            definition.__name__, frame.f_code.co_filename, (), frame.f_globals, frame, frame.f_lineno
        )
    return None


@dataclass(frozen=True)
class _DefinitionSite:
    class_name: str
    filename: str
    functions: tuple[FunctionType, ...]
    module_globals: dict[str, object]
    frame: FrameType | None
    line: int  # of the decorator, for a class without functions

    def find_in(self, text: str) -> ClassSource | None:
        """Return the class statement of the text with functions at the lines of the compiled functions."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == self.class_name and self._is_at(node):
                return ClassSource(_statement_text(text, node), self.filename, _first_line(node))
        return None

    def _is_at(self, node: ast.ClassDef) -> bool:
        if not self.functions:
            return _first_line(node) <= self.line <= node.lineno
        lines = {(item.name, _first_line(item)) for item in node.body if isinstance(item, ast.FunctionDef)}
        return all((f.__name__, f.__code__.co_firstlineno) in lines for f in self.functions)

    def compiles_to_functions(self, text: str) -> bool:
        """Return whether the text compiles to the code of each function."""
        if not self.functions:
            return False
        flags = self.functions[0].__code__.co_flags & _FUTURES
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = compile(text, self.filename, "exec", flags, dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
            return False
        compiled = set(_nested_codes(code))
        return all(function.__code__ in compiled for function in self.functions)

    def cached_texts(self) -> Iterator[str]:
        """Yield the text kept by `linecache` under the name of the code's file."""
        if os.path.exists(self.filename):  # noqa: PTH110 - a name such as "<stdin>", or one with a NUL, is no path
            linecache.checkcache(self.filename)
        lines = linecache.getlines(self.filename, self.module_globals)
        if lines:
            yield "".join(lines)

    def process_texts(self) -> Iterator[str]:
        """Yield texts of the process possibly containing the class statement."""
        statement = re.compile(rf"\bclass\s+{re.escape(self.class_name)}\b")
        seen: set[str] = set()
        for text in self._all_texts(statement):
            if text not in seen and statement.search(text):
                seen.add(text)
                yield text

    def _all_texts(self, statement: re.Pattern[str]) -> Iterator[str]:
        for argument in sys.orig_argv[1:]:
            yield argument
            yield re.sub(r"^-[A-Za-z]*c", "", argument)  # `-Ic` and its text may be one argument
        if self.filename == "<stdin>":
            yield from _redirected_input()
            yield from _typed_statements(statement)
        frame = self.frame
        while frame is not None:
            for value in (*frame.f_locals.values(), *frame.f_code.co_consts):
                if isinstance(value, str):
                    yield value
            frame = frame.f_back


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> int:
    """Return the line of the first decorator, or of the statement."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _statement_text(text: str, node: ast.ClassDef) -> str:
    """Return the lines of a statement without its indentation; less indented lines lose all their indentation."""
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)[_first_line(node) - 1 : node.end_lineno]
    indentation = node.col_offset
    return "".join(line[min(indentation, len(line) - len(line.lstrip(" \t\f"))) :] for line in lines)


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)


def _redirected_input() -> Iterator[str]:
    """Yield the text of standard input if it is a file: the program of `python < file`."""
    try:
        if stat.S_ISREG(os.fstat(0).st_mode):
            yield Path("/dev/fd/0").read_text("utf-8")
    except (OSError, ValueError):
        return


def _typed_statements(statement: re.Pattern[str]) -> Iterator[str]:
    """Yield the statements of the prompt's history with a class statement, the newest first.

    Up to Python 3.12 the prompt keeps no source; the line editor keeps the typed lines.
    """
    readline = sys.modules.get("readline")
    if readline is None:
        return
    length = readline.get_current_history_length()
    lines = [readline.get_history_item(index + 1) or "" for index in range(length)]
    for index in reversed(range(len(lines))):
        if statement.search(lines[index]):
            first, end = index, index + 1
            while first > 0 and lines[first][:1].isspace():
                first -= 1
            while first > 0 and lines[first - 1].startswith("@"):
                first -= 1
            while end < len(lines) and lines[end][:1].isspace():
                end += 1
            yield "".join(f"{line}\n" for line in lines[first:end])
