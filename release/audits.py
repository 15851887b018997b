"""Checks of the files of a release, each by the tool used by an index or a packager."""

from __future__ import annotations

import email
import json
import re
import struct
import tarfile
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from packaging.utils import parse_sdist_filename, parse_wheel_filename

from release.commands import ReleaseError, python_module, run
from release.project import PACKAGES, ROOT
from release.targets import NATIVE_FILES, TARGETS, NativeFile, Target, list_wheel_tags

__all__ = ["audit_files", "check_sdist", "check_wheels", "list_missing_files"]

_MINIMUM_MACOS = re.compile(r"^macosx_(\d+)_(\d+)_")


def audit_files(files: Path, scratch: Path) -> list[str]:
    """Check all files of a release, and return a line for each check.

    Raises:
        ReleaseError: a file is missing or a check fails.
    """
    wheels, sdists = sorted(files.glob("*.whl")), sorted(files.glob("*.tar.gz"))
    if missing := list_missing_files([path.name for path in (*wheels, *sdists)]):
        raise ReleaseError(f"files: missing are {', '.join(missing)}")
    lines = [f"files: {len(wheels)} wheels and {len(sdists)} sdists, none missing"]
    run(python_module("twine", "check", "--strict", *wheels, *sdists))
    lines.append(f"twine check --strict: {len(wheels) + len(sdists)} files")
    lines.append(check_wheels(wheels))
    lines += [check_sdist(sdist) for sdist in sdists]
    for target in TARGETS:
        for wheel in (path for path in wheels if path.stem.endswith(target.tag)):
            native = NATIVE_FILES[_folder_of(parse_wheel_filename(wheel.name)[0])]
            lines += [_check_abi(wheel)] if native.is_extension else []
            is_macos = target.is_macos
            lines.append(_check_macos(wheel, target, native) if is_macos else _check_linux(wheel, target, scratch))
    return lines


def _folder_of(package: str) -> str:
    """Return the folder of a package."""
    (folder,) = (folder for folder in PACKAGES if Path(folder).name == package.removeprefix("byoc-"))
    return folder


def list_missing_files(names: Sequence[str]) -> list[str]:
    """Return the files missing in a release, as lines.

    A release has for each package an sdist, wheels with the native file, and a wheel for all other platforms, unless
    the package is nothing without the file.
    """
    present: set[tuple[str, str]] = {
        (parse_sdist_filename(name)[0], "sdist") for name in names if name.endswith(".tar.gz")
    }
    for name in names:
        if name.endswith(".whl"):
            package, _, _, tags = parse_wheel_filename(name)
            present |= {(package, f"wheel {tag}") for tag in tags}
    required = []
    for folder in PACKAGES:
        named = f"byoc-{Path(folder).name}"
        required += [(named, kind) for kind in ("sdist", *(f"wheel {tag}" for tag in list_wheel_tags(folder)))]
    return [f"{package}: {kind}" for package, kind in required if (package, kind) not in present]


def check_wheels(wheels: Sequence[Path]) -> str:
    """Check the content of wheels by check-wheel-contents, and the licence and the changelog of each wheel.

    Raises:
        ReleaseError: a check fails.
    """
    run(python_module("check_wheel_contents", *wheels))
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
            described = email.message_from_bytes(archive.read(metadata))
        package = str(described["Name"])
        if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
            raise ReleaseError(f"{wheel.name}: holds no LICENSE")
        if f"# Changelog of {package}" not in str(described.get_payload()):
            raise ReleaseError(f"{wheel.name}: the description has no changelog")
    return f"check-wheel-contents, licence, changelog: {len(wheels)} wheels"


def check_sdist(sdist: Path) -> str:
    """Check that an sdist holds all sources and no test.

    Raises:
        ReleaseError: a source is missing, or a test is present.
    """
    with tarfile.open(sdist) as archive:
        contained = {name.partition("/")[2] for name in archive.getnames()}
    package, _ = parse_sdist_filename(sdist.name)
    tracked = run(["git", "ls-files", "-z", "src", "csrc"], ROOT / _folder_of(package)).split("\0")
    required = {name for name in tracked if name} | {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"}
    if missing := sorted(required - contained):
        raise ReleaseError(f"{sdist.name}: lacks {', '.join(missing)}")
    if tests := sorted(name for name in contained if name.startswith("tests/")):
        raise ReleaseError(f"{sdist.name}: holds a part of the tests: {', '.join(tests[:3])}, ...")
    return f"sdist {sdist.name}: all {len(required)} files, no tests"


def _read_json(printed: str) -> Any:
    """Return the JSON document in the output of a program; warnings may precede and follow the document."""
    return json.JSONDecoder().raw_decode(printed, printed.index("{"))[0]


def _check_abi(wheel: Path) -> str:
    printed = run(python_module("abi3audit", "--strict", "--report", wheel))
    report = _read_json(printed)
    results = [found for spec in report["specs"].values() for found in spec["wheel"]]
    if not results:
        raise ReleaseError(f"{wheel.name}: abi3audit found no extension in the wheel")
    return f"abi3audit --strict: {wheel.name}: {len(results)} extension"


def _check_linux(wheel: Path, target: Target, scratch: Path) -> str:
    environment = {}
    if target.is_musl:
        # auditwheel opens the C library that it finds; on a machine with glibc, there is none of musl.
        folder = scratch / "musl" / target.machine
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "empty.c").write_text("int byoc_nothing;\n", "utf-8")
        library = folder / f"libc.musl-{target.machine}.so.1"
        options = ("-target", target.zig, "-shared", "-nostdlib", folder / "empty.c", "-o", library)
        run(python_module("ziglang", "cc", *options))
        environment["AUDITWHEEL_LD_LIBRARY_PATH"] = str(folder)
    printed = run(python_module("auditwheel", "show", "--json", wheel), environment=environment)
    found = _read_json(printed)
    if found["overall_tag"] != target.tag:
        raise ReleaseError(f"{wheel.name}: auditwheel reports the platform {found['overall_tag']}\n{printed}")
    return f"auditwheel show: {wheel.name}: {found['overall_tag']}"


def _check_macos(wheel: Path, target: Target, native: NativeFile) -> str:
    """Check the native file's processor and version of macOS against the tag."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if fnmatch(name, f"*/{native.name}"))
        data = archive.read(name)
    processor, version, needed = read_mach_o(data)
    tagged = _MINIMUM_MACOS.match(target.tag)
    assert tagged is not None
    if (processor, version) != (target.machine, (int(tagged[1]), int(tagged[2]))):
        raise ReleaseError(f"{wheel.name}: is for {processor} and macOS {version}")
    if foreign := [library for library in needed if not library.startswith(("/usr/lib/", "/System/"))]:
        raise ReleaseError(f"{wheel.name}: needs libraries missing in macOS: {', '.join(foreign)}")
    return f"Mach-O: {wheel.name}: {processor}, macOS {version[0]}.{version[1]}, needs {', '.join(needed)}"


def read_mach_o(data: bytes) -> tuple[str, tuple[int, int], tuple[str, ...]]:
    """Return processor, lowest macOS and needed libraries of a 64-bit Mach-O file.

    Source: ``mach-o/loader.h`` of macOS: a header of 32 bytes, then commands beginning with number and size.

    Raises:
        ReleaseError: the data is no such file.
    """
    if data[:4] != b"\xcf\xfa\xed\xfe":
        raise ReleaseError("the native file is no 64-bit Mach-O file")
    cpu, _, _, num_commands = struct.unpack_from("<iiII", data, 4)
    offset, version, needed = 32, (0, 0), []
    for _ in range(num_commands):
        number, nbytes = struct.unpack_from("<II", data, offset)
        if number == 0x32:  # LC_BUILD_VERSION: platform, lowest version, ...
            lowest = struct.unpack_from("<I", data, offset + 12)[0]
            version = (lowest >> 16, lowest >> 8 & 255)
        elif number == 0x24:  # LC_VERSION_MIN_MACOSX
            lowest = struct.unpack_from("<I", data, offset + 8)[0]
            version = (lowest >> 16, lowest >> 8 & 255)
        elif number in (0xC, 0x8000_0018):  # LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB
            start = offset + struct.unpack_from("<I", data, offset + 8)[0]
            needed.append(data[start : data.index(0, start)].decode())
        offset += nbytes
    return {0x0100_0007: "x86_64", 0x0100_000C: "arm64"}.get(cpu, str(cpu)), version, tuple(needed)
