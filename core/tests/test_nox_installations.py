"""Sessions install only changes: an equal installation is left out, other wheels are installed alone."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.installations import STATEMENT, install


class _Session:
    """A session recording installations; as an installer, it replaces no present build without being forced."""

    def __init__(self, environment: Path) -> None:
        self.virtualenv = SimpleNamespace(location=str(environment))
        self.packages = environment / "lib/python3/site-packages"
        self.calls: list[tuple[str, ...]] = []
        self.is_broken = False

    def install(self, *arguments: str) -> None:
        self.calls.append(arguments)
        if self.is_broken:
            raise RuntimeError("no network")
        for argument in arguments:
            if ".whl" in argument:
                with zipfile.ZipFile(argument.partition("[")[0]) as archive:
                    (name,) = (name for name in archive.namelist() if name.endswith("RECORD"))
                    record = self.packages / name
                    record.parent.mkdir(parents=True, exist_ok=True)
                    if not record.exists() or "--force-reinstall" in arguments:
                        record.write_bytes(archive.read(name) + b"byoc-1.dist-info/INSTALLER,,\n")

    def calls_of(self, *arguments: Any) -> list[tuple[str, ...]]:
        self.calls.clear()
        install(self, *arguments)  # type: ignore[arg-type]
        return list(self.calls)


def _write_wheel(path: Path, content: str, *requirements: str) -> None:
    package = path.stem.partition("-")[0]
    digest = hashlib.sha256(content.encode()).hexdigest()
    with zipfile.ZipFile(path, "w") as archive:
        lines = ["Metadata-Version: 2.1", f"Name: {package}", *(f"Requires-Dist: {text}" for text in requirements)]
        archive.writestr(f"{package}-1.dist-info/METADATA", "\n".join(lines))
        archive.writestr(f"{package}-1.dist-info/RECORD", f"{package}/__init__.py,sha256={digest},1\n")


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
    assert session.calls_of(wheels, "pytest") == [everything]
    assert session.calls_of(wheels, "pytest") == []
    _write_wheel(two, "2")
    assert session.calls_of(wheels, "pytest") == [("--force-reinstall", "--no-deps", str(two))]
    assert session.calls_of(wheels, "pytest", "scipy") == [(*everything, "scipy")]
    _write_wheel(one, "2", "numpy>=2")
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


@pytest.mark.parametrize("record", [None, "", "byoc_core.pth,sha256=1,1\n"])
def test_a_package_changed_by_hand_is_replaced(session: _Session, tmp_path: Path, record: str | None) -> None:
    """Uninstalled, or installed in an editable form."""
    wheel = tmp_path / "byoc_core-1.whl"
    _write_wheel(wheel, "1")
    session.calls_of({wheel: ""})
    path = session.packages / "byoc_core-1.dist-info/RECORD"
    path.unlink()
    if record is not None:
        path.write_text(record)
    assert session.calls_of({wheel: ""}) == [("--force-reinstall", "--no-deps", str(wheel))]
    assert session.calls_of({wheel: ""}) == []


def test_an_environment_without_a_statement_may_hold_older_wheels(session: _Session, tmp_path: Path) -> None:
    wheel = tmp_path / "byoc_core-1.whl"
    _write_wheel(wheel, "1")
    session.calls_of({wheel: ""})
    (tmp_path / "env" / STATEMENT).unlink()
    _write_wheel(wheel, "2")
    assert session.calls_of({wheel: ""}) == [(str(wheel),), ("--force-reinstall", "--no-deps", str(wheel))]
