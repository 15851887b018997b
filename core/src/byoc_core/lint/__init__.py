"""Lint of backends: what cannot work, or works otherwise than it looks, found without a model.

``lint_backend`` asks a backend's hooks about the canonical cases of all ops, and about small functions, made here, that
its patterns match. ``byoc lint-backend`` and the conformance kit call it.
"""

from byoc_core.lint.backend import lint_backend
from byoc_core.lint.findings import CODES, Code, Finding, Severity
from byoc_core.lint.instances import Instance, Instances, find_instances

__all__ = ["CODES", "Code", "Finding", "Instance", "Instances", "Severity", "find_instances", "lint_backend"]
