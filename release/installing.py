"""Install byoc by name from an index on this machine into empty environments, and take a new user's first steps."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename

from release.commands import ReleaseError, python_module, run
from release.index import serve_index, write_index
from release.project import ROOT, read_settings, read_version
from release.targets import TARGETS

__all__ = ["SMOKE", "check_choices", "check_installs", "find_pythons"]

SMOKE = ROOT / "release" / "smoke.py"

_PLATFORMS = (
    *((target.tag,) for target in TARGETS),
    ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64"),
    ("macosx_15_0_arm64", "macosx_11_0_arm64"),
    *((machine, "any") for machine in ("win_amd64", "win_arm64", "manylinux_2_28_ppc64le", "macosx_10_15_x86_64")),
)
"""For platforms of users, the tags accepted by pip, best first; the last is the tag of the expected wheel."""


@dataclass(frozen=True, slots=True)
class _Install:
    """An environment to try: the installed packages, and the working parts expected there.

    Attributes:
        packages: names for pip, as given by a new user.
        backend: the backend to run.
        has_extension: whether the C extension is expected.
        files: the glob of the files in the index.
        options: further options of pip.
        is_everywhere: whether all Pythons are tried, or only the first found.
    """

    packages: tuple[str, ...]
    backend: str
    has_extension: bool = True
    files: str = "*"
    options: tuple[str, ...] = ()
    is_everywhere: bool = False


_INSTALLS = (
    _Install(("byoc-core", "byoc-ccompiler", "byoc-rt"), "ccompiler", is_everywhere=True),
    _Install(("byoc-core[onnx]", "byoc-dnnl"), "dnnl"),
    _Install(("byoc-core[onnx]", "byoc-cblas"), "cblas"),
    _Install(("byoc-examplejson", "byoc-conformance"), "examplejson"),
    _Install(("byoc-core",), "host", has_extension=False, files="*none-any.whl"),
    _Install(("byoc-core",), "host", files="*.tar.gz"),
)


def find_pythons() -> dict[str, str]:
    """Return the interpreters of this machine by version, for the supported versions."""
    found = {}
    for version in read_settings().pythons:
        if path := shutil.which(f"python{version}"):
            done = subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, check=False)
            if done.returncode == 0:
                found[version] = path
    return found


def check_installs(files: Path, scratch: Path) -> list[str]:
    """Install by name into an empty environment for each way, run the smoke test there, and return a line for each try.

    Raises:
        ReleaseError: an installation or the smoke test fails, or no supported Python is found.
    """
    pythons = find_pythons()
    if not pythons:
        raise ReleaseError(f"Python: none of {', '.join(read_settings().pythons)} is on the search path")
    lines = []
    for install in _INSTALLS:
        write_index(sorted(files.glob(install.files)), scratch / "index")
        with serve_index(scratch / "index") as address:
            tried = list(pythons) if install.is_everywhere else list(pythons)[:1]
            environment = scratch / "environment"
            lines += [_try_install(install, address, version, pythons[version], environment) for version in tried]
    if absent := [version for version in read_settings().pythons if version not in pythons]:
        lines.append(f"not tried without an interpreter: Python {', '.join(absent)}")
    return lines


def check_choices(files: Path, scratch: Path) -> list[str]:
    """Check the wheel of byoc-core chosen by pip on each platform, and return a line for each platform.

    Raises:
        ReleaseError: pip chooses another wheel.
    """
    write_index(sorted(files.glob("*.whl")), scratch / "index")
    with serve_index(scratch / "index") as address:
        for tags in _PLATFORMS:
            shutil.rmtree(scratch / "choice", ignore_errors=True)
            platforms = [word for tag in tags for word in ("--platform", tag)]
            options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--pre", "--index-url", address, *platforms)
            run(python_module("pip", "download", *options, "--dest", scratch / "choice", "byoc-core"))
            (wheel,) = (scratch / "choice").glob("*.whl")
            if tags[-1] not in {tag.platform for tag in parse_wheel_filename(wheel.name)[3]}:
                raise ReleaseError(f"pip on {tags[0]}: chooses {wheel.name}, expected the wheel for {tags[-1]}")
    return [f"pip chooses on {tags[0]}: {tags[-1]}" for tags in _PLATFORMS]


def _try_install(install: _Install, address: str, version: str, python: str, environment: Path) -> str:
    shutil.rmtree(environment, ignore_errors=True)
    run([python, "-m", "venv", environment])
    own = environment / "bin" / "python"
    # Everything else comes from the index that pip is set up for.
    options = ("--quiet", "--disable-pip-version-check", "--extra-index-url", address, *install.options)
    run([own, "-m", "pip", "install", *options, *install.packages])
    run([own, "-m", "pip", "check"])
    installed = run([own, "-c", "from importlib.metadata import version; print(version('byoc-core'))"]).strip()
    if installed != read_version():
        raise ReleaseError(f"pip installed byoc-core {installed}, expected the version of this release")
    extension = "present" if install.has_extension else "absent"
    isolated = {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1", "BYOC_CACHE_DIR": str(environment / "cache")}
    output = run(
        [own, "-W", "error", SMOKE, "--backend", install.backend, "--extension", extension], environment, isolated
    )
    assert "works" in output
    kind = install.files if install.files != "*" else "all files"
    return (
        f"pip install {' '.join(install.packages)} ({kind}), Python {version}: {install.backend}, extension {extension}"
    )
