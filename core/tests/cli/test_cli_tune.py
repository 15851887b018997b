"""``byoc tune``, and ``--placement`` of other commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from byoc_core import inspect
from byoc_core.driver.lock import Lock
from byoc_core.tuning import search

from core.tests.cli.conftest import RunByoc
from core.tests.cli.test_cli_explain import PLUGIN

pytestmark = pytest.mark.lowest

ELSEWHERE = "the placement may be slow here: it was measured elsewhere."


@pytest.fixture
def part(install_backend: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an installed backend claiming ``matmul`` and ``add``; the host does not race against it."""
    install_backend("part", PLUGIN)
    monkeypatch.setattr(search, "_may_win", lambda *_: False)
    return "part"


@pytest.fixture
def lock(byoc: RunByoc, model: Path, part: str) -> Path:
    """The lock of the model, tuned for the installed backend."""
    done = byoc("tune", model, "-o", "x.lock", "--seconds", "0", "--threads", "1", "--dim", "n=3")
    assert done.code == 0, done.err
    return Path("x.lock")


def edit(path: Path, **fields: object) -> Path:
    """Return a changed copy of a lock."""
    copy = path.with_name("edited.lock")
    copy.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}))
    return copy


def test_tuning_writes_a_lock_and_tells_of_the_search(byoc: RunByoc, model: Path, part: str) -> None:
    done = byoc("tune", model, "-o", "x.lock", "--seconds", "0", "--threads", "1", "--dim", "n=3")
    assert (done.code, done.err) == (0, "")
    assert " ms  part alone" in done.out
    assert "1 placements measured; the fastest: " in done.out
    assert done.out.endswith("wrote x.lock\n")
    assert "3 ops on part" in done.out
    lock = Lock.load("x.lock")
    assert (lock.backends, lock.sizes, lock.num_threads) == ([part], {"n": 3}, 1)
    assert sorted(lock.ops.values()) == ["host", part, part, part]
    assert lock.versions["part"] == "byoc-part 1.0"
    assert lock.seconds > 0


def test_the_name_of_the_lock_has_a_default_and_inputs_come_from_files(byoc: RunByoc, model: Path, part: str) -> None:
    np.save("x.npy", np.ones((5, 16), np.float32))
    done = byoc("tune", model, "--seconds", "0", "--threads", "1", "-i", "x=x.npy", "--backend", part)
    assert (done.code, done.err) == (0, "")
    assert Lock.load("model.lock").sizes == {"n": 5}


def test_a_model_compiles_in_its_placement(byoc: RunByoc, model: Path, lock: Path) -> None:
    done = byoc("compile", model, "--placement", lock, "-o", "m.byoc", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    tuned = Lock.load(lock)
    report = inspect("m.byoc").report_data
    assert {f"{row['function']}/{row['name']}": row["outcome"] for row in report["ops"]} == tuned.ops
    assert [row["name"] for row in report["backends"]] == ["part", "host"]
    run = byoc("run", "m.byoc", "--random-inputs")
    assert run.code == 0, run.err


def test_the_placement_of_a_lock_beats_the_order_of_backends(byoc: RunByoc, model: Path, lock: Path) -> None:
    moved = edit(lock, ops=dict.fromkeys(Lock.load(lock).ops, "host"))
    done = byoc("explain", model, "--placement", moved, "--json")
    assert (done.code, done.err) == (0, "")
    assert {row["outcome"] for row in json.loads(done.out)["ops"]} == {"host"}
    text = byoc("explain", model, "--placement", moved)
    assert "the placement gives the op to the host" in " ".join(text.out.split())
    kept = byoc("explain", model, "--placement", lock, "--json")
    assert {row["outcome"] for row in json.loads(kept.out)["ops"]} == {"part", "host"}


@pytest.mark.parametrize(
    "arguments", [("profile", "--calls", "10", "--threads", "1"), ("plan", "--dim", "n=3"), ("run", "--random-inputs")]
)
def test_other_commands_follow_the_placement(
    byoc: RunByoc, model: Path, lock: Path, arguments: tuple[str, ...]
) -> None:
    command, *more = arguments
    done = byoc(command, model, *more, "--placement", lock)
    assert done.code == 0, done.err
    assert "warning" not in done.err


def test_a_profile_is_of_the_placement(byoc: RunByoc, model: Path, lock: Path) -> None:
    def backends(placement: Path) -> set[str]:
        done = byoc("profile", model, "--placement", placement, "--calls", "10", "--threads", "1", "--json")
        assert done.code == 0, done.err
        return {region["backend"] for region in json.loads(done.out)["regions"]} - {"vm"}

    assert backends(lock) == {"part", "host"}
    assert backends(edit(lock, ops=dict.fromkeys(Lock.load(lock).ops, "host"))) == {"host"}


def test_regions_of_a_placement_are_debugged(byoc: RunByoc, model: Path, lock: Path) -> None:
    done = byoc("debug", model, "--placement", lock, "--no-isolate")
    assert done.code == 0, done.out + done.err
    assert "part" in done.out


def test_the_request_with_the_placement_is_printed(byoc: RunByoc, lock: Path) -> None:
    done = byoc("config", "--placement", lock)
    assert done.code == 0
    assert 'placement = "x.lock"' in done.out
    Path("build.toml").write_text(done.out)
    again = byoc("compile", "m.onnx", "--config", "build.toml", "-o", "m.byoc", "--quiet")
    assert (again.code, again.err) == (0, "")
    assert inspect("m.byoc").report_data["backends"][0]["name"] == "part"


@pytest.mark.filterwarnings("always")
def test_locks_from_elsewhere_bring_one_warning(byoc: RunByoc, model: Path, lock: Path) -> None:
    other = edit(lock, machine={"cpus": "4096"}, versions={"part": "byoc-part 0.9"})
    done = byoc("compile", model, "--placement", other, "-o", "m.byoc", "--quiet", "--timing")
    assert done.code == 0
    assert done.err.count(ELSEWHERE) == 1
    assert "cpus: measured on `4096`, here" in done.err
    assert "part: measured with byoc-part 0.9, here byoc-part 1.0" in done.err


def test_what_is_no_lock_is_told(byoc: RunByoc, model: Path, artifact: Path) -> None:
    Path("bad.lock").write_text("{}")
    Path("broken.lock").write_text("{")
    for arguments, text in (
        ((model, "--placement", "missing.lock"), "missing.lock"),
        ((model, "--placement", "bad.lock"), "lock `bad.lock`: is not a lock of this version"),
        ((model, "--placement", "broken.lock"), "lock `broken.lock`: is malformed JSON"),
        ((model, "--placement", model), f"lock `{model}`: is malformed JSON"),
        ((artifact, "--placement", "bad.lock"), "--placement"),
        ((model, "--placement", "."), "."),
    ):
        for command in (("compile", "-o", "y.byoc"), ("explain",), ("profile",)):
            done = byoc(command[0], *arguments, *command[1:])
            assert (done.code, done.out) == (1, ""), (command, arguments)
            assert done.err.startswith("error: ")
            assert text in done.err or command[0] == "compile"
            assert "Traceback" not in done.err
            assert not Path("y.byoc").exists()


def test_a_placement_beside_a_policy_is_an_error(byoc: RunByoc, model: Path) -> None:
    done = byoc("explain", model, "--placement", "x.lock", "--policy", "cost")
    assert done.code == 1
    assert done.err == "error: placement: is given beside `policy`; expected a single way to place ops\n"


@pytest.mark.filterwarnings("always")
def test_locks_naming_absent_backends_are_told(byoc: RunByoc, model: Path, lock: Path) -> None:
    done = byoc("compile", model, "--placement", edit(lock, backends=["gone"]), "-o", "m.byoc")
    assert done.code == 1
    assert "backend `gone` is not installed" in done.err


def test_impossible_requests_end_before_the_search(byoc: RunByoc, model: Path, part: str) -> None:
    for arguments, text in (
        (("-o", "missing/x.lock"), "the folder `missing` does not exist"),
        (("-o", str(model)), "model"),
        (("--function", "mian"), "main"),
        (("--dim", "k=3"), "k"),
        (("--backend", "gone"), "gone"),
        (("-i", "q=q.npy"), "q"),
    ):
        done = byoc("tune", model, "--seconds", "0", *arguments)
        assert done.code == 1, arguments
        assert text in done.err
        assert "Traceback" not in done.err
    assert byoc("tune", model, "--seconds", "-1").code == 2
    assert byoc("tune", model, "--threads", "0").code == 2


def test_without_backends_there_is_nothing_to_tune(byoc: RunByoc, model: Path) -> None:
    done = byoc("tune", model, "-o", "x.lock")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: tune, backends: no backend can compile here. `byoc doctor` lists the reasons.\n"
    assert not Path("x.lock").exists()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--builders", "2"), "--builders: is given without --processes or --scheduler"),
        (("--processes", "2", "--scheduler", "dask://here:1"), "--processes: is given beside --scheduler"),
        (("--scheduler", "tcp://here:1"), "--scheduler: is no address"),
    ],
)
def test_processes_of_a_search_are_named_consistently(
    byoc: RunByoc, model: Path, part: str, flags: tuple[str, ...], text: str
) -> None:
    done = byoc("tune", model, *flags)
    assert (done.code, done.out) == (1, "")
    assert text in done.err


def test_a_search_in_other_processes_writes_a_lock(byoc: RunByoc, model: Path, part: str) -> None:
    flags = ("--processes", "1", "--builders", "1", "--seconds", "0", "--threads", "1")
    done = byoc("tune", model, *flags)
    assert (done.code, done.err) == (0, "")
    assert Lock.load("model.lock").backends == [part]
