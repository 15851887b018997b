"""The status hooks of both halves: whether work is possible here, answered quickly and without side effects."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from byoc_core.runtime.hooks import Status

from byoc_conformance.outcome import FailedError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l0_declares.distribution import opened_runtimes
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_QUICK_SECONDS = 5.0
"""Starting a program for its version may take a while on a busy machine; a compilation takes longer."""


def _check_compile_status(subject: Subject, case: str) -> None:
    context = subject.handle.context(options=subject.spec.options)
    _check("byoc_compile_status", lambda: subject.handle.compile_status(context))


def _check_runtime_status(subject: Subject, case: str) -> None:
    for runtime in opened_runtimes(subject):
        _check("byoc_runtime_status", runtime.status)


def _check(hook: str, ask: Callable[[], Status]) -> None:
    """Call a hook twice, in an empty folder.

    Raises:
        FailedError: the hook took long, changed something, gave two answers, or refused without a remedy.
    """
    environment, folder = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="byoc-conformance-") as empty:
        os.chdir(empty)
        try:
            start = time.monotonic()
            first = ask()
            seconds = time.monotonic() - start
            second = ask()
            is_moved = Path.cwd() != Path(empty).resolve()
            left = sorted(path.name for path in Path(empty).iterdir())
        finally:
            os.chdir(folder)
            changed = sorted(name for name, _ in environment.items() ^ os.environ.items())
            os.environ.clear()
            os.environ.update(environment)
    where = f"hook `{hook}`"
    if seconds > _QUICK_SECONDS:
        raise FailedError(f"{where} took {seconds:.1f} s, expected an answer within {_QUICK_SECONDS:g} s")
    if is_moved or left:
        effect = "changed the working directory" if is_moved else f"left {', '.join(left)} in the working directory"
        raise FailedError(f"{where} {effect}, expected no effect")
    if changed:
        names = ", ".join(dict.fromkeys(changed))
        raise FailedError(f"{where} changed environment variables, expected no effect: {names}")
    if first != second:
        raise FailedError(f"{where} returned {first}, then {second}")
    if not first.ok and not first.remedy:
        raise FailedError(f"{where} refuses ({first.reason}) without a remedy, expected the next step as a sentence")


PROMISES = (
    Promise(
        Level.L0,
        "compile-status",
        "reports quickly, without side effects, whether compilation is possible here, with a remedy if not",
        _check_compile_status,
    ),
    Promise(
        Level.L0,
        "runtime-status",
        "reports quickly, without side effects, whether modules can run here, with a remedy if not",
        _check_runtime_status,
    ),
)
