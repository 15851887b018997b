"""The search for oneDNN: order, refusals, and messages."""

from __future__ import annotations

import ctypes
import sys
from importlib import metadata
from pathlib import Path

import byoc_dnnl.library as finding
import pytest
from byoc_core.errors import PluginError
from byoc_dnnl.capi import Api, Status, Version
from byoc_dnnl.library import VARIABLE, Library, Missing, find_library, library_status, load_library, look_for_library

REMEDY = (
    "Install the wheel for Linux on x86-64: pip install onednn-cpu-gomp==2023.2.0; or set BYOC_DNNL_LIBRARY to a "
    "libdnnl of version 3.2 or a later 3."
)
REMEDY_FOR_VARIABLE = (
    "Set BYOC_DNNL_LIBRARY to a libdnnl of version 3.2 or a later 3; or unset the variable to search for other "
    "libraries."
)


@pytest.fixture
def found() -> Library:
    library = find_library()
    if isinstance(library, Missing):
        pytest.skip(library.reason)
    return library


def test_what_is_found_is_usable_and_says_what_it_is(found: Library) -> None:
    status = library_status()
    assert status.ok
    assert status.reason == str(found)
    number = ".".join(map(str, found.version))
    assert status.reason.startswith(f"oneDNN {number} from {found.path} (")
    assert f"instructions {found.isa_name}" in status.reason
    assert (3, 2) <= found.version[:2] < (4, 0)
    assert load_library() is find_library()


def test_a_variable_goes_before_all_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "libdnnl.so.3"
    monkeypatch.setenv(VARIABLE, str(path))
    missing = find_library()
    assert isinstance(missing, Missing)
    prefix = f"{path} (by BYOC_DNNL_LIBRARY) cannot be loaded: "
    assert missing.reason.startswith(prefix)
    assert str(path) not in missing.reason.removeprefix(prefix)  # the loader says it once more
    assert missing.remedy == REMEDY_FOR_VARIABLE
    with pytest.raises(PluginError) as caught:
        load_library()
    assert str(caught.value) == f"byoc-dnnl: {missing.reason}. {REMEDY_FOR_VARIABLE}"
    assert not library_status().ok


def test_a_broken_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "libdnnl.so.3"
    path.write_bytes(b"this is no library")
    missing = look_for_library(str(path))
    assert isinstance(missing, Missing)
    assert f"{path} (by BYOC_DNNL_LIBRARY) cannot be loaded" in missing.reason


@pytest.mark.skipif(sys.platform != "linux", reason="the name of the system's mathematics library")
def test_another_library_is_refused() -> None:
    missing = look_for_library("libm.so.6")
    assert isinstance(missing, Missing)
    assert missing.reason.startswith("libm.so.6 (by BYOC_DNNL_LIBRARY) is not oneDNN of version 3: ")


def test_without_libgomp_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    missing = look_for_library("libdnnl.so.3")
    assert missing == Missing(
        "libdnnl.so.3 (by BYOC_DNNL_LIBRARY) needs libgomp, missing on this system",
        "Install libgomp: apt install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora, RHEL).",
    )


class _Pretender(Api):
    """The real library, pretending to be another version."""

    version: tuple[int, int, int] = (3, 2, 0)
    runtime = 2
    engine_status = 0

    def ask(self, name: str, *arguments: object) -> object:
        if name == "dnnl_version":
            return ctypes.pointer(Version(*self.version, b"", self.runtime, 0))
        return super().ask(name, *arguments)

    def attempt(self, name: str, *arguments: object) -> Status | int:
        if name == "dnnl_engine_create" and self.engine_status:
            return self.engine_status
        return super().attempt(name, *arguments)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"version": (2, 6, 0)}, "is oneDNN 2.6.0, expected 3.2 or a later 3"),
        ({"version": (3, 1, 9)}, "is oneDNN 3.1.9, expected 3.2 or a later 3"),
        ({"version": (4, 0, 0)}, "is oneDNN 4.0.0, expected 3.2 or a later 3"),
        ({"runtime": 0x200}, "runs on SYCL, expected OpenMP or one thread"),
        ({"runtime": 4}, "runs on TBB, expected OpenMP or one thread"),
        ({"engine_status": 3}, "cannot create an engine for the CPU: status 3"),
    ],
)
def test_what_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, found: Library, attributes: dict[str, object], text: str
) -> None:
    monkeypatch.setattr(finding, "Api", type("Pretender", (_Pretender,), attributes))
    missing = look_for_library(found.path)
    assert missing == Missing(f"{found.path} (by BYOC_DNNL_LIBRARY) {text}", REMEDY_FOR_VARIABLE)


def test_distributions_come_before_the_environment_and_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "lib" / "libdnnl.so.3"
    library.parent.mkdir()
    library.touch()
    info = tmp_path / "site" / "onednn_cpu_iomp-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: onednn-cpu-iomp\nVersion: 1\n")
    (info / "RECORD").write_text("../lib/libdnnl.so.3,,\n../lib/libdnnl.so,,\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(info.parent)])
    assert [*finding.candidates()][:3] == [
        (str(library), "of distribution onednn-cpu-iomp"),
        (str(library), "of this Python environment"),
        ("libdnnl.so.3", "of the system"),
    ]
    library.unlink()  # what the metadata names may be gone
    assert next(finding.candidates()) == ("libdnnl.so.3", "of the system")


def test_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "candidates", lambda: iter([("libdnnl-of-nobody.so", "of the system")]))
    assert look_for_library() == Missing("no oneDNN library was found", REMEDY)


def test_the_metadata_of_a_missing_distribution_is_no_error() -> None:
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.files("onednn-of-nobody")
    assert [*finding._files_of("onednn-of-nobody")] == []
