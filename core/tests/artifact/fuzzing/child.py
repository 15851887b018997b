"""The process trying mutants: each start is announced, so the parent knows the mutant at the death of the process.

    python -m core.tests.artifact.fuzzing.child FOLDER SEED FIRST LAST [SABOTAGE [CPU_SECONDS]]

``FOLDER`` holds the corpus, one file for each artifact. Mutant ``i`` is made from the random numbers of ``SEED + i``.
Lines on standard output: ``begin I``, then ``end I OUTCOME`` or ``fault I TEXT``.
"""

from __future__ import annotations

import faulthandler
import os
import random
import resource
import signal
import sys
import traceback
from pathlib import Path

from core.tests.artifact.fuzzing.folder import Folder
from core.tests.artifact.fuzzing.members import packed, taken_apart
from core.tests.artifact.fuzzing.mutation import mutant
from core.tests.artifact.fuzzing.sabotage import SABOTAGES
from core.tests.artifact.fuzzing.trial import try_artifact

MOST_NBYTES = 1 << 31
"""Address space allowed for mutants beyond the usage of the process at the start."""


def artifacts(corpus: Folder, seed: int, index: int) -> tuple[str, bytes, bool]:
    """Return the name of mutant ``index``, the artifact, and whether loading the native code is permitted."""
    if index < 0:
        return (*corpus.attacks[-1 - index], False)
    rng = random.Random(seed + index)
    origin = rng.choice(corpus.seeds)
    members = taken_apart(origin.content)
    payloads = {name: data for name, data in members.items() if name.startswith("modules/")}
    changed = mutant(members, rng)
    # Who may load native code may do anything: only what stands around it is changed then.
    allow_native = origin.is_native and rng.random() < 0.7
    if allow_native:
        changed = {**changed, **payloads}
    return origin.name, packed(changed), allow_native


def main(folder: str, seed: str, first: str, last: str, sabotage: str = "", cpu_s: str = "20") -> None:
    """Try mutants from ``first`` up to ``last``; negative numbers are the attacks of :mod:`holes`."""
    faulthandler.enable()
    os.environ["BYOC_CACHE_DIR"] = f"{folder}/cache"
    corpus = Folder.read(Path(folder))
    path = Path(folder) / f"mutant-{os.getpid()}.byoc"
    for origin in corpus.seeds:  # what is imported and made once is no mutant's
        path.write_bytes(origin.content)
        try_artifact(path, allow_native=origin.is_native)
    if sabotage:
        SABOTAGES[sabotage]()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_NBYTES, resource.RLIM_INFINITY))
    for index in range(int(first), int(last)):
        name, content, allow_native = artifacts(corpus, int(seed), index)
        path.write_bytes(content)
        print(f"begin {index} {name}", flush=True)
        # The system ends the process whose mutant takes more processor time, whatever it does.
        signal.setitimer(signal.ITIMER_PROF, float(cpu_s))
        try:
            text = f"end {index} {try_artifact(path, allow_native=allow_native)}"
        except Exception:
            text = f"fault {index} {traceback.format_exc()!r}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(text, flush=True)
    path.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
