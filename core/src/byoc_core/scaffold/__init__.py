"""Writes new backends: complete packages to change, not to fill in."""

from byoc_core.scaffold.kind import Kind
from byoc_core.scaffold.package import render_package, write_package

__all__ = ["Kind", "render_package", "write_package"]
