"""Identity of saved modules in other processes."""

from __future__ import annotations

import hashlib
import json
import os
import pickletools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import byoc_core
from byoc_core.ir import print_module

from byoc_conformance.examples import Array, compile_examples
from byoc_conformance.fresh_process import compile_side, run_in_fresh_process
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promises.l3_artifacts.identity import require_same_bytes
from byoc_conformance.promises.l3_artifacts.saved import (
    reload,
    results_of,
    save_examples,
    settled_examples,
)
from byoc_conformance.subject import Subject, SubjectSpec

__all__ = ["data_only", "digests_of_examples", "is_pickle", "same_bytes_elsewhere", "same_results_elsewhere"]

_SECONDS = 100.0
_SAVE_EXAMPLES = """
from pathlib import Path
from byoc_conformance.promises.l3_artifacts.elsewhere import digests_of_examples
Path(sys.argv[3]).write_text(json.dumps(digests_of_examples(json.loads(Path(sys.argv[2]).read_text()))))
"""


def same_results_elsewhere(subject: Subject, case: str) -> None:
    """Check that an artifact gives bit-identical results in a process without the compile side."""
    executable = compile_examples(subject).executable
    vm = byoc_core.VirtualMachine(reload(subject, executable))
    settled = {
        example: results for example, results in settled_examples(subject).items() if results_of(vm, example) == results
    }
    if not settled:
        raise NotCoveredError("no example gives the same results after loading, as reported by L3-same-results")
    runtimes = [saved.runtime for saved in save_examples(subject)]
    blocked = sorted({name for runtime in runtimes for name in compile_side(subject.handle.record, runtime.record)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.byoc"
        executable.save(path)
        request = {
            "blocked": blocked,
            "runtimes": [runtime.type_key for runtime in runtimes],
            "artifact": str(path),
            "calls": {example.function: [_to_json_values(array) for array in example.inputs] for example in settled},
        }
        reply = _run_in_fresh_process(_read_module("run_artifact"), request)
    if "unopened" in reply:
        raise NotCoveredError(f"the runtime does not open alone, as reported by L0-run-half-alone: {reply['unopened']}")
    for example, expected in settled.items():
        got = tuple(
            (dtype, tuple(shape), bytes.fromhex(text)) for dtype, shape, text in reply["results"][example.function]
        )
        if got != expected:
            raise FailedError(f"`{example.name}` gives other results in another process")


def same_bytes_elsewhere(subject: Subject, case: str) -> None:
    """Check that processes with other set orders save the same bytes."""
    if not subject.info.deterministic:
        raise NotCoveredError("the backend declares `deterministic=False`")
    for saved in save_examples(subject):
        require_same_bytes(saved)
    own = digests_of_examples(subject.spec.to_json(), subject)
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = _run_in_fresh_process(_SAVE_EXAMPLES, subject.spec.to_json(), {"PYTHONHASHSEED": seed})
    if other["regions"] != own["regions"]:
        raise NotCoveredError("the backend claims other functions in another process, as reported by level 1")
    if other != own:
        raise FailedError(
            f"a process with PYTHONHASHSEED={seed} saves other bytes for the same functions; "
            f"payloads of {other['nbytes']} bytes there and {own['nbytes']} here"
        )


def digests_of_examples(spec: Mapping[str, Any], subject: Subject | None = None) -> dict[str, Any]:
    """Return the regions compiled by a subject, and sizes and digests of the payloads, as plain JSON values.

    Called in this process with the subject, and by code of a fresh process without a subject.
    """
    subject = subject or Subject(SubjectSpec.from_json(spec))
    payloads = [saved.payload for saved in save_examples(subject)]
    return {
        "regions": print_module(compile_examples(subject).partitioned),
        "nbytes": [len(payload) for payload in payloads],
        "digests": [hashlib.sha256(payload).hexdigest() for payload in payloads],
    }


def data_only(subject: Subject, case: str) -> None:
    """Check that nothing in a payload is unpickled, unmarshalled or executed by Python."""
    modules = []
    for saved in save_examples(subject):
        saved.reload()
        if is_pickle(saved.payload):
            raise FailedError("the payload is a pickle: loading runs arbitrary code of its author")
        constants = {digest: _to_json_values(array) for digest, array in saved.module.constants.items()}
        modules.append(
            {
                "type_key": saved.module.type_key,
                "payload": saved.payload.hex(),
                "constants": constants,
                "is_native": saved.module.is_native,
            }
        )
    reply = _run_in_fresh_process(_read_module("watch_loading"), {"modules": modules})
    if reply["found"]:
        verbs = " and ".join(dict.fromkeys(reply["found"]))
        raise FailedError(f"the runtime {verbs} a part of the payload during loading")
    if reply["failure"]:
        raise NotCoveredError(
            f"the payload does not load in another process, as reported by L3-runs-elsewhere: {reply['failure']}"
        )


def is_pickle(payload: bytes) -> bool:
    """Return whether the whole payload is a single pickle of protocol 2 or later."""
    try:
        *_, (_, _, last) = pickletools.genops(payload)
    except Exception:  # noqa: BLE001 - any error on bytes without a pickle
        return False
    return payload[:1] == b"\x80" and last == len(payload) - 1


def _run_in_fresh_process(code: str, request: object, environment: Mapping[str, str] | None = None) -> Any:
    """Return the reply of a fresh process; printed output is ignored."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "request.json", Path(folder) / "reply.json"
        question.write_text(json.dumps(request))
        run_in_fresh_process(code, str(question), str(answer), timeout=_SECONDS, environment=environment)
        return json.loads(answer.read_text())


def _read_module(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")


def _to_json_values(array: Array) -> list[object]:
    return [array.dtype.name, list(array.shape), array.tobytes().hex()]
