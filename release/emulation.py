"""Run the AArch64 wheels under qemu, by Debian's Python for arm64, with PyPI's packages for AArch64.

``apt-get`` fetches the packages of Debian with separate lists. The packages are unpacked into a folder: the system
stays unchanged. A script replaces the interpreter, because processes started by byoc have to run under qemu too.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from release.commands import ReleaseError, python_module, require_program, run
from release.index import serve_index, write_index
from release.installing import SMOKE
from release.project import ROOT

__all__ = ["TESTS", "check_aarch64"]

TESTS = (
    *(f"core/tests/vm/test_{name}.py" for name in ("extension", "call_list", "whole_calls")),
    "core/tests/runtime/test_vector_functions.py",
    "plugins/examplejson/tests/test_examplejson_text.py",
    "rt/tests/test_library.py",
    "rt/tests/test_command.py",
)
"""Tests without a compiler: the C extension and its arithmetic in vectors, a runtime in pure Python, the C runtime."""

_SUITE = "bookworm"
_PYTHON = "3.11"
_PACKAGES = (
    *("libc6", "libgcc-s1", "libstdc++6", "libgomp1", "libcrypt1", "zlib1g", "libexpat1", "libffi8", "libssl3"),
    *("libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1", "libncursesw6", "libtinfo6", "libreadline8"),
    *(f"python{_PYTHON}-minimal", f"libpython{_PYTHON}-minimal", f"libpython{_PYTHON}-stdlib"),
)
_SOURCE = f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {_SUITE} main\n"
_PLATFORMS = ("manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")


def check_aarch64(files: Path, scratch: Path, tests: tuple[str, ...] = TESTS) -> list[str]:
    """Install byoc by name for AArch64, run the smoke test and tests under qemu, and return a line for each.

    Raises:
        ReleaseError: qemu or Debian's tools are missing, or a step fails.
    """
    folder = scratch / "aarch64"
    python = _make_python(folder)
    site = folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    write_index(sorted(files.glob("*.whl")), scratch / "index")
    with serve_index(scratch / "index") as address:
        platforms = [word for tag in _PLATFORMS for word in ("--platform", tag)]
        options = (
            "--quiet",
            "--only-binary",
            ":all:",
            "--python-version",
            _PYTHON,
            *platforms,
            "--extra-index-url",
            address,
        )
        names = ("byoc-core[onnx]", "byoc-examplejson", "byoc-rt", "pytest", "hypothesis", "scipy")
        run(python_module("pip", "install", *options, "--target", site, *names))
    environment = {
        "PYTHONPATH": str(site),
        "PYTHONNOUSERSITE": "1",
        "BYOC_CACHE_DIR": str(folder / "cache"),
        "PATH": str(python.parent),  # without the C compilers of this machine, which make code for its own processor
    }
    machine = run([python, "-c", "import platform; print(platform.machine())"]).strip()
    if machine != "aarch64":
        raise ReleaseError(f"qemu: the interpreter reports the machine {machine}")
    lines = []
    for backend in ("host", "examplejson"):
        options = ("--backend", backend, "--extension", "present", "--site", str(site))
        lines.append(f"under qemu: {run([python, SMOKE, *options], folder, environment).strip()}")
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=1800", "--tb=short")
    printed = run([python, *pytest, *tests], ROOT, {**environment, "BYOC_TEST_INSTALLED": "1"})
    lines.append(f"under qemu: {' '.join(tests)}: {printed.strip().splitlines()[-1]}")
    return lines


def _make_python(folder: Path) -> Path:
    """Return a script running Python for AArch64; the files of Debian are fetched once."""
    remedy = "On Debian: apt-get install qemu-user-static."
    qemu = require_program("qemu-aarch64-static", remedy)
    apt = require_program("apt-get", "The check needs Debian's packages of Python for arm64.")
    dpkg = require_program("dpkg-deb", "The check needs Debian's packages of Python for arm64.")
    root, script = folder / "root", folder / "bin" / "python3"
    if not (root / "usr" / "bin" / f"python{_PYTHON}").exists():
        lists, debs = folder / "apt", folder / "debs"
        for path in (lists / "state" / "lists" / "partial", lists / "cache" / "archives" / "partial", debs, root):
            path.mkdir(parents=True, exist_ok=True)
        (lists / "sources.list").write_text(_SOURCE, "utf-8")
        settings = {
            "Dir::Etc::sourcelist": lists / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State": lists / "state",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": lists / "cache",
            "APT::Architecture": "arm64",
            "APT::Architectures": "arm64",
            "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        run([apt, *options, "update"])
        run([apt, *options, "download", *_PACKAGES], debs)
        for package in sorted(debs.glob("*.deb")):
            run([dpkg, "-x", package, root])
    script.parent.mkdir(exist_ok=True)
    command = f'exec {qemu} -L "{root}" -0 "$0" "{root}/usr/bin/python{_PYTHON}" "$@"'
    script.write_text(f"#!/bin/sh\n{command}\n", "utf-8")
    script.chmod(0o755)
    return script
