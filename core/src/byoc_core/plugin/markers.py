"""The pluggy markers of byoc: one project name for every group of hooks."""

from __future__ import annotations

import pluggy

__all__ = ["PROJECT_NAME", "hookimpl", "hookspec"]

PROJECT_NAME = "byoc"

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
"""Marks a function as the specification of a hook (the core's side)."""

hookimpl = pluggy.HookimplMarker(PROJECT_NAME)
"""Marks a function as the implementation of a hook (a plugin's side)."""
