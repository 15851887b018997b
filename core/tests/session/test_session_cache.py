"""The cache of compiled models: what counts as the same model, and entries that are damaged or cannot be written."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.errors import FrontendError, OptionsError
from byoc_core.frontend import importers as importers_module
from byoc_core.partitioning import ByCost, PartitionOptions
from byoc_core.session import Session, SessionCache, cache_key, compiling
from typer.testing import CliRunner

from core.tests.session.conftest import AFFINE, Write

X, SHIFT = np.ones((2, 3), np.float32), np.zeros(3, np.float32)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list with an item for each compilation from now on."""
    seen: list[Any] = []
    original = compiling.build_model

    def build(model: Any, *arguments: Any, **keywords: Any) -> Any:
        seen.append(model)
        return original(model, *arguments, **keywords)

    monkeypatch.setattr(compiling, "build_model", build)
    return seen


def entry_of(session: Session) -> Path:
    path = session._opened.path
    assert path is not None
    return path


def test_a_model_is_compiled_once(write: Write, builds: list[Any], tmp_path: Path) -> None:
    path = write()
    first = Session(path, [])
    second = Session(path, [])
    moved = write(name="moved.onnx")
    third = Session(str(moved), [])
    assert builds == [path]
    assert entry_of(first) == entry_of(second) == entry_of(third)
    assert entry_of(first).parent == tmp_path / "cache" / "sessions"
    for session in (first, second, third):
        np.testing.assert_array_equal(session(X, SHIFT)["y"][0], [1, 2, 3])


@pytest.mark.parametrize(
    "change",
    ["content", "backends", "option", "threads", "nodes", "environment", "measurements", "code", "processor"],
)
def test_everything_read_by_a_compilation_is_in_the_key(
    write: Write, builds: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    path = write()
    monkeypatch.setenv("BYOC_MEASUREMENTS", str(tmp_path / "measured.sqlite"))
    first = entry_of(Session(path, []))
    choices: dict[str, Any] = {"backends": []}
    if change == "content":
        write(AFFINE.replace("{1, 2, 3}", "{1, 2, 4}"))
    elif change == "backends":
        choices["backends"] = ["host"]
    elif change == "option":
        choices["max_fold_cost"] = 7
    elif change == "threads":
        choices["num_threads"] = 1 if os.cpu_count() != 1 else 2
    elif change == "nodes":
        choices["max_nodes"] = 1000
    elif change == "environment":
        monkeypatch.setenv("BYOC_BACKENDS", "none")
    elif change == "measurements":
        (tmp_path / "measured.sqlite").write_bytes(b"")
    elif change == "code":
        monkeypatch.setattr(cache_key, "_CORE", tmp_path / "cache")
    elif change == "processor":
        monkeypatch.setattr(cache_key, "machine_features", lambda: ("none",))
    second = entry_of(Session(path, **choices))
    assert second != first
    assert len(builds) == 2
    assert entry_of(Session(path, **choices)) == second


def test_external_files_are_in_the_key(tmp_path: Path, builds: list[Any]) -> None:
    def save(scale: float) -> Path:
        model = onnx.parser.parse_model(AFFINE)
        weight = onnx.numpy_helper.from_array(np.full(3, scale, np.float32), "scale")
        model.graph.initializer[0].CopyFrom(weight)
        path = tmp_path / "external.onnx"
        (tmp_path / "weights.bin").unlink(missing_ok=True)
        onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
        return path

    path = save(2.0)
    np.testing.assert_array_equal(Session(path, [])(X, SHIFT)["y"], 2 * X)
    np.testing.assert_array_equal(Session(path, [])(X, SHIFT)["y"], 2 * X)
    assert len(builds) == 1
    proto = path.read_bytes()
    save(3.0)
    assert path.read_bytes() == proto  # the weights alone have changed
    np.testing.assert_array_equal(Session(path, [])(X, SHIFT)["y"], 3 * X)
    save(2.0)
    np.testing.assert_array_equal(Session(path, [])(X, SHIFT)["y"], 2 * X)
    assert len(builds) == 2
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(FrontendError, match="external data"):
        Session(path, [])


@pytest.mark.parametrize("fault", ["empty", "noise", "truncated", "other", "folder", "facts"])
def test_damaged_entries_are_made_again(
    write: Write, builds: list[Any], caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    path = write()
    entry = entry_of(Session(path, []))
    good = entry.read_bytes()
    if fault == "empty":
        entry.write_bytes(b"")
    elif fault == "noise":
        entry.write_bytes(b"PK\x03\x04" + bytes(5000))
    elif fault == "truncated":
        entry.write_bytes(good[:-100])
    elif fault == "other":  # sound, but of another model
        entry.write_bytes(
            entry_of(Session(write(AFFINE.replace("{1, 2, 3}", "{9, 9, 9}"), "other.onnx"), [])).read_bytes()
        )
    elif fault == "folder":
        entry.unlink()
        entry.mkdir()
    elif fault == "facts":
        entry.with_suffix(".json").write_text("[" * 100_000)
    builds.clear()
    with caplog.at_level(logging.WARNING, "byoc_core"):
        session = Session(path, [])
    np.testing.assert_array_equal(session(X, SHIFT)["y"][0], [1, 2, 3])
    assert builds == [path]
    if fault == "folder":
        assert "cannot be kept in the cache" in caplog.text
    else:
        assert ("entry of the cache cannot be loaded" in caplog.text) == (fault != "facts")
        assert entry.read_bytes() == good
        Session(path, [])
        assert builds == [path]


@pytest.mark.parametrize("fault", ["a file in place of the folder", "a folder open to others"])
def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    write: Write, builds: list[Any], caplog: pytest.LogCaptureFixture, tmp_path: Path, fault: str
) -> None:
    path = write()
    folder = tmp_path / "cache" / "sessions"
    if fault == "a folder open to others":
        Session(path, [])
        builds.clear()
        folder.chmod(0o777)
    else:
        folder.parent.mkdir()
        folder.write_text("")
    for _ in range(2):
        with caplog.at_level(logging.WARNING, "byoc_core"):
            session = Session(path, [])
        np.testing.assert_array_equal(session(X, SHIFT)["y"][0], [1, 2, 3])
        assert "the compiled model cannot be kept in the cache" in caplog.text
    assert builds == [path, path]


def test_the_cache_can_be_elsewhere_or_off(write: Write, builds: list[Any], tmp_path: Path) -> None:
    path = write()
    session = Session(path, [], cache=tmp_path / "own")
    assert entry_of(session).parent == tmp_path / "own"
    assert Session(path, [], cache=False)._opened.path is None
    assert len(builds) == 2
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def registered() -> Iterator[None]:
    byoc_core.register_op("com.example.session", "Twice", lambda node: node.emit("add", node.value(0), node.value(0)))
    yield
    importers_module.importers()._registered.clear()


@pytest.mark.usefixtures("registered")
def test_models_compiled_by_code_of_the_process_are_not_kept(write: Write, builds: list[Any]) -> None:
    path = write()
    for _ in range(2):
        assert Session(path, [])._opened.path is None
    assert len(builds) == 2


def test_choices_without_plain_form_are_not_kept(
    write: Write, builds: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    path = write()
    with caplog.at_level(logging.INFO, "byoc_core"):
        session = Session(path, [], passes={"before_partition": [lambda module: module]})
    assert session._opened.path is None
    assert "is not kept in the cache: `passes` holds an object of type function" in caplog.text
    assert Session(path, [], dump=path.parent / "dump")._opened.path is None
    kept = [Session(path, [], policy=ByCost(), partition_options=PartitionOptions(min_ops=2)) for _ in range(2)]
    assert entry_of(kept[0]) == entry_of(kept[1])
    assert entry_of(Session(path, [], partition_options=PartitionOptions(min_ops=3))) != entry_of(kept[0])
    request = byoc_core.CompileRequest(backends=[], fallback="warn")
    assert entry_of(Session(path, request=request)) == entry_of(Session(path, request=request))
    assert len(builds) == 5


def test_a_backend_that_becomes_able_has_the_model_compiled_again(
    write: Write, builds: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write()
    unable = ["late"]
    monkeypatch.setattr(compiling, "unable_backends", lambda names, options: [*unable])
    for _ in range(2):
        Session(path, [])
    assert len(builds) == 1
    unable.clear()
    for _ in range(2):
        Session(path, [])
    assert len(builds) == 2


def test_a_model_that_changes_during_its_compilation_is_not_kept(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write()
    original = compiling.build_model

    def build(*arguments: Any, **keywords: Any) -> Any:
        executable = original(*arguments, **keywords)
        write(AFFINE.replace("{1, 2, 3}", "{5, 5, 5}"))
        return executable

    monkeypatch.setattr(compiling, "build_model", build)
    np.testing.assert_array_equal(Session(path, [])(X, SHIFT)["y"][0], [1, 2, 3])
    assert SessionCache().entries() == []


def test_the_oldest_entries_are_dropped(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write(AFFINE.replace("{1, 2, 3}", f"{{{i}, 2, 3}}"), f"m{i}.onnx") for i in range(4)]
    entries = [entry_of(Session(path, [])) for path in paths[:3]]
    for age, entry in enumerate([3, 1, 2]):
        os.utime(entries[age], (1e9 - entry, 1e9 - entry))
    nbytes = entries[0].stat().st_size
    monkeypatch.setenv("BYOC_SESSION_CACHE_NBYTES", str(nbytes * 3 + nbytes // 2))
    last = entry_of(Session(paths[3], []))
    assert {entry.path for entry in SessionCache().entries()} == {entries[1], entries[2], last}
    assert not entries[0].with_suffix(".json").exists()
    Session(paths[1], [])
    assert SessionCache().entries()[0].path == entries[1]  # a use
    monkeypatch.setenv("BYOC_SESSION_CACHE_NBYTES", "1")
    (kept,) = (Session(paths[0], []), SessionCache().entries())[1]
    assert kept.path == entries[0]  # the newest stays, whatever its size
    monkeypatch.setenv("BYOC_SESSION_CACHE_NBYTES", "many")
    with pytest.raises(OptionsError, match="BYOC_SESSION_CACHE_NBYTES: is no number of bytes; got 'many'"):
        Session(paths[0], [])


def run_cache(*arguments: str) -> str:
    from byoc_core.cli.app import app

    done = CliRunner().invoke(app, ["cache", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_lists_verifies_and_clears(write: Write) -> None:
    paths = [write(AFFINE.replace("{1, 2, 3}", f"{{{i}, 2, 3}}"), f"m{i}.onnx") for i in range(3)]
    sessions = [Session(path, []) for path in paths]
    os.utime(entry_of(sessions[2]), (1e9, 1e9))
    listed = json.loads(run_cache("--json"))
    assert {entry["source"] for entry in listed["entries"]} == {str(path) for path in paths}
    assert "3 compiled models" in run_cache()
    assert "removed" in run_cache("clear", "--unused-days", "10")
    assert {entry.path for entry in SessionCache().entries()} == {entry_of(session) for session in sessions[:2]}
    data = bytearray(entry_of(sessions[0]).read_bytes())
    place = data.index(np.array([0, 2, 3], np.float32).tobytes())
    data[place] ^= 1
    entry_of(sessions[0]).unlink()
    entry_of(sessions[0]).write_bytes(data)
    (removed,) = json.loads(run_cache("verify", "--json"))["removed"]
    assert removed.startswith(entry_of(sessions[0]).name)
    assert [entry.path for entry in SessionCache().entries()] == [entry_of(sessions[1])]
    run_cache("clear")
    assert "0 compiled models" in run_cache()
    assert [*SessionCache().folder.iterdir()] == []
    np.testing.assert_array_equal(sessions[1](X, SHIFT)["y"][0], [1, 2, 3])
