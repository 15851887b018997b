"""The process around the calls: state, children, end."""

from __future__ import annotations

import json
import locale
import os
import random
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from byoc_core.runtime import runtimes

from byoc_conformance.examples import Example, compile_examples
from byoc_conformance.fresh_process import run_in_fresh_process
from byoc_conformance.outcome import DeclinedError, FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.running import Results, compile_own, difference, require_examples, run
from byoc_conformance.subject import Subject, SubjectSpec

__all__ = ["PROMISES", "STATE", "use_and_drop"]

_CHILD_SECONDS = 10.0
_END_SECONDS = 40.0
_NUM_CALLS = 8


def _check_state(subject: Subject, case: str) -> None:
    subject.require_tools()  # level 0 reports changes by this question
    before = _state()  # before the first compilation of the process, if this test is the level's first
    examples = require_examples(subject)
    attempt, claimed = compile_own(subject, examples)
    for example in claimed:
        run(attempt.vm, example)
    _compare(before, "compiling and calling")
    threads = threading.active_count()
    for _ in range(_NUM_CALLS):
        for example in claimed:
            run(attempt.vm, example)
    if threading.active_count() >= threads + _NUM_CALLS:
        raise FailedError(f"{_NUM_CALLS} calls left {threading.active_count() - threads} threads running")
    _compare(before, "calling again")


def _state() -> Mapping[str, object]:
    """Return the process-wide state, not to be changed by any backend."""
    tiny = np.array([1e-310]) * 0.5
    return {
        "numpy's error handling (np.seterr)": np.geterr(),
        "the filters of warnings": [item for item in warnings.filters if item[1] is None and item[3] is None],
        "handlers of signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "the working directory": str(Path.cwd()),
        "environment variables": dict(os.environ),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the treatment of denormal numbers": bool(tiny[0]),
        "Python's random numbers": random.getstate(),
        "numpy's random numbers": repr(np.random.get_state()),  # noqa: NPY002 - the global state is under test
        "the streams of sys": (id(sys.stdin), id(sys.stdout), id(sys.stderr)),
        "Python's switch interval": sys.getswitchinterval(),
        "the recursion limit": sys.getrecursionlimit(),
    }


def _compare(before: Mapping[str, object], after_what: str) -> None:
    changed = [name for name, value in _state().items() if value != before[name]]
    if changed:
        raise FailedError(f"changed after {after_what}: {', '.join(changed)}")


def _check_fork(subject: Subject, case: str) -> None:
    if not hasattr(os, "fork") or sys.platform == "darwin":  # even the system's own libraries do not survive fork
        raise NotCoveredError("this system does not fork processes")
    machine = compile_examples(subject).vm
    examples = require_examples(subject)
    expected = {example: run(machine, example) for example in examples}
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside a thread waiting for a line
        child = os.fork()
    if child == 0:
        _answer_and_exit(subject, expected, sender)
    os.close(sender)
    try:
        text = _read_within(receiver, _CHILD_SECONDS)
    finally:
        os.close(receiver)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if text is None:
        raise FailedError(f"a forked child has no result within {_CHILD_SECONDS:g} s")
    refusing = _fork_unsafe_runtimes(subject)
    if refusing and text.startswith("ExecutionError: ") and "forked process" in text:
        raise DeclinedError(f"runtime `{refusing[0]}` declares modules unusable in a forked process")
    if text != "right":
        raise FailedError(f"in a forked child: {text or 'the process ended'}")


def _fork_unsafe_runtimes(subject: Subject) -> list[str]:
    keys = dict.fromkeys(module.type_key for module in compile_examples(subject).executable.modules)
    installed = [key for key in keys if key in runtimes().names()]
    return [key for key in installed if not runtimes().get(key).info().fork_safe]


def _answer_and_exit(subject: Subject, expected: Mapping[Example, Results], sender: int) -> None:
    """Call everything in the child, write the first fault, and end the process immediately."""
    try:
        machine = compile_examples(subject).vm
        texts = [
            text and f"{example.name}: {text}"
            for example, results in expected.items()
            if (text := difference(subject, example, example.inputs, run(machine, example), results))
        ]
        os.write(sender, (texts[0] if texts else "right").encode())
    except BaseException as error:  # noqa: BLE001 - the child must never go on in the parent's place
        os.write(sender, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(0)


def _read_within(receiver: int, seconds: float) -> str | None:
    """Return everything written until the other end is closed; ``None`` if still open after the deadline."""
    end = time.monotonic() + seconds
    parts: list[bytes] = []
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([receiver], [], [], left)[0]:
            return None
        part = os.read(receiver, 65536)
        if not part:
            return b"".join(parts).decode(errors="replace")
        parts.append(part)


def _check_exit(subject: Subject, case: str) -> None:
    require_examples(subject)
    code = f"from {__name__} import use_and_drop; use_and_drop(sys.argv[2])"
    printed = run_in_fresh_process(code, json.dumps(subject.spec.to_json()), timeout=_END_SECONDS, ends_by_itself=True)
    if printed.strip():
        raise FailedError(f"a process printed at exit after using the backend:\n{printed.strip()[-2000:]}")


def use_and_drop(spec: str) -> None:
    """Call every example in this process, in another thread too, and make all later output visible to the caller.

    Called by code of a fresh process. Output during use goes to stderr; output at exit goes to the stdout read by the
    caller.

    Args:
        spec: of the subject, as JSON.
    """
    printed = os.dup(1)
    os.dup2(2, 1)
    subject = Subject(SubjectSpec.from_json(json.loads(spec)))
    examples = require_examples(subject)
    attempt, claimed = compile_own(subject, examples)

    def call_all() -> None:
        for example in claimed:
            run(attempt.vm, example)

    call_all()
    thread = threading.Thread(target=call_all)
    thread.start()
    thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(printed, 1)
    os.dup2(printed, 2)


STATE = Promise(Level.L4, "process-unchanged", "leaves the state of the process unchanged", _check_state)
"""The first test of the level: only then is the state before the first compilation of the process known."""

PROMISES = (
    Promise(Level.L4, "fork", "works in a child process forked after a call", _check_fork),
    Promise(
        Level.L4, "clean-end", "lets a process exit at once after use, with status 0 and without output", _check_exit
    ),
)
