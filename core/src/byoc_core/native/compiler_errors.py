"""Compiler failures as errors: the command, the exit status, the end of stderr and the generated lines at fault."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from byoc_core.errors import ToolchainError, UndefinedSymbolError

__all__ = ["compiler_failure"]

_DIAGNOSTIC = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):(?:\d+:)? *(?:fatal )?error:", re.MULTILINE)
_MISSING_LIBRARY = re.compile(
    r"(?:cannot find -l|unable to find library -l|library not found for -l|system library ['\"])([A-Za-z0-9_+.-]+)"
)
_UNDEFINED = re.compile(r"(?:undefined reference to [`']|undefined symbol: )([A-Za-z_][A-Za-z0-9_]*)")
_LINK_HINT = "Give the library's folder as `library_dirs` of the build options."
_MAX_LOCATIONS = 3
_STDERR_LINES = 30


def compiler_failure(
    command: Sequence[str], status: int | str, stderr: str, files: Mapping[str, str], source_folder: str | None
) -> ToolchainError:
    """Return the error for a failed compiler run.

    Args:
        command: the command run.
        status: exit status, or words such as ``timed out after 120 s``.
        stderr: the compiler's output on stderr.
        files: the sources by name, for showing the lines of diagnostics.
        source_folder: the folder with the kept sources; ``None`` without sources.
    """
    lines = [f"command: {shlex.join(command)}"]
    if source_folder is not None:
        lines.append(f"sources kept in: {source_folder}")
    tail = stderr.strip().splitlines()[-_STDERR_LINES:]
    if tail:
        lines += ["stderr (its end):", *(f"  {line}" for line in tail)]
    lines += _diagnosed_lines(stderr, files)
    detail = "\n".join(lines)
    missing = list(dict.fromkeys(filter(None, _MISSING_LIBRARY.findall(stderr))))
    if missing:
        expected = f"lib{missing[0]}.so or lib{missing[0]}.a in the linker's own folders"
        return ToolchainError(
            f"library `{missing[0]}`", "is not found", expected=expected, hint=_LINK_HINT, detail=detail
        )
    undefined = tuple(dict.fromkeys(_UNDEFINED.findall(stderr)))
    if undefined:
        names = ", ".join(f"`{name}`" for name in undefined)
        return UndefinedSymbolError("C linker", f"no object and no library defines {names}", detail=detail).of(
            undefined
        )
    return ToolchainError("C compiler", "failed", got=f"exit status {status}", expected=0, detail=detail)


def _diagnosed_lines(stderr: str, files: Mapping[str, str]) -> list[str]:
    shown: list[str] = []
    locations: list[tuple[str, int]] = []
    for match in _DIAGNOSTIC.finditer(stderr):
        location = (match["file"], int(match["line"]))
        if location[0] in files and location not in locations:
            locations.append(location)
    for name, number in locations[:_MAX_LOCATIONS]:
        text = files[name].splitlines()
        shown.append(f"{name}, line {number}:")
        for index in range(max(1, number - 2), min(len(text), number + 2) + 1):
            marker = ">" if index == number else " "
            shown.append(f"{marker} {index:5} | {text[index - 1]}")
    return shown
