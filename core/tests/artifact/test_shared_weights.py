"""Artifacts that share a file of constants."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import join_weights, share_weights, verify
from byoc_core.artifact.archive import Buffer, map_file, read_archive, write_archive
from byoc_core.artifact.weights_file import WEIGHTS_NAME, open_weights
from byoc_core.errors import ArtifactError, OptionsError
from byoc_core.vm import VirtualMachine

from core.tests.artifact.conftest import make_executable


@pytest.fixture
def artifacts(tmp_path: Path) -> list[Path]:
    """Return two artifacts with the same constants, and one with other constants."""
    paths = [tmp_path / name for name in ("first.byoc", "second.byoc", "third.byoc")]
    for path, size in zip(paths, (1000, 1000, 2000), strict=True):
        make_executable(size).save(path)
    return paths


def results(path: Path) -> np.ndarray:
    vm = VirtualMachine(byoc_core.load(path))
    (spec,) = vm["main"].params
    size = spec.shape[1]
    assert isinstance(size, int)
    found = vm["main"](np.ones((2, size), np.float32))
    assert isinstance(found, np.ndarray)
    return found


def test_artifacts_without_constants_give_the_same_results(artifacts: list[Path], tmp_path: Path) -> None:
    before = [path.read_bytes() for path in artifacts]
    *written, weights = share_weights(artifacts, tmp_path / "shared")
    assert [path.name for path in (*written, weights)] == [*(path.name for path in artifacts), WEIGHTS_NAME]
    constants = open_weights(weights).entries
    assert sorted(entry.shape[0] for entry in constants.values()) == [1000, 1000, 2000, 2000]  # weight and bias each
    for path, whole in zip(written, artifacts, strict=True):
        assert path.stat().st_size < whole.stat().st_size
        np.testing.assert_array_equal(results(path), results(whole))
        assert verify(path).digest == verify(whole).digest  # with the identity goes the trust of the user
        join_weights(path, tmp_path / "joined.byoc")
        assert (tmp_path / "joined.byoc").read_bytes() == whole.read_bytes()
    assert [path.read_bytes() for path in artifacts] == before


def test_a_folder_is_extended(artifacts: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    share_weights(artifacts[:1], folder)
    first = (folder / WEIGHTS_NAME).read_bytes()
    share_weights(artifacts[1:2], folder)
    assert (folder / WEIGHTS_NAME).read_bytes() == first  # equal constants give equal bytes
    share_weights(artifacts[2:], folder)
    for path in artifacts:
        np.testing.assert_array_equal(results(folder / path.name), results(path))


def test_a_file_elsewhere_is_given_by_path(artifacts: list[Path], tmp_path: Path) -> None:
    written, weights = share_weights(artifacts[:1], tmp_path / "shared")
    elsewhere = shutil.move(weights, tmp_path / "elsewhere.bin")
    loaded = byoc_core.load(written, weights=elsewhere)
    np.testing.assert_array_equal(VirtualMachine(loaded)["main"](np.ones((2, 1000), np.float32)), results(artifacts[0]))
    join_weights(written, tmp_path / "joined.byoc", weights=elsewhere)
    assert (tmp_path / "joined.byoc").read_bytes() == artifacts[0].read_bytes()


def test_sessions_open_artifacts_without_constants(artifacts: list[Path], tmp_path: Path) -> None:
    written, _ = share_weights(artifacts[:1], tmp_path / "shared")
    (found,) = byoc_core.Session(written).run(None, {"x": np.ones((2, 1000), np.float32)})
    np.testing.assert_array_equal(found, results(artifacts[0]))


def test_missing_constants_are_named(artifacts: list[Path], tmp_path: Path) -> None:
    written, third, weights = share_weights([artifacts[0], artifacts[2]], tmp_path / "shared")
    _, smaller = share_weights(artifacts[:1], tmp_path / "smaller")
    with pytest.raises(ArtifactError, match=r"constant [0-9a-f]{12} is not in the artifact, nor in weights"):
        byoc_core.load(third, weights=smaller)
    weights.unlink()
    with pytest.raises(ArtifactError, match=r"is not in the artifact.*put `weights.byocw` beside the artifact"):
        byoc_core.load(written)
    with pytest.raises(FileNotFoundError):
        byoc_core.load(written, weights=weights)
    assert byoc_core.load(artifacts[0]).functions.keys() == {"main"}  # a whole artifact asks for no file


def test_folders_are_extended_by_several_processes_at_once(artifacts: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    code = "import sys; from byoc_core.artifact import share_weights; share_weights([sys.argv[1]], sys.argv[2])"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), str(folder)]) for path in artifacts]
    assert [process.wait() for process in processes] == [0, 0, 0]
    for path in artifacts:
        np.testing.assert_array_equal(results(folder / path.name), results(path))


def rewritten(path: Path, **changes: Buffer | None) -> None:
    """Change members of an archive; ``None`` removes a member."""
    data = map_file(path)
    members: dict[str, Buffer | None] = {
        name: bytes(data[member.offset : member.end]) for name, member in read_archive(data, "archive").items()
    }
    members.update(changes)
    with path.open("wb") as file:
        write_archive(file, {name: data for name, data in members.items() if data is not None})


def test_damaged_files_are_errors(artifacts: list[Path], tmp_path: Path) -> None:
    written, weights = share_weights(artifacts[:1], tmp_path / "shared")
    whole = weights.read_bytes()
    name = next(name for name in read_archive(map_file(weights), "weights") if name.startswith("constants/"))
    for changes, message in (
        ({name: None}, "other members than named by the index"),
        ({"extra": b""}, "other members than named by the index"),
        ({"weights.json": None}, "is no file of weights"),
        ({"weights.json": b"{"}, "is not JSON text"),
        ({"weights.json": b"{}"}, "is malformed"),
        ({"weights.json": b'{"format_version": 2}'}, "is of format 2, not readable"),
        ({name: b"\0" * 4000}, "is damaged"),
        ({name: b"\0" * 8}, "wrong number of bytes"),
    ):
        rewritten(weights, **changes)
        with pytest.raises(ArtifactError, match=message):
            byoc_core.load(written)
        weights.write_bytes(whole)
    weights.write_bytes(whole[:-1])
    with pytest.raises(ArtifactError, match="truncated or damaged"):
        byoc_core.load(written)


def test_damaged_constants_are_never_shared(tmp_path: Path) -> None:
    path = tmp_path / "large.byoc"
    make_executable(300_000).save(path)  # constants of a mebibyte and more are not checked at each load
    name = next(name for name in read_archive(map_file(path), "artifact") if name.startswith("constants/"))
    rewritten(path, **{name: b"\1" * 1_200_000})
    with pytest.raises(ArtifactError, match="is damaged"):
        share_weights([path], tmp_path / "shared")
    assert not (tmp_path / "shared" / WEIGHTS_NAME).exists()


def test_wrong_requests_are_named(artifacts: list[Path], tmp_path: Path) -> None:
    twin = tmp_path / "twin" / "first.byoc"
    twin.parent.mkdir()
    shutil.copy(artifacts[0], twin)
    misnamed = twin.parent / "Weights.byocw"
    shutil.copy(artifacts[0], misnamed)
    for paths, folder, message in (
        ([], tmp_path / "shared", "no artifact is given"),
        ([misnamed], tmp_path / "shared", "has the name of the file of constants"),
        ([artifacts[0], twin], tmp_path / "shared", "two artifacts are called `first.byoc`"),
        (artifacts, tmp_path, "lies in the folder of the results"),
    ):
        with pytest.raises(OptionsError, match=message):
            share_weights(paths, folder)
    assert not (tmp_path / "shared").exists()
