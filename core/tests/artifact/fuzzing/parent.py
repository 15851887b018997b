"""Many mutants in separate processes, and the outcomes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from core.tests.artifact.fuzzing.folder import write_folder

__all__ = ["Tally", "fuzz", "new_corpus"]

REPOSITORY = Path(__file__).parents[4]
MOST_SECONDS = 300.0
"""The time limit of a mutant by the clock, reached only by waiting (see ``child``)."""


@dataclass
class Tally:
    """The results of a run.

    Attributes:
        outcomes: how many mutants were refused, unfit, or ran, by outcome.
        origins: how many mutants were made of each artifact.
        faults: the faults, by number of the mutant.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    origins: Counter[str] = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of mutants tried."""
        return self.outcomes.total()

    def add(self, other: Tally) -> None:
        """Add the results of another process."""
        self.outcomes.update(other.outcomes)
        self.origins.update(other.origins)
        self.faults.update(other.faults)


@contextmanager
def new_corpus() -> Iterator[Path]:
    """Yield a folder with the corpus, and remove the folder at the end."""
    with tempfile.TemporaryDirectory(prefix="byoc-fuzz-") as folder:
        write_folder(Path(folder))
        yield Path(folder)


def fuzz(
    folder: Path, numbers: range, *, seed: int, jobs: int = 1, sabotage: str = "", cpu_s: float | None = None
) -> Tally:
    """Try mutants by number, and attacks of :mod:`holes` by negative number.

    Args:
        folder: of :func:`new_corpus`.
        numbers: the mutants to try.
        seed: of mutant 0.
        jobs: how many processes run at once.
        sabotage: the part of byoc broken on purpose.
        cpu_s: the limit on processor time of a mutant, if not the default.
    """
    tally, lock = Tally(), threading.Lock()
    size = -(-len(numbers) // jobs) if len(numbers) < 4000 else 500
    chunks = [numbers[start : start + size] for start in range(0, len(numbers), size)]

    def work(chunk: range) -> None:
        found = _try_chunk(folder, chunk, seed, sabotage, cpu_s)
        with lock:
            tally.add(found)
            if len(chunks) > jobs:
                print(f"{tally.count} of {len(numbers)}, {len(tally.faults)} faults", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, chunks))
    return tally


def _try_chunk(folder: Path, chunk: range, seed: int, sabotage: str, cpu_s: float | None) -> Tally:
    """Try mutants in a process; after a death, continue with the next mutant in another process."""
    tally, first = Tally(), chunk.start
    while first < chunk.stop:
        command = ["core.tests.artifact.fuzzing.child", str(folder), str(seed), str(first), str(chunk.stop)]
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", *command, sabotage, *([] if cpu_s is None else [str(cpu_s)])],
                stdout=subprocess.PIPE, stderr=errors, text=True, cwd=REPOSITORY,
            )  # fmt: skip
            current = _follow(child, tally)
            errors.seek(0)
            said = errors.read()[-3000:]
        if current is None and child.returncode == 0:
            break
        if current is None:
            raise RuntimeError(f"the process ended with {child.returncode} between mutants:\n{said}")
        tally.outcomes["died"] += 1
        tally.faults[current] = f"the process ended with {_ending(child.returncode)}\n{said}"
        first = current + 1
    return tally


def _follow(child: subprocess.Popen[str], tally: Tally) -> int | None:
    """Read a process's output to the end; return the mutant begun and not ended."""
    current: int | None = None
    assert child.stdout is not None
    with child.stdout:
        while True:
            timer = threading.Timer(MOST_SECONDS, child.kill)
            timer.start()
            line = child.stdout.readline()
            timer.cancel()
            if not line:
                break
            word, number, *rest = line.split(maxsplit=2)
            if word == "begin":
                current = int(number)
                tally.origins[rest[0].strip()] += 1
            else:
                tally.outcomes[rest[0].strip() if word == "end" else "raised"] += 1
                if word == "fault":
                    tally.faults[int(number)] = rest[0].strip()
                current = None
    child.wait()
    return current


def _ending(code: int) -> str:
    """Return how a process ended, as a readable text."""
    import signal

    if code == -signal.SIGPROF:
        return "more processor time than a mutant may take"
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
