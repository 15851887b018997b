"""Scoring: a worker killed on the way, shards at fault, and a second start lose nothing and repeat nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import CallError

from examples.scoring.driving import LEDGER, check_results, compare_serially, read_ledger
from examples.scoring.results import read_record, read_results, remove_unfinished, result_path
from examples.scoring.score import list_shards, main, read_command_line
from examples.scoring.shards import Arrays, DrawnShard, FileShard, digest_of, find_shards
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


def find_reader(path: Path) -> int | None:
    """Return the other process with a file open; ``None`` without such a process."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if int(link.parts[2]) != os.getpid() and link.readlink() == path:
                return int(link.parts[2])
    return None


@contextmanager
def open_pipe(path: Path) -> Iterator[Callable[[], bool]]:
    """Yield a function that opens a pipe for writing, and returns whether there is a reader; the reader then waits."""
    descriptors: list[int] = []

    def has_reader() -> bool:
        if not descriptors:
            with suppress(OSError):
                descriptors.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return bool(descriptors)

    try:
        yield has_reader
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_killed_with_a_shard_in_work_loses_nothing_and_repeats_nothing(
    artifact: Path, session: byoc_core.Session, tmp_path: Path
) -> None:
    """A pipe in place of a shard holds a worker at this shard until the worker is killed."""
    data, folder = tmp_path / "data", tmp_path / "results"
    data.mkdir()
    generator = np.random.default_rng(0)
    arrays = {f"{index:02}": generator.standard_normal((100, 8), np.float32) for index in range(40)}
    for name, array in arrays.items():
        np.save(tmp_path / "15.npy" if name == "15" else data / f"{name}.npy", array)
    pipe = data / "15.npy"
    os.mkfifo(pipe)
    command = [*COMMAND, str(artifact), str(folder), "--data", str(data), "--workers", "2", "--compare", "all"]
    deadline = time.monotonic() + TIMEOUT_S
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        open_pipe(pipe) as has_reader,
    ):
        try:
            pid = None
            while pid is None:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
                pid = find_reader(pipe) if has_reader() else None
            (tmp_path / "15.npy").replace(pipe)
            os.kill(pid, signal.SIGKILL)
            output, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert pid != process.pid
    assert "workers lost: 1" in errors
    assert re.search(r"^40 shards, 4000 rows, digest [0-9a-f]{64}\n", output)
    assert "all result files are as recorded; 40 equal a serial run\n" in output

    lines = {str(line["shard"]): line for line in read_ledger(folder)}
    assert sorted(str(line["shard"]) for line in read_ledger(folder)) == list(arrays)
    assert lines["15"]["pid"] != pid
    assert lines["15"]["new"]
    assert sorted(path.name for path in folder.iterdir()) == [*(f"{name}.npz" for name in arrays), LEDGER]
    for name, array in arrays.items():
        expected = run_in_batches(session, {"x": array}, 256)
        assert lines[name]["results"] == digest_of(expected)
        np.testing.assert_array_equal(read_results(folder, name)["scores"], expected["scores"])


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
    repeated = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert repeated.returncode == 0, repeated.stderr
    assert "3 of 3 shards" in repeated.stderr
    assert "2 found finished" in repeated.stderr
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
    inputs: Arrays = {"ids": generator.integers(0, 50, (70, 3)), "shift": np.ones(8, np.float32)}
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
    with pytest.raises(ValueError, match=r"holds no \.npy and no \.npz file"):
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


def test_random_rows_are_cut_into_shards() -> None:
    options = read_command_line(["model.byoc", "results", "--draw", "250", "--shard-rows", "100"])
    assert list_shards(options, "n") == [
        DrawnShard("drawn-000000", "n", 100, 0),
        DrawnShard("drawn-000001", "n", 100, 1),
        DrawnShard("drawn-000002", "n", 50, 2),
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "one of the arguments --data --draw is required"),
        (["--draw", "0"], "argument --draw: invalid positive value: '0'"),
        (["--draw", "1", "--compare", "some"], "argument --compare: 'some' is no number, and not `all`"),
        (["--draw", "1", "--workers", "1", "--scheduler", "tcp://a:1"], "not allowed with argument --workers"),
    ],
)
def test_bad_command_lines_are_explained(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["model.byoc", "results", *arguments])
    assert end.value.code == 2
    assert text in capsys.readouterr().err


def test_other_files_than_artifacts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("text")
    with pytest.raises(SystemExit) as end:
        main([str(tmp_path / "model.onnx"), str(tmp_path / "results"), "--draw", "10"])
    assert end.value.code == f"{tmp_path / 'model.onnx'}: is no artifact; compile the model by `byoc compile`"
    with pytest.raises(SystemExit, match="No such file"):
        main([str(tmp_path / "model.byoc"), str(tmp_path / "results"), "--draw", "10"])
