"""The texts of artifacts and of refusals, word for word."""

from __future__ import annotations

import errno
import io
import json
import mmap
import os
import stat
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core.artifact.archive as archive_module
import byoc_core.artifact.inspection as inspection_module
import byoc_core.artifact.manifest as manifest_module
import numpy as np
import pytest
from byoc_core import __version__
from byoc_core.artifact import Executable, inspect, is_trusted, load, trust, verify
from byoc_core.artifact.archive import read_archive, write_archive
from byoc_core.artifact.inspection import ModuleSummary
from byoc_core.artifact.loading import OpenedArtifact
from byoc_core.artifact.manifest import decode_manifest, decode_report, encode_manifest
from byoc_core.digest import digest_of
from byoc_core.errors import ArtifactError, InternalError, IRTypeError
from byoc_core.reporting.page import render_page
from byoc_core.runtime.graph import GraphModule
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import RuntimeModule, Signature, TensorSpec
from byoc_core.runtime.registry import RuntimeHandle, runtimes

Sized = Callable[[int], Executable]
COPY_AGAIN = "Copy the file again, or compile the model again."
MADE_BY = "Artifacts are made by `byoc compile` or `Executable.save`."


def text_of(action: Callable[[], object], error: type[Exception] = ArtifactError) -> str:
    with pytest.raises(error) as caught:
        action()
    return str(caught.value)


def test_an_inspection_says_what_the_file_is(saved: Path) -> None:
    found = inspect(saved)
    assert found.path == verify(saved).path == str(saved)
    assert (found.format_version, found.core_version) == (1, __version__)
    with zipfile.ZipFile(saved) as archive:
        assert found.members == {info.filename: info.file_size for info in archive.infolist()}
    (need,) = found.runtimes
    record = runtimes().get("graph").record
    assert (need.distribution, need.version) == (record.distribution, record.version)
    assert need.payload_format in runtimes().get("graph").info().formats
    assert found.unchecked_modules == (0,)
    assert verify(saved).unchecked_modules == ()


def test_an_inspection_as_text(saved: Path) -> None:
    found = inspect(saved)
    head = f"{saved} ({saved.stat().st_size:,} bytes), made by byoc-core {__version__}"
    main = "main(x: float32[n, 4]) -> (y: float32[n, 4])"
    assert str(found) == f"{head}\n{main}\ngraph: region0\n\n{found.report()}"
    assert repr(found) == f"<inspection of {saved}: main>"
    pair = Signature(
        (TensorSpec("a", "int8", ()), TensorSpec("b", "bool", (2, 3))), (TensorSpec("c", "int8", (1,)),) * 2
    )
    several = replace(
        found,
        functions={**found.functions, "pair": pair},
        modules=(*found.modules, ModuleSummary("csource", ("f", "g"), 9, True)),
    )
    assert str(several) == (
        f"{head}\n{main}\npair(a: int8[], b: bool[2, 3]) -> (c: int8[1], c: int8[1])\n"
        f"graph: region0\ncsource: f, g\n\n{found.report()}"
    )
    assert repr(several) == f"<inspection of {saved}: main, pair>"


def test_an_inspection_as_a_page(saved: Path) -> None:
    found = inspect(saved)
    assert found.report_html("My model") == render_page(found.report_data, "My model")
    assert found.report_html() == render_page(found.report_data, "Offload report")


def test_payloads_are_checked_without_permission_for_native_code(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts: list[Any] = []
    monkeypatch.setattr(inspection_module, "check_payload", lambda _artifact, _index, context: contexts.append(context))
    assert verify(saved).unchecked_modules == (0,)
    ((allow_native, source),) = [(context.allow_native, context.source) for context in contexts]
    assert allow_native is False
    assert source == f"artifact `{saved}`"


@pytest.mark.parametrize("action", [load, inspect, verify])
def test_a_file_that_is_no_artifact_is_named(action: Callable[..., object], tmp_path: Path) -> None:
    path = tmp_path / "x.byoc"
    path.write_bytes(b"nothing")
    assert text_of(lambda: action(path)) == f"artifact `{path}`: is not a byoc artifact. {MADE_BY}"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("manifest.json", f"is truncated or damaged. {COPY_AGAIN}"),
        ("modules/0/payload", f"is truncated or damaged. {COPY_AGAIN}"),
        ("program", f"is truncated or damaged. {COPY_AGAIN}"),
        ("word/document.xml", f"is a zip archive, but not a byoc artifact. {MADE_BY}"),
    ],
)
def test_a_zip_archive_is_an_artifact_by_any_of_its_names(name: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x.byoc"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", "data")
        archive.writestr(name, "{}")
    assert text_of(lambda: load(path)) == f"artifact `{path}`: {problem}"


def test_a_container_of_a_newer_format_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "x.byoc"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"format_version": 2, "core_version": "9.8"}))
    assert text_of(lambda: load(path)) == (
        f"artifact `{path}`: made by byoc-core 9.8 in artifact format 2, not readable by this byoc-core; "
        "expected format 1 or older. pip install -U byoc-core"
    )


def test_a_sum_that_is_wrong_is_told_by_member(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = saved.read_bytes()
    members = {name: content[m.offset : m.end] for name, m in read_archive(memoryview(content), "x").items()}
    for wrong in ("manifest.json", "program"):
        file = io.BytesIO()
        monkeypatch.setattr(archive_module, "_crc", lambda data: 7 if data == members[wrong] else zlib.crc32(data))  # noqa: B023
        write_archive(file, members)
        monkeypatch.undo()
        saved.write_bytes(file.getvalue())
        assert text_of(lambda: verify(saved)) == f"artifact `{saved}`, member {wrong}: is damaged. {COPY_AGAIN}"


def test_a_report_is_read_when_it_is_asked_for_from_a_file_that_may_have_changed(saved: Path) -> None:
    data = saved.read_bytes()
    manifest = read_archive(memoryview(data), "x")["manifest.json"]
    expected = load(saved).report_data
    opened = load(saved)
    with saved.open("r+b") as file:
        file.truncate(manifest.end)
    assert opened.report_data == expected
    saved.write_bytes(data)
    opened = load(saved)
    with saved.open("r+b") as file:
        file.truncate(manifest.end - 1)
    assert text_of(lambda: opened.report_data) == (f"artifact `{saved}`: was truncated after loading. {COPY_AGAIN}")
    saved.write_bytes(data)
    opened = load(saved)
    with saved.open("r+b") as file:
        file.seek(manifest.offset)
        file.write(b"[")
    assert text_of(lambda: opened.report_data) == f"artifact `{saved}`, member manifest.json: is damaged. {COPY_AGAIN}"


def test_sizes_of_a_payload_that_cannot_be_computed_are_an_artifact_error(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise IRTypeError("add", "has too many terms")

    expected = f"artifact `{saved}`, module 0: a size cannot be computed: has too many terms"
    monkeypatch.setattr(RuntimeHandle, "check_payload", fail)
    assert text_of(lambda: verify(saved)) == expected
    monkeypatch.setattr(RuntimeHandle, "load", fail)
    assert text_of(lambda: load(saved)) == expected


def test_a_module_with_other_functions_than_the_manifest_says(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphModule, "function_names", property(lambda _self: ("f", "g")))
    assert text_of(lambda: load(saved)) == (
        f"artifact `{saved}`, module 0: has functions other than declared by the manifest; got f, g, expected region0"
    )


def test_a_runtime_is_told_where_a_payload_comes_from_and_what_it_may_do(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[LoadContext] = []
    real = RuntimeHandle.load

    def record(handle: RuntimeHandle, payload: bytes, context: LoadContext) -> RuntimeModule:
        contexts.append(context)
        return real(handle, payload, context)

    def compile_region() -> RuntimeModule:
        raise AssertionError("loading compiles nothing")

    monkeypatch.setattr(RuntimeHandle, "load", record)
    load(saved)
    load(saved, allow_native=True, compiler=compile_region)
    trust(inspect(saved).digest)
    load(saved)
    assert [context.source for context in contexts] == [f"artifact `{saved}`"] * 3
    assert [context.allow_native for context in contexts] == [False, True, True]
    assert [context.compiler for context in contexts] == [None, compile_region, None]


def test_what_a_trusted_artifact_holds_is_the_users_own(saved: Path) -> None:
    assert load(saved, allow_native=True).is_own is False
    trust(inspect(saved).digest)
    assert load(saved).is_own is True


def test_a_manifest_of_more_bytes_than_a_limit_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbytes = inspect(saved).members["manifest.json"]
    monkeypatch.setattr(manifest_module, "MAX_NBYTES", nbytes)
    load(saved)
    monkeypatch.setattr(manifest_module, "MAX_NBYTES", nbytes - 1)
    assert text_of(lambda: load(saved)) == (
        f"artifact `{saved}`, member manifest.json: is too large; got {nbytes} bytes, expected at most {nbytes - 1}"
    )


def test_a_report_that_is_no_json_is_neither_written_nor_read(saved: Path) -> None:
    data = saved.read_bytes()
    member = read_archive(memoryview(data), "x")["manifest.json"]
    manifest = decode_manifest(data[member.offset : member.end], "x")
    for wrong in (float("nan"), float("inf")):
        text = text_of(lambda: encode_manifest(manifest, {"odd": wrong}))  # noqa: B023
        assert text == "executable, member manifest.json: is not JSON text"
    assert text_of(lambda: decode_report(b"[", "x")) == "x, member manifest.json: is not JSON text"


def test_the_manifest_is_canonical_json(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        text = archive.read("manifest.json").decode()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


def test_runtimes_that_a_module_borrows_are_needed_too(
    executable: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GraphModule, "needed_runtimes", ("csource", "graph"))
    path = tmp_path / "x.byoc"
    executable.save(path)
    csource, graph = inspect(path).runtimes
    handle = runtimes().get("csource")
    assert (csource.type_key, graph.type_key) == ("csource", "graph")
    assert (csource.distribution, csource.version) == (handle.record.distribution, handle.record.version)
    assert csource.payload_format == min(handle.info().formats)
    assert csource.is_installed


def test_a_module_that_names_no_format_has_the_newest(
    executable: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GraphModule, "payload_format", None)
    executable.save(tmp_path / "x.byoc")
    (need,) = inspect(tmp_path / "x.byoc").runtimes
    assert need.payload_format == max(runtimes().get("graph").info().formats)


def test_what_cannot_be_saved_is_told(executable: Executable) -> None:
    (digest,) = executable.constants
    program, modules, report = executable.program, executable.modules, executable.report_data
    missing = Executable(program, modules, {}, report)
    assert text_of(missing.to_bytes, InternalError) == (f"executable: cites a missing constant; got {digest}")
    other = np.full(4, 3, "float32")
    wrong = Executable(program, modules, {digest: other}, report)
    assert text_of(wrong.to_bytes, InternalError) == (
        f"executable: the content of a constant does not match the digest; got {digest_of(other)}, expected {digest}"
    )
    for value in (float("nan"), {1}):
        odd = Executable(program, modules, executable.constants, {**report, "odd": value})
        assert text_of(odd.to_bytes, InternalError).startswith("report: is not plain JSON: ")


class RecordingMap(mmap.mmap):
    advice: list[tuple[int, int, int]]

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        self.advice.append((option, start, length))
        super().madvise(option, start, length)


def test_the_pages_of_all_but_constants_are_given_back(sized_executable: Sized, tmp_path: Path) -> None:
    path = tmp_path / "x.byoc"
    sized_executable(20_000).save(path)
    with path.open("rb") as file:
        mapping = RecordingMap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapping.advice = []
    opened = OpenedArtifact.open(memoryview(mapping), "x")
    opened.give_back_pages()
    assert {option for option, _, _ in mapping.advice} == {mmap.MADV_DONTNEED}
    given = {byte for _, start, length in mapping.advice for byte in range(start, start + length)}
    for name, member in opened.members.items():
        pages = set(range(-(-member.offset // mmap.PAGESIZE), member.end // mmap.PAGESIZE))
        if name.startswith("constants/"):
            assert pages
            assert not any(page * mmap.PAGESIZE + mmap.PAGESIZE // 2 in given for page in pages)
        else:
            assert given.issuperset(range(member.offset, member.end))
    directory = max(member.end for member in opened.members.values())
    assert given.issuperset(range(directory, len(opened.data)))
    assert max(start + length for _, start, length in mapping.advice) == len(opened.data)
    OpenedArtifact.open(memoryview(path.read_bytes()), "x").give_back_pages()


def test_memory_that_the_process_has_locked_stays(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, "locked")

    monkeypatch.setattr(RecordingMap, "madvise", refuse)
    with saved.open("rb") as file:
        mapping = RecordingMap(file.fileno(), 0, access=mmap.ACCESS_READ)
    OpenedArtifact.open(memoryview(mapping), "x").give_back_pages()


def test_trust_lies_in_a_private_folder_that_is_made_when_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "not" / "there"
    monkeypatch.setenv("BYOC_CACHE_DIR", str(cache))
    digest = "0" * 64
    assert not is_trusted(digest)
    assert trust(digest)
    assert trust(digest)
    assert trust("1" * 64)
    assert is_trusted(digest)
    assert stat.S_IMODE((cache / "trusted").stat().st_mode) == 0o700
    assert stat.S_IMODE((cache / "trusted" / digest).stat().st_mode) == 0o600
    for mode in (0o710, 0o701, 0o720, 0o702, 0o704, 0o740):
        (cache / "trusted").chmod(mode)
        assert not is_trusted(digest)
        assert not trust(digest)
    (cache / "trusted").chmod(0o700)
    assert is_trusted(digest)


def test_where_users_have_no_numbers_any_folder_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getuid")
    assert not is_trusted("0" * 64)
    assert trust("0" * 64)
    assert is_trusted("0" * 64)
