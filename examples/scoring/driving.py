"""The client of the cluster: hand out shards, write the ledger, and check the result."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import byoc_core
from distributed import Client, as_completed

from examples.scoring.results import read_record, read_results, remove_unfinished
from examples.scoring.shards import Shard, digest_of
from examples.scoring.workers import Outcome, SessionPlugin, Task, run_in_batches, score_shard

__all__ = ["LEDGER", "Progress", "check_results", "compare_serially", "read_ledger", "score_on_cluster", "total_digest"]

LEDGER = "ledger.jsonl"
_TASKS_PER_THREAD, _MIN_TASKS = 4, 64
_REPORT_S = 2.0


@dataclass
class Progress:
    """The state of a run.

    Attributes:
        num_shards: the shards of the data set.
        outcomes: the finished shards, in order of completion.
        failures: by shard, the error.
        lost_workers: the workers lost so far.
    """

    num_shards: int
    outcomes: list[Outcome] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    lost_workers: list[str] = field(default_factory=list)
    start: float = field(default_factory=time.perf_counter)

    def __str__(self) -> str:
        num_rows = sum(outcome.record.num_rows for outcome in self.outcomes)
        num_found = sum(not outcome.is_new for outcome in self.outcomes)
        rate = num_rows / max(time.perf_counter() - self.start, 1e-9)
        parts = [f"{len(self.outcomes)} of {self.num_shards} shards, {num_rows:,} rows, {rate:,.0f} rows/s"]
        parts += [f"{num_found} found finished"] * bool(num_found)
        parts += [f"{len(self.failures)} failed"] * bool(self.failures)
        parts += [f"workers lost: {len(self.lost_workers)}"] * bool(self.lost_workers)
        return "; ".join(parts)


def score_on_cluster(
    client: Client,
    session: byoc_core.Session,
    shards: Sequence[Shard],
    task: Task,
    report: Callable[[Progress], object],
) -> Progress:
    """Score shards by the workers of a cluster, and write a line into the ledger for each finished shard.

    A worker that dies loses its unfinished shards to other workers. Few shards are handed out ahead, so the scheduler
    holds a small state for a data set of any size. A shard at fault does not stop the others.

    Args:
        client: the client of the cluster.
        session: the session, of an artifact in a file seen by all workers.
        shards: the shards.
        task: the arguments of all shards.
        report: called every two seconds and at the end.
    """
    progress = Progress(len(shards))

    def note_loss(event: tuple[float, object]) -> None:
        _, message = event
        if isinstance(message, Mapping) and message.get("action") == "remove-worker" and not message.get("expected"):
            progress.lost_workers.append(str(message.get("worker")))

    client.subscribe_topic("all", note_loss)
    client.register_plugin(SessionPlugin(session))
    shards_by_key = {f"score-{shard.name}": shard for shard in shards}
    keys = iter(shards_by_key)
    num_ahead = max(_MIN_TASKS, _TASKS_PER_THREAD * sum(client.nthreads().values()))
    reported = time.perf_counter()
    with (task.folder / LEDGER).open("w", encoding="utf-8") as ledger:
        futures = as_completed()

        def submit() -> None:
            if (key := next(keys, None)) is not None:
                futures.add(client.submit(score_shard, shards_by_key[key], task, key=key, pure=False))

        for _ in range(num_ahead):
            submit()
        for future in futures:
            submit()
            try:
                outcome: Outcome = future.result()  # waits again if the answer was lost with its worker
            except Exception as error:  # noqa: BLE001 - whatever a task raised, or Dask for a task that killed workers
                progress.failures[shards_by_key[future.key].name] = f"{type(error).__name__}: {error}"
            else:
                progress.outcomes.append(outcome)
                line = {**asdict(outcome.record), "pid": outcome.pid, "new": outcome.is_new, "seconds": outcome.seconds}
                ledger.write(json.dumps(line) + "\n")
                ledger.flush()
            if time.perf_counter() - reported > _REPORT_S:
                reported = time.perf_counter()
                report(progress)
    client.unsubscribe_topic("all")
    remove_unfinished(task.folder)
    report(progress)
    return progress


def read_ledger(folder: Path) -> list[Mapping[str, Any]]:
    """Return the lines of a ledger.

    Raises:
        OSError: the ledger cannot be read.
    """
    return [json.loads(line) for line in (folder / LEDGER).read_text("utf-8").splitlines()]


def check_results(folder: Path, shards: Iterable[Shard]) -> list[str]:
    """Return the faults of a finished run: shards lost or twice, and results other than recorded.

    Reads the ledger and all result files; neither the inputs nor the model.
    """
    ledger = read_ledger(folder)
    lines = {str(line["shard"]): line for line in ledger}
    counts = Counter(str(line["shard"]) for line in ledger)
    names = [shard.name for shard in shards]
    faults = [f"shard {name}: {counts[name]} times in the ledger" for name in names if counts[name] != 1]
    faults += [f"shard {name}: not of the data set" for name in sorted(counts.keys() - set(names))]
    for name in names:
        if name in lines:
            try:
                digest = digest_of(read_results(folder, name))
            except (OSError, ValueError) as error:
                faults.append(f"shard {name}: {error}")
                continue
            record = read_record(folder, name)
            if record is None or not digest == record.results == lines[name]["results"]:
                faults.append(f"shard {name}: the result file is not the recorded one")
    return faults


def compare_serially(session: byoc_core.Session, shards: Iterable[Shard], task: Task) -> list[str]:
    """Score shards again in this process, and return the shards with other results in the folder."""
    faults = []
    for shard in shards:
        record = read_record(task.folder, shard.name)
        digest = digest_of(run_in_batches(session, shard.load(session), task.batch_rows))
        if record is None or record.results != digest:
            faults.append(f"shard {shard.name}: a serial run has other results")
    return faults


def total_digest(outcomes: Iterable[Outcome]) -> str:
    """Return a SHA-256 of all results, whatever the order of completion."""
    pairs = sorted((outcome.record.shard, outcome.record.results) for outcome in outcomes)
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
