"""The work of a process of the cluster: a session for all its shards, and the task of a shard.

Dask may run a task twice: if a worker dies after its task, or if the scheduler loses a worker still at work. The task
therefore depends on nothing but its arguments, and first looks for a finished result file.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import byoc_core
import numpy as np
from distributed import WorkerPlugin, get_worker

from examples.rows import find_row_size
from examples.scoring.results import Record, read_record, write_results
from examples.scoring.shards import Arrays, Shard, digest_of

__all__ = ["Outcome", "SessionPlugin", "Task", "run_in_batches", "score_here", "score_shard"]


class SessionPlugin(WorkerPlugin):
    """A session for each worker.

    Dask pickles the plugin once, and unpickles the plugin in each worker, also in workers started later. The pickle of
    a session is the path of its artifact and the digest: every worker maps the same file.

    Args:
        session: the session.
    """

    name = "byoc-session"

    def __init__(self, session: byoc_core.Session) -> None:
        self.session = session


@dataclass(frozen=True)
class Task:
    """The arguments common to all shards.

    Attributes:
        folder: the folder of the result files.
        model: the SHA-256 of the artifact.
        batch_rows: the most rows of a call.
    """

    folder: Path
    model: str
    batch_rows: int


@dataclass(frozen=True)
class Outcome:
    """A shard with a result file.

    Attributes:
        record: the record of the result file.
        pid: the process.
        is_new: whether this task has written the file; otherwise the file was there.
        seconds: the time of the task.
    """

    record: Record
    pid: int
    is_new: bool
    seconds: float


def score_shard(shard: Shard, task: Task) -> Outcome:
    """Score a shard by the session of this worker."""
    return score_here(get_worker().plugins[SessionPlugin.name].session, shard, task)


def score_here(session: byoc_core.Session, shard: Shard, task: Task) -> Outcome:
    """Score a shard by a session, unless the folder has the results of the same inputs by the same model.

    Raises:
        ValueError: the shard cannot be read for this model.
        OSError: a file cannot be read or written.
        ByocError: the inputs do not fit the model, or the model failed.
    """
    start = time.perf_counter()
    inputs = shard.load(session)
    digest = digest_of(inputs)
    record = read_record(task.folder, shard.name)
    is_new = record is None or (record.model, record.inputs) != (task.model, digest)
    if record is None or is_new:
        results = run_in_batches(session, inputs, task.batch_rows)
        num_rows = len(next(iter(results.values())))
        record = Record(shard.name, num_rows, task.model, digest, digest_of(results))
        write_results(task.folder, record, results)
    return Outcome(record, os.getpid(), is_new, time.perf_counter() - start)


def run_in_batches(session: byoc_core.Session, inputs: Arrays, batch_rows: int) -> Arrays:
    """Return the outputs of all rows by name, from calls of at most ``batch_rows`` rows.

    Raises:
        ByocError: the inputs do not fit the model, or the model failed.
    """
    row_inputs = find_row_size(session).inputs
    num_rows = max((len(inputs[name]) for name in row_inputs if name in inputs and inputs[name].ndim), default=0)
    calls = []
    for start in range(0, max(num_rows, 1), batch_rows):
        rows = slice(start, start + batch_rows)
        feeds = {name: array[rows] if name in row_inputs and array.ndim else array for name, array in inputs.items()}
        calls.append(session.run(None, feeds))
    names = [value.name for value in session.outputs]
    return {name: np.concatenate(parts) for name, parts in zip(names, zip(*calls, strict=True), strict=True)}
