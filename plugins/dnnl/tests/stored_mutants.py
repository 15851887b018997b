"""The process trying changed stored plans with the C runtime: each start is announced, so the parent sees the death.

    python -m plugins.dnnl.tests.stored_mutants LIBRARY HALF FOLDER FIRST LAST

``FOLDER`` holds artifacts from :func:`write_corpus`. Lines on standard output: ``begin I``, ``end I OUTCOME``.
"""

from __future__ import annotations

import ctypes
import faulthandler
import random
import resource
import signal
import sys
from pathlib import Path

from byoc_dnnl.library import load_library
from byoc_dnnl.payload import Payload, join_payload, split_payload

from core.tests.artifact.fuzzing.members import packed, taken_apart

__all__ = ["changed_text", "write_corpus"]

CPU_SECONDS = 5.0
"""The limit of a mutant, whose primitives may be large: the system ends the process by ``SIGPROF``."""

_NUMBERS = (*range(-2, 20), 31, 64, 96, 127, 255, 1024, 4097, 32770, 2**20, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
_PAYLOAD = "modules/0/payload"


def changed_text(text: str, rng: random.Random) -> str:
    """Return a text with one to three changes: of a number most often, of a line else."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(2, len(lines))
        kind = rng.random()
        if kind < 0.75:
            lines[place] = _with_changed_word(lines[place], rng)
        elif kind < 0.85:
            del lines[place]
        elif kind < 0.95:
            lines.insert(place, rng.choice(lines[2:]))
        else:
            other = rng.randrange(2, len(lines))
            lines[place], lines[other] = lines[other], lines[place]
    return "".join(f"{line}\n" for line in lines)


def _with_changed_word(line: str, rng: random.Random) -> str:
    words = line.split(" ")
    place = rng.randrange(len(words))
    number = words[place].lstrip("-")
    if number.isdigit() and rng.random() < 0.5:
        words[place] = str(max(-1, int(words[place]) + rng.choice((-2, -1, 1, 2, 64))))
    elif number.isdigit() or rng.random() < 0.2:
        words[place] = str(rng.choice(_NUMBERS))
    else:
        words[place] = rng.choice(
            ("matmul", "reorder", "arena", "packed", "constant", "argument", "part", "exp", "end")
        )
    return " ".join(words)


def write_corpus(folder: Path) -> None:
    """Write small models with stored plans into a folder."""
    from plugins.dnnl.tests.test_dnnl_stored_plans import CASES, build

    for name, make in CASES.items():
        (folder / f"{name}.seed").write_bytes(build(make()[0].ir).to_bytes())


def _mutant(content: bytes, rng: random.Random) -> bytes:
    members = taken_apart(content)
    parts = split_payload(members[_PAYLOAD])
    plans = changed_text(parts.plans.decode(), rng).encode("ascii")
    payload = join_payload(Payload(parts.document, parts.precision, parts.schedules, plans))
    return packed({**members, _PAYLOAD: payload})


def main(library: str, half: str, folder: str, first: str, last: str) -> None:
    """Try mutants from ``first`` up to ``last``."""
    from rt.tests.hostile_child import attempt
    from rt.tests.runner import NativeLibrary

    faulthandler.enable()
    load_library()  # found by the native half under its name
    native = NativeLibrary(Path(library))
    native.load_runtime(half)
    contents = [path.read_bytes() for path in sorted(Path(folder).glob("*.seed"))]
    path = Path(folder) / f"mutant-{first}.byoc"
    if not hasattr(ctypes.CDLL(None), "__asan_init"):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        limit = pages * resource.getpagesize() + (1 << 32)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    for index in range(int(first), int(last)):
        rng = random.Random(f"mutant {index}")
        path.write_bytes(_mutant(rng.choice(contents), rng))
        print(f"begin {index}", flush=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        outcome = attempt(native, path)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(f"end {index} {outcome}", flush=True)
    path.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
