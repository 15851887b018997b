"""The process trying mutants with the C runtime: each start is announced, so the parent knows the mutant at a death.

    python -m rt.tests.hostile_child LIBRARY FOLDER KIND SEED FIRST LAST

``FOLDER`` holds the corpus of :mod:`rt.tests.hostile_corpus`. Kinds of mutants: ``consistent`` (changed members with
right digests), ``code`` (a changed program), ``program`` (changed bytes of the program, with right digests), ``bits``
(flipped bits), ``cut`` (a part of the file). Lines on standard output: ``begin I``, ``end I OUTCOME``.
"""

from __future__ import annotations

import ctypes
import faulthandler
import math
import random
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ByocError

from core.tests.artifact.fuzzing.folder import Folder
from core.tests.artifact.fuzzing.guarded import guarded_empty
from core.tests.artifact.fuzzing.members import packed, taken_apart
from core.tests.artifact.fuzzing.mutation import change_code, change_program, mutant
from rt.tests.runner import NativeError, NativeFunction, NativeLibrary, TensorInfo

MOST_NBYTES = 1 << 24
CPU_SECONDS = 3.0
"""The limit of a mutant, whose loops may be endless: the system ends the process by ``SIGPROF``."""


def consistent(corpus: Folder, rng: random.Random) -> bytes:
    """Return an artifact with changed members and right digests; native code stays."""
    origin = rng.choice(corpus.seeds)
    members = taken_apart(origin.content)
    payloads = {name: data for name, data in members.items() if name.startswith("modules/")} if origin.is_native else {}
    return packed({**mutant(members, rng), **payloads})


def with_changed_code(corpus: Folder, rng: random.Random) -> bytes:
    """Return an artifact with one or two changes of instructions, registers or sizes; the manifest follows."""
    members = taken_apart(rng.choice(corpus.seeds).content)
    for _ in range(rng.choice((1, 1, 2))):
        with suppress(ByocError, ValueError, LookupError, TypeError, AttributeError):  # a change impossible here
            members = rng.choice((change_program, change_program, change_code))(members, rng)
    return packed(members)


def with_changed_program(corpus: Folder, rng: random.Random) -> bytes:
    """Return an artifact with up to three changed bytes of the program, behind the signature most often."""
    members = taken_apart(rng.choice(corpus.seeds).content)
    program = bytearray(members["program"])
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(program) // 3, len(program)) if rng.random() < 0.9 else rng.randrange(len(program))
        program[place] = (
            rng.choice((program[place] + 1, program[place] - 1, rng.randrange(16), rng.randrange(256))) % 256
        )
    return packed({**members, "program": bytes(program)})


def with_flipped_bits(corpus: Folder, rng: random.Random) -> bytes:
    """Return an artifact with up to three bits flipped, most often in a header."""
    content = bytearray(rng.choice(corpus.seeds).content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(content)) if rng.random() < 0.5 else rng.choice((-1, 1)) * rng.randrange(1, 400)
        content[place] ^= 1 << rng.randrange(8)
    return bytes(content)


def cut(corpus: Folder, rng: random.Random) -> bytes:
    """Return a part of an artifact, or an artifact with bytes before or behind."""
    content = rng.choice(corpus.seeds).content
    end = rng.choice((rng.randrange(len(content)), len(content) - rng.randrange(1, 300)))
    return rng.choice((content[:end], content[rng.randrange(1, 64) :], content + b"x", content + content))


KINDS = {
    "consistent": consistent,
    "code": with_changed_code,
    "program": with_changed_program,
    "bits": with_flipped_bits,
    "cut": cut,
}


def filled(info: TensorInfo, *, at_end: bool) -> np.ndarray | None:
    """Return a guarded array of ones with size 3 for each symbolic axis; ``None`` if the array would be very large."""
    shape = tuple(3 if size < 0 else size for size in info.shape)
    dtype = to_numpy(info.dtype)
    if math.prod(shape) * dtype.itemsize > MOST_NBYTES or len(shape) > 32:
        return None
    array = guarded_empty(shape, dtype, at_end=at_end)
    array[...] = np.ones((), dtype)
    return array


def _explained(outcome: str, error: NativeError) -> str:
    """Return an outcome, after a check of the error's text."""
    assert str(error)
    return outcome


def run(function: NativeFunction, *, at_end: bool) -> str:
    """Run a function on guarded arrays, into new results and into guarded results."""
    inputs = [filled(info, at_end=at_end) for info in function.inputs]
    if any(array is None for array in inputs):
        return "unfit"
    arrays = [array for array in inputs if array is not None]
    try:
        call = function.new_state() if function.states else function
        results = call(*arrays)
        outputs = [guarded_empty(array.shape, array.dtype, at_end=at_end) for array in results]
        call.run_into(arrays, outputs)
    except NativeError as error:
        return _explained("unfit", error)
    return "ran"


def attempt(native: NativeLibrary, path: Path) -> str:
    """Return the outcome of an artifact: ``refused``, ``unfit`` or ``ran``."""
    try:
        program = native.load(path)
    except NativeError as error:
        return _explained("refused", error)
    outcomes = [run(function, at_end=at_end) for function in program for at_end in (True, False)]
    return "ran" if "ran" in outcomes else "unfit"


def main(library: str, folder: str, kind: str, seed: str, first: str, last: str) -> None:
    """Try mutants from ``first`` up to ``last``."""
    faulthandler.enable()
    native = NativeLibrary(Path(library))
    corpus = Folder.read(Path(folder))
    path = Path(folder) / f"native-{kind}-{first}.byoc"
    if not hasattr(ctypes.CDLL(None), "__asan_init"):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        limit = pages * resource.getpagesize() + (1 << 31)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    for index in range(int(first), int(last)):
        content = KINDS[kind](corpus, random.Random(f"{kind} {seed} {index}"))
        path.write_bytes(content)
        print(f"begin {index}", flush=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        outcome = attempt(native, path)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(f"end {index} {outcome}", flush=True)
    path.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
