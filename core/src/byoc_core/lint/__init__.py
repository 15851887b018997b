"""Lint of backends: faults and surprising behaviour, found without a model.

``lint_backend`` asks a backend's hooks about the canonical cases of all ops, and about small functions, made here to
match the backend's patterns. ``byoc lint-backend`` and the conformance kit call ``lint_backend``.
"""

from byoc_core.lint.backend import lint_backend
from byoc_core.lint.findings import CODES, Code, Finding, Severity
from byoc_core.lint.instances import Instance, Instances, find_instances

__all__ = ["CODES", "Code", "Finding", "Instance", "Instances", "Severity", "find_instances", "lint_backend"]
