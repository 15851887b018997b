"""``byoc weights``: constants shared by several artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.artifact.conftest import make_executable
from core.tests.cli.conftest import RunByoc


@pytest.fixture
def artifacts(tmp_path: Path) -> list[str]:
    paths = [tmp_path / name for name in ("first.byoc", "second.byoc")]
    for path in paths:
        make_executable(1000).save(path)
    return [str(path) for path in paths]


def test_constants_are_shown_shared_and_joined(byoc: RunByoc, artifacts: list[str], tmp_path: Path) -> None:
    done = byoc("weights", "show", *artifacts)
    assert done.code == 0
    assert "first.byoc: 2 constants, 8.0 kB" in done.out
    assert "together: 2 different constants, 8.0 kB; sharing saves 8.0 kB" in done.out
    folder = tmp_path / "release"
    done = byoc("weights", "share", *artifacts, "-o", str(folder))
    assert done.code == 0
    assert done.out.count("wrote") == 3
    assert byoc("run", str(folder / "second.byoc"), "--random-inputs", "--dim", "n=2").code == 0
    assert byoc("verify", str(folder / "second.byoc")).code == 0
    assert byoc("inspect", str(folder / "second.byoc")).code == 0
    joined = tmp_path / "joined.byoc"
    done = byoc("weights", "join", str(folder / "second.byoc"), "-o", str(joined))
    assert done.code == 0
    assert joined.read_bytes() == Path(artifacts[1]).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("share", "FIRST"), "--output: is missing"),
        (("share", "FIRST", "-o", "FOLDER", "--weights", "x"), "applies to `byoc weights join` only"),
        (("join", "FIRST", "FIRST", "-o", "joined.byoc"), "takes one artifact"),
        (("join", "absent.byoc", "-o", "joined.byoc"), "absent.byoc"),
    ],
)
def test_wrong_requests_are_named(
    byoc: RunByoc, artifacts: list[str], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    names = {"FIRST": artifacts[0], "FOLDER": str(tmp_path / "release")}
    done = byoc("weights", *(names.get(argument, argument) for argument in arguments))
    assert done.code != 0
    assert message in " ".join(done.err.split())
