"""Level 0: consistent declarations of a backend."""

from __future__ import annotations

from byoc_core.lint import lint_backend

from byoc_conformance.outcome import FailedError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l0_declares import distribution, info, options, status
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]


def _lint(subject: Subject, case: str) -> None:
    errors = [str(finding) for finding in lint_backend(subject.handle) if finding.severity == "error"]
    if errors:
        raise FailedError("\n".join(errors))


PROMISES = (
    *distribution.PROMISES,
    *info.PROMISES,
    *options.PROMISES,
    *status.PROMISES,
    Promise(Level.L0, "lint", "passes `byoc lint-backend` without an error", _lint, deadline=120.0),
)
