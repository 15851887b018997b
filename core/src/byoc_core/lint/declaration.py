"""Lint of a backend's statements about itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from byoc_core.backend import BackendHandle
from byoc_core.backend.info import is_backend_name
from byoc_core.backend.own_ops import ops_with
from byoc_core.dtypes import all_dtypes, is_float
from byoc_core.errors import ByocError, OptionsError
from byoc_core.lint.findings import Finding, clause_of

__all__ = ["lint_declaration"]


def lint_declaration(handle: BackendHandle) -> Iterator[Finding]:
    """Yield findings about a backend's info, options and status."""
    info, where = handle.info(), "hook `byoc_backend_info`"
    if not is_backend_name(info.name):
        text = f"the name {info.name!r} is not a single lower-case word"
        yield Finding("bad-name", where, text, hint="Use letters, digits and `_`, a letter first.")
    if info.constants not in ("embedded", "lifted"):
        text = f"`constants` is {info.constants!r}, expected 'embedded' or 'lifted'"
        yield Finding("bad-info", where, text)
    for key, roundoff in cast("Mapping[str, object]", info.unit_roundoff).items():
        op, _, dtype = key.rpartition(":")
        if dtype not in all_dtypes() or not is_float(dtype):
            text = f"{dtype!r} in `unit_roundoff` is not a floating-point dtype"
            yield Finding("bad-info", where, text)
        elif op and op not in ops_with([handle]):
            yield Finding("bad-info", where, f"{op!r} in `unit_roundoff` is not an op")
        elif not isinstance(roundoff, int | float) or not 0 < roundoff < 1:
            text = f"`unit_roundoff` of {key} is {roundoff!r}, expected a number between 0 and 1"
            yield Finding("bad-info", where, text)
    least = cast("object", info.min_region_flops)
    if not isinstance(least, int) or isinstance(least, bool) or least < 0:
        yield Finding("bad-info", where, f"`min_region_flops` is {least!r}, expected a whole number from 0")
    try:
        handle.options()
    except OptionsError as error:
        yield Finding("bad-options", where, str(error), hint="Give every field of the options model a default.")
        return
    yield from _lint_status(handle)


def _lint_status(handle: BackendHandle) -> Iterator[Finding]:
    where = "hook `byoc_compile_status`"
    try:
        handle.compile_status()
    except ByocError as error:
        yield Finding("bad-status", where, clause_of(error), hint="Name the missing part and the remedy.")
