"""Scoring: a worker killed on the way, shards at fault, and a second start lose nothing and repeat nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import CallError

from examples.scoring.driving import LEDGER, check_results, compare_serially, read_ledger
from examples.scoring.results import read_record, read_results, remove_unfinished, result_path
from examples.scoring.shards import DrawnShard, FileShard, digest_of, find_shards
from examples.scoring.workers import Outcome, Task, run_in_batches, score_here
from examples.serving.tests.summing_model import ROWS, SUMS, write_artifact

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "examples.scoring.score")
TIMEOUT_S = 240


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("model") / "rows.byoc", ROWS)


@pytest.fixture(scope="module")
def session(artifact: Path) -> byoc_core.Session:
    return byoc_core.Session(artifact, num_threads=1)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "results").mkdir()
    return Task(tmp_path / "results", "model", 64)


def write_ledger(folder: Path, *outcomes: Outcome) -> None:
    lines = [{"shard": outcome.record.shard, "results": outcome.record.results} for outcome in outcomes]
    (folder / LEDGER).write_text("".join(json.dumps(line) + "\n" for line in lines))


def state_of(folder: Path) -> Mapping[str, Any]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("*.npz")}


def test_a_killed_worker_loses_nothing_and_repeats_nothing(artifact: Path, tmp_path: Path) -> None:
    shards = [DrawnShard(f"drawn-{index:06}", "n", 100, index) for index in range(300)]
    folder = tmp_path / "results"
    command = [*COMMAND, str(artifact), str(folder), "--draw", "30000", "--shard-rows", "100", "--workers", "2"]
    process = subprocess.Popen(
        [*command, "--compare", "10"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ledger = folder / LEDGER
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while not (ledger.exists() and len(ledger.read_text().splitlines()) > 5):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        pid = json.loads(ledger.read_text().splitlines()[0])["pid"]
        assert pid != process.pid
        os.kill(pid, signal.SIGKILL)
        output, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert "workers lost: 1" in errors

    lines = read_ledger(folder)
    assert sorted(str(line["shard"]) for line in lines) == [shard.name for shard in shards]
    later = [line["pid"] for line in lines if line["pid"] != pid]
    assert len(set(later)) >= 1
    assert len(later) > len(lines) / 2, "the worker was killed early"
    session = byoc_core.Session(artifact, num_threads=1)
    recorded = {line["shard"]: line["results"] for line in lines}
    for shard in shards:
        expected = run_in_batches(session, shard.load(session), 256)
        assert recorded[shard.name] == digest_of(expected)
        np.testing.assert_array_equal(read_results(folder, shard.name)["scores"], expected["scores"])
    assert sorted(path.name for path in folder.iterdir()) == [*(f"{shard.name}.npz" for shard in shards), LEDGER]
    assert re.search(r"^300 shards, 30000 rows, digest [0-9a-f]{64}\n", output)
    assert "all result files are as recorded; 10 equal a serial run\n" in output


def test_shards_at_fault_are_named_and_finished_shards_stay(
    artifact: Path, session: byoc_core.Session, tmp_path: Path
) -> None:
    data, folder = tmp_path / "data", tmp_path / "results"
    data.mkdir()
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name, width in (("a", 8), ("b", 7), ("c", 8)):
        np.save(data / f"{name}.npy", generator.standard_normal((40, width), np.float32))
    with pytest.raises(CallError) as problem:
        session.run(None, {"x": np.load(data / "b.npy")})
    command = [*COMMAND, str(artifact), str(folder), "--data", str(data), "--workers", "1", "--compare", "all"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 1
    assert f"FAILED: shard b: CallError: {problem.value}\n" in done.stderr
    assert sorted(str(line["shard"]) for line in read_ledger(folder)) == ["a", "c"]
    before = state_of(folder)
    assert before.keys() == {"a.npz", "c.npz"}

    np.save(data / "b.npy", generator.standard_normal((40, 8), np.float32))
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert again.returncode == 0, again.stderr
    assert "3 of 3 shards" in again.stderr
    assert "2 found finished" in again.stderr
    assert {line["shard"]: line["new"] for line in read_ledger(folder)} == {"a": False, "b": True, "c": False}
    assert before.items() < state_of(folder).items(), "finished files were not written again"


def test_a_task_run_twice_writes_once(session: byoc_core.Session, task: Task) -> None:
    """Dask runs a task again if its worker dies between the result file and the answer."""
    shard = DrawnShard("drawn", "n", 100, 3)
    first = score_here(session, shard, task)
    before = state_of(task.folder)
    second = score_here(session, shard, task)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.record == second.record == read_record(task.folder, "drawn")
    assert state_of(task.folder) == before
    assert score_here(session, DrawnShard("drawn", "n", 100, 4), task).is_new, "other inputs of the same name"
    assert score_here(session, DrawnShard("drawn", "n", 100, 4), Task(task.folder, "other model", 64)).is_new


def test_batches_do_not_change_results(session: byoc_core.Session, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(-9, 10, (70, 8)).astype(np.float32)
    expected = session(x)["scores"]
    for batch_rows in (1, 32, 70, 100):
        np.testing.assert_array_equal(run_in_batches(session, {"x": x}, batch_rows)["scores"], expected)
    assert run_in_batches(session, {"x": x[:0]}, 32)["scores"].shape == (0, 4)
    sums = byoc_core.Session(write_artifact(tmp_path / "sums.byoc", SUMS))
    inputs = {"ids": generator.integers(0, 50, (70, 3)), "shift": np.ones(8, np.float32)}
    found = run_in_batches(sums, inputs, 32)
    for name, array in sums(**inputs).items():
        np.testing.assert_array_equal(found[name], array)


def test_checks_find_lost_repeated_and_damaged_results(session: byoc_core.Session, task: Task) -> None:
    shards = [DrawnShard(name, "n", 10, seed) for seed, name in enumerate("abcd")]
    outcomes = [score_here(session, shard, task) for shard in shards]
    write_ledger(task.folder, *outcomes)
    assert check_results(task.folder, shards) == []
    assert compare_serially(session, shards, task) == []

    write_ledger(task.folder, *outcomes[:1], *outcomes[2:], outcomes[3])
    assert check_results(task.folder, shards[:3]) == ["shard b: 0 times in the ledger", "shard d: not of the data set"]
    assert check_results(task.folder, shards)[1] == "shard d: 2 times in the ledger"

    write_ledger(task.folder, *outcomes)
    path = result_path(task.folder, "a")
    data = path.read_bytes()
    path.write_bytes(data.replace(read_results(task.folder, "a")["scores"].tobytes(), bytes(160)))
    assert path.read_bytes() != data
    result_path(task.folder, "b").unlink()
    result_path(task.folder, "c").write_bytes(result_path(task.folder, "d").read_bytes())
    faults = check_results(task.folder, shards)
    assert [fault[:9] for fault in faults] == ["shard a: ", "shard b: ", "shard c: "]
    assert "Bad CRC-32" in faults[0]
    assert faults[2] == "shard c: the result file is not the recorded one"
    assert compare_serially(session, shards, task) == [f"shard {name}: a serial run has other results" for name in "bc"]


def test_leftovers_of_killed_processes_are_removed(task: Task) -> None:
    (task.folder / ".byoc-0123").write_bytes(b"half a fi")
    (task.folder / "a.npz").write_bytes(b"")
    remove_unfinished(task.folder)
    assert [path.name for path in task.folder.iterdir()] == ["a.npz"]
    assert read_record(task.folder, "a") is None


def test_data_sets_are_folders_of_arrays(tmp_path: Path, session: byoc_core.Session) -> None:
    with pytest.raises(ValueError, match="holds no .npy and no .npz file"):
        find_shards(tmp_path)
    np.save(tmp_path / "b.npy", np.zeros((2, 8), np.float32))
    np.savez(tmp_path / "a.npz", x=np.ones((2, 8), np.float32))
    (tmp_path / "notes.txt").write_text("")
    shards = find_shards(tmp_path)
    assert shards == [FileShard("a", tmp_path / "a.npz"), FileShard("b", tmp_path / "b.npy")]
    assert [float(shard.load(session)["x"].sum()) for shard in shards] == [16.0, 0.0]
    sums = byoc_core.Session(write_artifact(tmp_path / "sums.byoc", SUMS))
    with pytest.raises(ValueError, match=r"the model has 2 inputs; store ids, shift as \.npz"):
        shards[1].load(sums)
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"a name stands for both a \.npy and a \.npz file"):
        find_shards(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--draw", "10"], 1, "notes.txt: is no artifact; compile the model by `byoc compile`\n"),
        ([], 2, "one of the arguments --data --draw is required"),
        (["--draw", "0"], 2, "argument --draw: invalid positive value: '0'"),
        (["--draw", "1", "--compare", "some"], 2, "argument --compare: 'some' is no number, and not `all`"),
    ],
)
def test_bad_command_lines_are_explained(tmp_path: Path, arguments: list[str], status: int, text: str) -> None:
    (tmp_path / "notes.txt").write_text("text")
    command = [*COMMAND, str(tmp_path / "notes.txt"), str(tmp_path / "results"), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == status
    assert text in done.stderr
