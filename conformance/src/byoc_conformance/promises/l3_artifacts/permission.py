"""Payloads loaded only with permission, or not at all."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from pathlib import Path

import byoc_core
from byoc_core.artifact.archive import write_archive
from byoc_core.errors import ArtifactError, ByocError
from byoc_core.runtime.hooks import LoadContext

from byoc_conformance.examples import compile_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promises.l3_artifacts.saved import Saved, reload, save_examples
from byoc_conformance.subject import Subject

__all__ = ["native_code", "newer_format"]

_EXECUTABLE_HEADERS = {
    "ELF": (b"\x7fELF\x01", b"\x7fELF\x02"),
    "Mach-O": (b"\xcf\xfa\xed\xfe\x07\x00\x00\x01", b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01"),
    "PE": (b"!This program cannot be run in DOS mode.",),
}


def native_code(subject: Subject, case: str) -> None:
    """Check that machine code is loaded only with permission, and is absent from modules not declared native."""
    for saved in save_examples(subject):
        if saved.module.is_native:
            if not subject.info.native:
                raise NotCoveredError(
                    "the modules are native but `BackendInfo` does not declare native code, as reported by level 1"
                )
            _check_refused(saved)
        else:
            for kind, headers in _EXECUTABLE_HEADERS.items():
                if any(header in saved.payload for header in headers):
                    raise FailedError(f"the payload holds machine code ({kind}), but `is_native` is false")


def _check_refused(saved: Saved) -> None:
    try:
        saved.runtime.load(saved.payload, LoadContext(saved.module.constants))
    except ArtifactError:
        return
    except ByocError as error:
        raise FailedError(f"native code without permission raises {error!r}; expected an ArtifactError") from error
    raise FailedError("the runtime loads native code without permission (`context.allow_native` is false)")


def newer_format(subject: Subject, case: str) -> None:
    """Check that a payload of a format outside ``RuntimeInfo.formats`` is refused, with an error naming both."""
    executable = compile_examples(subject).executable
    reload(subject, executable)
    with zipfile.ZipFile(io.BytesIO(executable.to_bytes())) as saved_artifact:
        members = {name: saved_artifact.read(name) for name in saved_artifact.namelist()}
    for saved in save_examples(subject):
        formats = saved.runtime.info().formats
        newer = max(formats) + 1
        manifest = json.loads(members["manifest.json"])
        for entry in manifest["runtimes"]:
            if entry["type_key"] == saved.runtime.type_key:
                entry["payload_format"] = newer
        file = io.BytesIO()
        write_archive(file, {**members, "manifest.json": json.dumps(manifest).encode()})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "newer.byoc"
            path.write_bytes(file.getvalue())
            try:
                byoc_core.load(path, allow_native=True)
            except ArtifactError as error:
                if not all(str(number) in str(error) for number in (newer, *formats)):
                    raise FailedError(f"the error does not name the formats {newer} and {formats}: {error}") from error
            else:
                raise FailedError(f"the runtime loads a payload of format {newer}, but declares the formats {formats}")
