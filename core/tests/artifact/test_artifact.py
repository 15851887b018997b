"""Saving, loading, inspecting and verifying artifacts."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import itertools
import json
import os
import re
import stat
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.artifact import Executable, MemoryNeed, inspect, is_trusted, load, load_module, trust, verify
from byoc_core.artifact.archive import ALIGNMENT, read_archive, write_archive
from byoc_core.artifact.manifest import FORMAT_VERSION
from byoc_core.digest import digest_of
from byoc_core.dims import symbol
from byoc_core.errors import ArtifactError, CallError, InternalError, RuntimeNotFoundError, UntrustedCodeError
from byoc_core.vm import ConstantRef
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

Check = Callable[[Executable], None]
Sized = Callable[[int], Executable]


def test_saved_and_loaded_gives_the_same_results(executable: Executable, saved: Path, check_runs: Check) -> None:
    loaded = load(saved)
    check_runs(executable)
    check_runs(loaded)
    assert loaded.program == executable.program
    assert loaded.report_data == executable.report_data
    assert loaded.get_source() == executable.get_source() != ""
    assert loaded.functions == executable.functions


def test_saving_is_deterministic(executable: Executable, saved: Path, tmp_path: Path) -> None:
    executable.save(tmp_path / "again.byoc")
    load(saved).save(tmp_path / "loaded.byoc")
    assert (tmp_path / "again.byoc").read_bytes() == saved.read_bytes()
    assert (tmp_path / "loaded.byoc").read_bytes() == saved.read_bytes()
    assert executable.to_bytes() == saved.read_bytes()


def test_sizes_of_many_terms_are_saved(tmp_path: Path) -> None:
    size = "+".join(f"{a}*{b}*{c}" for a, b, c in itertools.combinations("abcde", 3))
    module = byoc_core.parse(f"""
def main(x: R.Tensor(("a", "b", "c", "d", "e")), y: R.Tensor(("{size}",))):
    z = R.nn.relu(y)
    return x, z
""")
    executable = byoc_core.build(module, [])
    executable.save(tmp_path / "model.byoc")
    assert load(tmp_path / "model.byoc").functions == executable.functions


def test_zip_tools_read_it_and_data_is_aligned(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert json.loads(archive.read("manifest.json"))["format_version"] == FORMAT_VERSION
    assert names == sorted(names)
    assert {name.split("/")[0] for name in names} == {"manifest.json", "program", "constants", "modules"}
    members = read_archive(memoryview(saved.read_bytes()), "test")
    assert all(member.offset % ALIGNMENT == 0 for member in members.values())


def test_constants_are_mapped_read_only(saved: Path, check_runs: Check) -> None:
    loaded = load(saved)
    for array in loaded.constants.values():
        assert not array.flags.writeable
        assert array.ctypes.data % ALIGNMENT == 0
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    saved.unlink()
    gc.collect()
    check_runs(loaded)


def test_save_replaces_or_leaves_no_trace(executable: Executable, saved: Path, tmp_path: Path) -> None:
    before = saved.read_bytes()
    calls: list[tuple[int, int]] = []
    executable.save(saved, progress=lambda done, total: calls.append((done, total)))
    assert saved.read_bytes() == before
    assert calls
    assert calls[-1][0] == calls[-1][1]

    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executable.save(saved, progress=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["model.byoc"]


def test_inspect(saved: Path) -> None:
    result = inspect(saved)
    assert list(result.functions) == ["main"]
    assert [(need.type_key, need.distribution, need.is_installed) for need in result.runtimes] == [
        ("graph", "byoc-core", True)
    ]
    assert [(module.type_key, module.functions, module.is_native) for module in result.modules] == [
        ("graph", ("region0",), False)
    ]
    assert (result.num_constants, result.constants_nbytes) == (2, 32)
    assert result.arena_nbytes == load(saved).arena_nbytes == {"main": 0}
    (module,) = result.modules
    n = symbol("n")
    assert result.memory == {"main": MemoryNeed(32, module.nbytes, 0, 16 * n, 16 * n)}
    assert result.memory["main"].needed_nbytes == 32 + module.nbytes + 32 * n
    assert result.memory["main"].at({"n": 3}) == MemoryNeed(32, module.nbytes, 0, 48, 48)
    assert result.nbytes == saved.stat().st_size
    assert "region0" in result.listing
    assert not result.is_native
    assert not result.is_trusted
    assert result.report() == (
        "0.0% of 8 FLOPs offloaded\n"
        "  host  100.0%          8 FLOPs  2 ops in 1 region\n\n"
        "why ops stayed on the host:\n"
        "  100.0%      1 x add: forced to the host [forced]"
    )


def test_verify_reads_all_constants(sized_executable: Sized, tmp_path: Path) -> None:
    path = tmp_path / "large.byoc"
    sized_executable(300_000).save(path)
    calls: list[tuple[int, int]] = []
    assert verify(path, progress=lambda done, total: calls.append((done, total))).num_constants == 2
    assert calls == [(1_200_000, 2_400_000), (2_400_000, 2_400_000)]
    data = bytearray(path.read_bytes())
    member = min(read_archive(memoryview(data), "x").values(), key=lambda member: member.offset)
    data[member.offset + 77] ^= 1
    path.write_bytes(data)
    load(path)  # large constants are checked on request only
    digest = member.name.removeprefix("constants/")
    with pytest.raises(ArtifactError) as caught:
        verify(path)
    assert str(caught.value) == (
        f"artifact `{path}`, constant {digest[:12]}: is damaged. Copy the file again, or compile the model again."
    )


def refused(path: Path, data: bytes, kind: type[ArtifactError] = ArtifactError) -> str:
    path.write_bytes(data)
    with pytest.raises(kind) as caught:
        load(path)
    with pytest.raises(kind):
        verify(path)
    text = str(caught.value)
    assert text.startswith(f"artifact `{path}`")
    return text.removeprefix(f"artifact `{path}`")


def test_no_artifact(tmp_path: Path) -> None:
    path = tmp_path / "x.byoc"
    made = " Artifacts are made by `byoc compile` or `Executable.save`."
    assert refused(path, b"") == f": is empty.{made}"
    assert refused(path, b"\x7fELF no") == f": is not a byoc artifact.{made}"
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a.txt", "hello")
    assert refused(path, other.getvalue()) == (f": is a zip archive, but not a byoc artifact.{made}")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.byoc")


def test_any_cut_is_refused(saved: Path) -> None:
    data = saved.read_bytes()
    for length in (*range(1, 200), *range(200, len(data), 97), len(data) - 1):
        refused(saved, data[:length])
    refused(saved, data + b"\0")
    refused(saved, b"\0" + data)


@settings(
    max_examples=settings().max_examples * 5 // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_any_flipped_byte_is_refused(content: bytes, tmp_path: Path, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[position] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "flipped.byoc"
    path.write_bytes(flipped)
    for use in (load, verify):
        with pytest.raises(ArtifactError):
            use(path)
    with contextlib.suppress(ArtifactError):
        inspect(path)  # reads neither constants nor payloads


def rebuilt(path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], object]) -> bytes:
    """Return an artifact in the right container with a changed manifest or changed members."""
    data = path.read_bytes()
    members = {n: data[m.offset : m.end] for n, m in read_archive(memoryview(data), "x").items()}
    manifest = json.loads(members["manifest.json"])
    change(manifest, members)
    if "manifest.json" in members:
        members["manifest.json"] = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    file = io.BytesIO()
    write_archive(file, members)
    return file.getvalue()


def _replace_program(manifest: dict[str, Any], members: dict[str, bytes], program: bytes) -> None:
    members["program"] = program
    manifest["program"] = hashlib.sha256(program).hexdigest()


CHANGES: list[tuple[Callable[[dict[str, Any], dict[str, bytes]], object], str]] = [
    (
        lambda m, f: m.update(format_version=7, core_version="9.1"),
        (
            ": made by byoc-core 9.1 in artifact format 7, not readable by this byoc-core; expected format 1 or "
            "older. pip install -U byoc-core"
        ),
    ),
    (
        lambda m, f: m.update(format_version=2, core_version=None),
        (
            ": made by byoc-core of an unknown version in artifact format 2, not readable by this byoc-core; "
            "expected format 1 or older. pip install -U byoc-core"
        ),
    ),
    (lambda m, f: f.pop("manifest.json"), ": is not a byoc artifact: it has no member manifest.json"),
    (lambda m, f: f.pop("program"), ": has no member program. Copy the file again, or compile the model again."),
    (lambda m, f: f.update(extra=b""), ": has a member not named by the manifest: extra"),
    (lambda m, f: f.update({"../x": b""}), ": has a member not named by the manifest: ../x"),
    (
        lambda m, f: f.update({"modules/0/payload": b"{}"}),
        ", member modules/0/payload: is damaged. Copy the file again, or compile the model again.",
    ),
    (
        lambda m, f: f.update(program=b"?"),
        ", member program: is damaged. Copy the file again, or compile the model again.",
    ),
    (
        lambda m, f: _replace_program(m, f, b"?"),
        ", member program: is malformed: bytecode: is not a VM program; got b'?', expected b'BYOC-VM\\x00'",
    ),
    (lambda m, f: m["functions"].clear(), ", member program: has functions other than declared by the manifest"),
    (
        lambda m, f: m["functions"][0]["inputs"][0].update(dtype="f"),
        ", member manifest.json: is malformed: functions.0.inputs.0.dtype: Value error, unknown dtype 'f'",
    ),
    (
        lambda m, f: m["functions"][0]["inputs"][0].update(shape=["n//0"]),
        ", member manifest.json: is malformed: functions.0.inputs.0.shape: Value error, division by zero",
    ),
    (lambda m, f: m.update(more=1), ", member manifest.json: is malformed: more: Extra inputs are not permitted"),
    (
        lambda m, f: m["functions"][0].update(name="\ud800"),
        ", member manifest.json: is not JSON text",
    ),
    (
        lambda m, f: m.update(constants={**m["constants"], "0" * 63: {"dtype": "bool", "shape": []}}),
        f", member manifest.json: is malformed: constants.{'0' * 63}: A text of the form [0-9a-f]{{64}} is required",
    ),
    (
        lambda m, f: next(iter(m["constants"].values())).update(shape=[0, 2**40, 2**40]),
        ", member manifest.json: is malformed: constants.{constant}.shape: Value error, too many elements",
    ),
    (
        lambda m, f: next(iter(m["constants"].values())).update(shape=[0, 2**56]),
        ", member manifest.json: is malformed: constants.{constant}.shape: Value error, too many elements",
    ),
    (lambda m, f: m["runtimes"].clear(), ": the manifest names no runtime for modules of `graph`"),
    (
        lambda m, f: m["modules"][0].update(functions=["other"]),
        ", module 0: has functions other than declared by the manifest; got region0, expected other",
    ),
    (
        lambda m, f: m["modules"][0].update(functions=["region0", "more"]),
        ", module 0: has functions other than declared by the manifest; got region0, expected region0, more",
    ),
    (
        lambda m, f: m["runtimes"][0].update(payload_format=99, version="9.9"),
        (
            ": needs runtime `graph` of byoc-core 9.9 or newer: the payload format is 99; "
            f"got byoc-core {byoc_core.__version__} for formats 1, 2, 3. pip install -U byoc-core"
        ),
    ),
]


@pytest.mark.parametrize(("change", "text"), CHANGES)
def test_changed_content(saved: Path, change: Callable[[dict[str, Any], dict[str, bytes]], object], text: str) -> None:
    (constant, *_) = sorted(load(saved).constants)
    saved.write_bytes(rebuilt(saved, change))
    with pytest.raises(ArtifactError) as caught:
        load(saved)
    assert str(caught.value) == f"artifact `{saved}`{text}".replace("{constant}", constant)


@pytest.mark.parametrize("change", ["absent", "dtype", "shape"])
def test_a_program_whose_constants_are_others_than_the_manifest_says(saved: Path, change: str) -> None:
    (reference,) = load(saved).program.constants
    digest = reference.digest

    def alter(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        if change == "absent":
            del manifest["constants"][digest], members[f"constants/{digest}"]
        else:
            manifest["constants"][digest][change] = {"dtype": "int32", "shape": [2, 2]}[change]

    assert refused(saved, rebuilt(saved, alter)) == (f", member program: cites a missing constant; got {digest}")


@pytest.mark.parametrize("array", [np.float32(7), np.zeros((3, 0), "int8"), np.arange(6, dtype="int16").reshape(2, 3)])
def test_constants_of_any_shape_come_back(array: npt.ArrayLike, executable: Executable, tmp_path: Path) -> None:
    (reference,) = executable.program.constants
    constant = np.asarray(array)
    digest = digest_of(constant)
    cited = (reference, ConstantRef(digest, str(constant.dtype), constant.shape))
    program = replace(executable.program, constants=cited)
    constants = {**executable.constants, digest: constant}
    Executable(program, executable.modules, constants).save(tmp_path / "x.byoc")
    found = load(tmp_path / "x.byoc").constants[digest]
    assert (found.dtype, found.shape, found.tobytes()) == (constant.dtype, constant.shape, constant.tobytes())
    assert not found.flags.writeable
    verify(tmp_path / "x.byoc")


def test_loading_checks_constants_of_less_than_a_mebibyte(sized_executable: Sized, tmp_path: Path) -> None:
    path = tmp_path / "x.byoc"
    for elements, is_checked in (((1 << 18) - 1, True), (1 << 18, False)):
        sized_executable(elements).save(path)
        data = bytearray(path.read_bytes())
        member = min(read_archive(memoryview(data), "x").values(), key=lambda member: member.offset)
        data[member.offset] ^= 1
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match="is damaged") if is_checked else contextlib.nullcontext():
            load(path)


def test_a_name_that_would_not_be_read_back_is_not_saved(executable: Executable, tmp_path: Path) -> None:
    (main,) = executable.program.functions
    long = replace(executable.program, functions=(replace(main, name="f" * 4097),))
    with pytest.raises(ArtifactError) as caught:
        Executable(long, executable.modules, executable.constants).save(tmp_path / "x.byoc")
    assert str(caught.value) == (
        "executable, member manifest.json: is malformed: functions.0.name: A text of 1 to 4096 characters is required"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_loading_leaves_the_garbage_collector_as_it_was(saved: Path, tmp_path: Path, enabled: bool) -> None:
    (tmp_path / "damaged.byoc").write_bytes(saved.read_bytes()[:-1])
    was_enabled = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        load(saved)
        assert gc.isenabled() is enabled
        with pytest.raises(ArtifactError):
            load(tmp_path / "damaged.byoc")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("nbytes", [4, 15, 17, 64])
def test_constant_of_another_size(saved: Path, nbytes: int) -> None:
    def change(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        members[next(name for name in members if name.startswith("constants/"))] = bytes(nbytes)

    saved.write_bytes(rebuilt(saved, change))
    expected = rf"constant \w{{12}}: has the wrong number of bytes; got {nbytes}, expected 16"
    with pytest.raises(ArtifactError, match=expected):
        load(saved)


def test_missing_runtime_names_what_to_install(saved: Path) -> None:
    def change(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        manifest["runtimes"][0].update(type_key="npu", distribution="byoc-npu-driver")
        manifest["modules"][0].update(type_key="npu")

    saved.write_bytes(rebuilt(saved, change))
    with pytest.raises(RuntimeNotFoundError, match=re.escape("pip install byoc-npu-driver")):
        load(saved)
    assert [need.is_installed for need in inspect(saved).runtimes] == [False]
    assert verify(saved).unchecked_modules == (0,)


def test_artifact_of_a_newer_container(saved: Path) -> None:
    manifest = {"format_version": 2, "core_version": "3.0", "unheard": "of"}
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"made by byoc-core 3\.0 in artifact format 2"):
        load(saved)


def test_compressed_member_and_duplicate_name_are_refused(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", compression) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        refused(saved, file.getvalue())
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("manifest.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("manifest.json", "{}")
    refused(saved, file.getvalue())


def test_native_code_needs_permission(saved: Path, check_runs: Check) -> None:
    saved.write_bytes(rebuilt(saved, lambda manifest, members: manifest["modules"][0].update(native=True)))
    assert inspect(saved).is_native
    with pytest.raises(UntrustedCodeError) as caught:
        load(saved)
    assert str(caught.value) == (
        f"artifact `{saved}`: holds native code (functions region0). "
        "Pass allow_native=True if you trust the origin of the artifact."
    )
    check_runs(load(saved, allow_native=True))
    digest = inspect(saved).digest
    assert not is_trusted(digest)
    assert trust(digest)
    assert inspect(saved).is_trusted
    check_runs(load(saved))


def test_trust_counts_only_in_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path))
    assert not is_trusted("ab")
    assert trust("ab")
    folder = tmp_path / "trusted"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert is_trusted("ab")
    for others in (0o001, 0o002, 0o004, 0o010, 0o020, 0o040):
        folder.chmod(0o700 | others)
        assert not is_trusted("ab")
        assert not trust("cd")
    folder.chmod(0o700)
    monkeypatch.setenv("BYOC_CACHE_DIR", "/dev/null/x")
    assert not trust("ab")
    assert not is_trusted("ab")


def test_constant_under_a_wrong_digest_is_not_saved(executable: Executable, tmp_path: Path) -> None:
    constants = {digest: array + 1 for digest, array in executable.constants.items()}
    wrong = Executable(executable.program, executable.modules, constants)
    with pytest.raises(InternalError, match="does not match the digest"):
        wrong.save(tmp_path / "x.byoc")
    with pytest.raises(InternalError, match="cites a missing constant"):
        Executable(executable.program, executable.modules).save(tmp_path / "x.byoc")
    with pytest.raises(InternalError, match="is not plain JSON"):
        Executable(executable.program, executable.modules, executable.constants, {"a": 1j}).to_bytes()
    assert not list(tmp_path.iterdir())


def test_unknown_function_lists_the_known(executable: Executable) -> None:
    with pytest.raises(CallError) as caught:
        executable.signature("mian")
    assert str(caught.value) == "executable: has no function `mian`; expected main. Did you mean 'main'?"
    assert repr(executable) == "<executable main: graph>"
    assert executable.report().startswith("0.0% of 8 FLOPs offloaded")
    assert Executable(executable.program).report() == "no offload report"


def test_artifact_as_a_module(saved: Path) -> None:
    module = load_module(saved)
    assert module.function_names == ("main", "region0")
    assert "add(" in module.get_source()
    x, y = np.ones((2, 4), "float32"), np.empty((2, 4), "float32")
    module.get_function("main")(x, y)
    assert y.tolist() == [[3, 4, 5, 6]] * 2


def test_graph_file_as_a_module(tmp_path: Path) -> None:
    path = tmp_path / "f.graph"
    tensor = {"dtype": "float32", "shape": ["n"]}
    function = {
        "name": "twice",
        "inputs": [{"name": "x", **tensor}],
        "constants": [],
        "nodes": [{"op": "add", "inputs": [0, 0], "attrs": {}, "outputs": [tensor]}],
        "outputs": [{"name": "y", "value": 1}],
    }
    path.write_text(json.dumps({"schema": "byoc.graph", "version": 1, "functions": [function]}))
    for module in (load_module(path), load_module(path, "graph")):
        y = np.empty(3, "float32")
        module.get_function("twice")(np.ones(3, "float32"), y)
        assert y.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeNotFoundError, match="no installed runtime loads files of the format `npu`"):
        load_module(path, "npu")
    with pytest.raises(ArtifactError, match="the file name does not state the format"):
        load_module(tmp_path / "name")


def test_library_without_an_artifact(tmp_path: Path) -> None:
    for name, format_name in (("x.so", None), ("x.so.6", None), ("x", "so")):
        path = tmp_path / name
        path.write_bytes(b"not a library")
        with pytest.raises(ArtifactError) as caught:
            load_module(path, format_name)
        assert str(caught.value) == (
            f"library `{path}`: holds no byoc artifact. Libraries are made by `Executable.export_library`."
        )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_results_replace_neither_folders_nor_pipes(executable: Executable, tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    for write in (executable.save, executable.export_library):
        for path in (folder, pipe):
            with pytest.raises(OSError, match=r"Is a directory|Is not a regular file") as caught:
                write(path)
            assert caught.value.filename == str(path)
    assert folder.is_dir()
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


def test_exported_library_holds_everything(executable: Executable, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    executable.export_library(path)
    module = load_module(path)
    assert module.get_source() == executable.get_source()
    x, y = np.ones((2, 4), "float32"), np.empty((2, 4), "float32")
    module.get_function("main")(x, y)
    assert y.tolist() == [[3, 4, 5, 6]] * 2
