"""The parts of the release session: missing files, the pages of an index, obstacles to an upload, failures."""

from __future__ import annotations

import io
import shutil
import struct
import sys
import tarfile
import urllib.request
from pathlib import Path

import pytest

from release.audits import check_sdist, list_missing_files, read_mach_o
from release.commands import ReleaseError, python_module, require_program, run
from release.index import serve_index, write_index
from release.project import PACKAGES, ROOT, Settings, read_version
from release.readiness import find_obstacles
from release.targets import TARGETS

VERSION = read_version()
EXTENDED = ("core", "plugins/dnnl")
LIBRARY = "rt"
"""The package of a library for programs: without the library there is no wheel."""


def list_names() -> list[str]:
    """Return the names of the files of a complete release."""
    names = []
    for folder in PACKAGES:
        package = f"byoc_{Path(folder).name}-{VERSION}"
        platforms = [target.tag for target in TARGETS if folder in target.packages]
        if folder == LIBRARY:
            tags = [f"py3-none-{platform}" for platform in platforms]
        else:
            tags = ["py3-none-any", *(f"cp311-abi3-{platform}" for platform in platforms if folder in EXTENDED)]
        names += [f"{package}.tar.gz", *(f"{package}-{tag}.whl" for tag in tags)]
    return names


def test_a_complete_release_lacks_nothing() -> None:
    assert list_missing_files(list_names()) == []


@pytest.mark.parametrize("name", list_names())
def test_each_file_is_missed(name: str) -> None:
    (missing,) = list_missing_files([other for other in list_names() if other != name])
    assert missing.startswith(name.partition("-")[0].replace("_", "-"))


def test_targets_are_those_that_are_promised() -> None:
    tags = {target.tag for target in TARGETS}
    linux = {f"{kind}_{machine}" for kind in ("manylinux_2_17", "musllinux_1_2") for machine in ("x86_64", "aarch64")}
    assert tags == linux | {"macosx_11_0_x86_64", "macosx_11_0_arm64"}
    for target in TARGETS:
        assert {"core", LIBRARY} <= set(target.packages) <= {*EXTENDED, LIBRARY}


def test_an_index_lists_packages_and_files(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for name in list_names():
        (files / name).write_text(name, "utf-8")
    write_index(sorted(files.iterdir()), tmp_path / "index")
    with serve_index(tmp_path / "index") as address:
        front = urllib.request.urlopen(f"{address}/").read().decode()
        assert [f'<a href="byoc-{Path(folder).name}/">' in front for folder in PACKAGES] == [True] * len(PACKAGES)
        page = urllib.request.urlopen(f"{address}/byoc-core/").read().decode()
        assert page.count("#sha256=") == 2 + len(TARGETS)
        name = f"byoc_core-{VERSION}.tar.gz"
        assert urllib.request.urlopen(f"{address}/byoc-core/{name}").read().decode() == name


SETTINGS = Settings(("3.11",), "", {"Repository": "https://forge.example", "Issues": "https://forge.example/issues"})


def write_repository(folder: Path, heading: str) -> None:
    """Write a repository of changelogs alone, committed."""
    for package in PACKAGES:
        (folder / package).mkdir(parents=True)
        (folder / package / "CHANGELOG.md").write_text(
            f"# Changelog\n\n## {heading}\n\n## 0.1.0 - 2020-01-01\n", "utf-8"
        )
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for arguments in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "all")):
        run(["git", *arguments], folder)


def test_nothing_forbids_an_upload_when_all_is_there(tmp_path: Path) -> None:
    write_repository(tmp_path, "0.2.0 - 2030-01-01")
    assert find_obstacles(SETTINGS, "0.2.0", tmp_path) == []


def test_each_obstacle_has_its_remedy(tmp_path: Path) -> None:
    write_repository(tmp_path, "0.2.0 - unreleased")
    (tmp_path / "core" / "new").touch()
    unknown = Settings(("3.11",), "", {"Repository": "", "Issues": "https://forge.example/issues"})
    remedy = "fill in [tool.byoc.urls] of pyproject.toml, then python -m release.metadata"
    heading = "begins with `## 0.2.0 - unreleased`: give it the version and the date of the release"
    assert find_obstacles(unknown, "0.2.0.dev3", tmp_path) == [
        f"the project's pages are not known (Repository): {remedy}",
        "0.2.0.dev3 is a version of development: python -m release.metadata 0.2.0",
        *(f"{folder}/CHANGELOG.md {heading}" for folder in PACKAGES),
        "1 files differ from the commit: commit the changes",
    ]


def test_a_changelog_of_another_version_is_an_obstacle(tmp_path: Path) -> None:
    write_repository(tmp_path, "0.3.0 - 2030-01-01")
    assert len(find_obstacles(SETTINGS, "0.2.0", tmp_path)) == len(PACKAGES)


def write_sdist(path: Path, names: list[str]) -> None:
    """Write an sdist of empty files."""
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}"), io.BytesIO())


@pytest.mark.parametrize("folder", PACKAGES)
def test_each_sdist_holds_all_sources(tmp_path: Path, folder: str) -> None:
    copy = tmp_path / "source"
    shutil.copytree(ROOT / folder, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "*.so"))
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    run([sys.executable, "-W", "ignore", "-c", build], copy)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert check_sdist(sdist).endswith("files, no tests")


def test_an_sdist_with_all_or_not_all_files(tmp_path: Path) -> None:
    tracked = [name for name in run(["git", "ls-files", "-z", "src", "csrc"], ROOT / "core").split("\0") if name]
    names = [*tracked, "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"]
    path = tmp_path / f"byoc_core-{VERSION}.tar.gz"
    write_sdist(path, names)
    assert check_sdist(path) == f"sdist {path.name}: all {len(names)} files, no tests"
    write_sdist(path, [name for name in names if not name.endswith("frame.c")])
    with pytest.raises(ReleaseError, match=r"lacks csrc/frame\.c$"):
        check_sdist(path)
    write_sdist(path, [*names, "tests/test_dims.py"])
    with pytest.raises(ReleaseError, match="holds a part of the tests"):
        check_sdist(path)


def make_mach_o(cpu: int, lowest: int, library: bytes) -> bytes:
    """Return a Mach-O file of two commands and no code."""
    text = library + b"\0" * (8 - len(library) % 8)
    build = struct.pack("<IIIIII", 0x32, 24, 1, lowest, lowest, 0)
    load = struct.pack("<IIIIII", 0xC, 24 + len(text), 24, 0, 0, 0) + text
    return b"\xcf\xfa\xed\xfe" + struct.pack("<iiIIIII", cpu, 0, 6, 2, len(build) + len(load), 0, 0) + build + load


def test_a_mach_o_file_is_read() -> None:
    data = make_mach_o(0x0100_000C, 11 << 16 | 2 << 8, b"/usr/lib/libSystem.B.dylib")
    assert read_mach_o(data) == ("arm64", (11, 2), ("/usr/lib/libSystem.B.dylib",))
    with pytest.raises(ReleaseError, match="no 64-bit Mach-O"):
        read_mach_o(b"\x7fELF")


def test_a_missing_program_fails_with_the_remedy() -> None:
    with pytest.raises(ReleaseError) as caught:
        require_program("byoc-no-such-program", "Install it.")
    assert str(caught.value) == (
        "program `byoc-no-such-program`: is not installed, but needed by a check of the release. Install it."
    )


def test_a_command_that_fails_is_shown_with_what_it_printed() -> None:
    with pytest.raises(ReleaseError, match=r"^A=b .*-m byoc_no_such_module\nfailed with 1:\n.*No module named"):
        run(python_module("byoc_no_such_module"), environment={"A": "b"})
