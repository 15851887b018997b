"""Sessions install only changes: an equal installation is left out, other wheels are installed alone."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.installations import STATEMENT, install


class _Session:
    """A session recording installations; an installation puts a package into the environment."""

    def __init__(self, environment: Path) -> None:
        self.virtualenv = SimpleNamespace(location=str(environment))
        self.calls: list[tuple[str, ...]] = []
        self.is_broken = False

    def install(self, *arguments: str) -> None:
        self.calls.append(arguments)
        if self.is_broken:
            raise RuntimeError("no network")
        (Path(self.virtualenv.location) / "lib/site-packages/byoc_core").mkdir(parents=True, exist_ok=True)

    def calls_of(self, *arguments: Any) -> list[tuple[str, ...]]:
        self.calls.clear()
        install(self, *arguments)  # type: ignore[arg-type]
        return list(self.calls)


def _write_wheel(path: Path, content: str, *requirements: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("byoc_core/__init__.py", content)
        lines = ["Metadata-Version: 2.1", "Name: byoc-core", *(f"Requires-Dist: {text}" for text in requirements)]
        archive.writestr("byoc_core-1.dist-info/METADATA", "\n".join(lines))


@pytest.fixture
def session(tmp_path: Path) -> _Session:
    (tmp_path / "env").mkdir()
    return _Session(tmp_path / "env")


def test_only_changes_are_installed(session: _Session, tmp_path: Path) -> None:
    one, two = tmp_path / "byoc_core-1.whl", tmp_path / "byoc_b-1.whl"
    _write_wheel(one, "1", "numpy")
    _write_wheel(two, "1")
    wheels = {one: "[onnx]", two: ""}
    everything = (f"{one}[onnx]", str(two), "pytest")
    assert session.calls_of(wheels, "pytest") == [everything]  # nothing older lies in a new environment
    assert session.calls_of(wheels, "pytest") == []
    _write_wheel(two, "2")
    assert session.calls_of(wheels, "pytest") == [("--force-reinstall", "--no-deps", str(two))]
    assert session.calls_of(wheels, "pytest", "scipy") == [(*everything, "scipy")]
    _write_wheel(one, "1", "numpy>=2")
    assert session.calls_of(wheels, "pytest", "scipy") == [
        (*everything, "scipy"),
        ("--force-reinstall", "--no-deps", str(one)),
    ]


def test_a_failed_installation_is_repeated(session: _Session, tmp_path: Path) -> None:
    wheel = tmp_path / "byoc_core-1.whl"
    _write_wheel(wheel, "1")
    session.calls_of({wheel: ""})
    _write_wheel(wheel, "2")
    session.is_broken = True
    with pytest.raises(RuntimeError, match="no network"):
        session.calls_of({wheel: ""})
    session.is_broken = False
    assert session.calls_of({wheel: ""}) == [(str(wheel),), ("--force-reinstall", "--no-deps", str(wheel))]
    assert session.calls_of({wheel: ""}) == []


def test_an_environment_without_a_statement_may_hold_older_wheels(session: _Session, tmp_path: Path) -> None:
    wheel = tmp_path / "byoc_core-1.whl"
    _write_wheel(wheel, "1")
    session.calls_of({wheel: ""})
    (tmp_path / "env" / STATEMENT).unlink()
    assert session.calls_of({wheel: ""}) == [(str(wheel),), ("--force-reinstall", "--no-deps", str(wheel))]
