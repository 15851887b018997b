"""The pluggy markers of byoc: one project name for every group of hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import pluggy

__all__ = ["PROJECT_NAME", "HookTerms", "hookimpl", "hookspec", "terms_of"]

PROJECT_NAME = "byoc"

_TERMS = f"{PROJECT_NAME}_terms"
_F = TypeVar("_F", bound=Callable[..., Any])

hookimpl = pluggy.HookimplMarker(PROJECT_NAME)
"""Marks a function as the implementation of a hook (a plugin's side)."""


@dataclass(frozen=True, slots=True)
class HookTerms:
    """The terms of a hook's specification, beside its signature and its text.

    Attributes:
        since: the version of byoc-core introducing the hook.
        required: whether every plugin of the group must implement the hook.
        arguments_since: the versions introducing arguments later than the hook, by name.
        alternative: another hook of the group; a plugin with the other hook need not implement a required hook.
    """

    since: str
    required: bool = False
    arguments_since: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    alternative: str = ""


def hookspec(
    *,
    since: str,
    required: bool = False,
    arguments_since: Mapping[str, str] = MappingProxyType({}),
    alternative: str = "",
) -> Callable[[_F], _F]:
    """Mark a function as the specification of a hook (the core's side): the plugin's answer is the result.

    Args:
        since: the version of byoc-core introducing the hook.
        required: whether every plugin of the group must implement the hook.
        arguments_since: the versions introducing arguments later than the hook, by name. A hook never loses an
            argument.
        alternative: another hook of the group; a plugin with the other hook need not implement a required hook.
    """
    terms = HookTerms(since, required, MappingProxyType(dict(arguments_since)), alternative)
    mark = pluggy.HookspecMarker(PROJECT_NAME)(firstresult=True)

    def mark_with_terms(function: _F) -> _F:
        setattr(function, _TERMS, terms)
        return mark(function)

    return mark_with_terms


def terms_of(function: object) -> HookTerms | None:
    """Return the terms of a hook's specification; ``None`` for everything else."""
    return getattr(function, _TERMS, None)
