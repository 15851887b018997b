"""Sessions building the wheels, and checking sources and metadata without running tests of byoc."""

from __future__ import annotations

import os
import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

from sessions.packages import DIST, PACKAGES, ROOT, UNBUILT, group, install_wheels

_EPOCH = "1577836800"
"""The time of all files in wheels: equal sources give equal wheels, and equal wheels are not installed again."""


@nox.session
def wheels(session: nox.Session) -> None:
    """Build each package's wheel into dist/, from a clean copy of the source, with the declared build requirements."""
    built_with = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8")) for folder in PACKAGES.values()]
    session.install("pip", *sorted({need for project in built_with for need in project["build-system"]["requires"]}))
    shutil.rmtree(DIST, ignore_errors=True)
    copies = Path(session.create_tmp()) / "source"
    shutil.rmtree(copies, ignore_errors=True)
    for folder in PACKAGES.values():
        shutil.copytree(ROOT / folder, copies / folder, ignore=UNBUILT)
        shutil.rmtree(copies / folder / "tests")
    command = ("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")

    def build(folder: str) -> None:
        session.run(*command, "--wheel-dir", str(DIST), str(copies / folder), env={"SOURCE_DATE_EPOCH": _EPOCH})

    with ThreadPoolExecutor(os.cpu_count()) as threads:  # almost all other sessions wait for the wheels
        list(threads.map(build, PACKAGES.values()))
    session.log("built %s", ", ".join(sorted(path.name for path in DIST.glob("*.whl"))))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format and names, and how plainly docstrings, messages and pages are written."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "-m", "docs.prose")
    session.run("python", "-m", "docs.names")


@nox.session(requires=["wheels"])
def types(session: nox.Session) -> None:
    """Check the types of sources, tests, examples and benchmarks, strictly."""
    install_wheels(session, tuple(PACKAGES), *group("types"))
    session.run("mypy", *session.posargs)


@nox.session(requires=["wheels"])
def packaging(session: nox.Session) -> None:
    """Check the metadata of all packages, and the wheels by the tools of packagers: the quick part of a release."""
    install_wheels(session, ("core",), *group("test", "packaging"))
    session.run("pytest", "-q", "release", *session.posargs)
    wheels = sorted(map(str, DIST.glob("*.whl")))
    session.run("python", "-m", "twine", "check", "--strict", *wheels)
    session.run("python", "-m", "check_wheel_contents", *wheels)


@nox.session
def release(session: nox.Session) -> None:
    """Build the files for a package index into out/release, and check the files: ``nox -s release -- --rehearse``.

    Not among the defaults: the session takes a quarter of an hour, and needs qemu and a network.
    """
    session.install(*group("release"))
    session.run("python", "-m", "release.run", *session.posargs)
