"""Score a data set on a Dask cluster, with a session in each worker.

    byoc compile model.onnx -o model.byoc
    python -m examples.scoring.score model.byoc results --data folder --workers 4
    python -m examples.scoring.score model.byoc results --draw 1000000

The data set is a folder of shards: .npy files of rows for a model with one input, .npz files with an array for each
input otherwise. Each shard gets a result file of the same name in the folder of the results, readable by numpy.load. A
killed worker, or a second start of this command, loses and repeats nothing: finished shards of the same inputs and
the same model stay, all other shards are scored. ledger.jsonl has a line for each shard.

The exit status is 1 if a shard failed, or if a check at the end failed: each shard is in the ledger once, each result
file holds the recorded results, and compared shards equal a serial run.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import byoc_core
from byoc_core.errors import ByocError
from byoc_core.runtime.threads import num_threads
from distributed import Client, LocalCluster

from examples.command_line import positive
from examples.rows import find_row_size
from examples.scoring.driving import Progress, check_results, compare_serially, score_on_cluster, total_digest
from examples.scoring.shards import DrawnShard, Shard, find_shards
from examples.scoring.workers import Task

__all__ = ["main"]


def read_command_line(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m examples.scoring.score", description=__doc__, formatter_class=formatter)
    parser.add_argument("model", type=Path, help="the artifact, at a path seen by all workers")
    parser.add_argument("results", type=Path, help="the folder to write into, seen by all workers; made if absent")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, metavar="FOLDER", help="the folder of the shards, seen by all workers")
    source.add_argument("--draw", type=positive, metavar="ROWS", help="score so many random rows instead, as a trial")
    parser.add_argument(
        "--shard-rows", type=positive, default=10_000, metavar="N", help="rows of a shard of --draw (%(default)s)"
    )
    cluster = parser.add_mutually_exclusive_group()
    cluster.add_argument(
        "--workers", type=positive, default=2, metavar="N", help="start so many processes on this machine (%(default)s)"
    )
    cluster.add_argument("--scheduler", metavar="ADDRESS", help="use a running cluster, such as tcp://10.0.0.1:8786")
    parser.add_argument(
        "--batch-rows",
        type=positive,
        default=256,
        metavar="N",
        help="the most rows of a call of the model (%(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help="threads of a call (the processors of this machine, divided by --workers)",
    )
    parser.add_argument(
        "--compare",
        default="1",
        metavar="N",
        help="at the end, score the first N shards in this process and compare; `all` for all (%(default)s)",
    )
    parser.add_argument(
        "--allow-native", action="store_true", help="load native code of an artifact compiled by another user"
    )
    options = parser.parse_args(arguments)
    if options.compare != "all" and not options.compare.isdecimal():
        parser.error(f"argument --compare: {options.compare!r} is no number, and not `all`")
    return options


@contextmanager
def open_cluster(options: argparse.Namespace) -> Iterator[Client]:
    """Connect to the scheduler, or start workers on this machine; a worker that dies is started again."""
    if options.scheduler is not None:
        with Client(options.scheduler) as client:
            yield client
        return
    with (
        LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def list_shards(options: argparse.Namespace, symbol: str) -> Sequence[Shard]:
    """Return the shards of the data set.

    Raises:
        ValueError: the folder holds no shards.
        OSError: the folder cannot be read.
    """
    if options.data is not None:
        return find_shards(options.data.absolute())
    starts = range(0, options.draw, options.shard_rows)
    return [
        DrawnShard(f"drawn-{index:06}", symbol, min(options.shard_rows, options.draw - start), index)
        for index, start in enumerate(starts)
    ]


def show(progress: Progress) -> None:
    """Print the progress."""
    print(progress, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Score the data set, check the results, and return the exit status."""
    options = read_command_line(arguments)
    threads = options.threads or max(1, num_threads() // (1 if options.scheduler else options.workers))
    try:
        with options.model.open("rb") as file:
            model = hashlib.file_digest(file, "sha256").hexdigest()
        if not zipfile.is_zipfile(options.model):
            raise ValueError("is no artifact; compile the model by `byoc compile`")
        session = byoc_core.Session(options.model.absolute(), num_threads=threads, allow_native=options.allow_native)
        shards = list_shards(options, find_row_size(session).symbol)
        options.results.mkdir(parents=True, exist_ok=True)
    except (ByocError, OSError, ValueError) as error:
        raise SystemExit(f"{options.model}: {error}") from error
    task = Task(options.results.absolute(), model, options.batch_rows)
    with open_cluster(options) as client:
        progress = score_on_cluster(client, session, shards, task, show)
    faults = [f"shard {name}: {text}" for name, text in sorted(progress.failures.items())]
    done = [shard for shard in shards if shard.name not in progress.failures]
    faults += check_results(task.folder, done)
    num_compared = len(done) if options.compare == "all" else int(options.compare)
    faults += compare_serially(session, done[:num_compared], task)
    num_rows = sum(outcome.record.num_rows for outcome in progress.outcomes)
    print(f"{len(progress.outcomes)} shards, {num_rows} rows, digest {total_digest(progress.outcomes)}")
    if not faults:
        print(f"all result files are as recorded; {min(num_compared, len(done))} equal a serial run")
    for fault in faults:
        print(f"FAILED: {fault}", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
