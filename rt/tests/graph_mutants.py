"""The process trying hostile graph documents with the C runtime: each start is announced, so the parent sees the death.

    python -m rt.tests.graph_mutants LIBRARY FOLDER SEED FIRST LAST

``FOLDER`` holds artifacts. A mutant is an artifact with one to three changes in the document of its graph module, and
matching digests. Lines on standard output: ``begin I``, ``end I OUTCOME``.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import faulthandler
import json
import random
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from byoc_core.dtypes import all_dtypes

from core.tests.artifact.fuzzing.members import packed, taken_apart
from rt.tests.hostile_child import attempt
from rt.tests.kernel_table import KERNELS
from rt.tests.runner import NativeLibrary

SECONDS = 60
NUMBERS = (
    *range(-3, 10), 17, 63, 64, 65, 1000, 2**15, 2**20, 2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**61, 2**62, 2**63 - 1,
    -(2**31), -(2**62), -(2**63),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0.0, -1e300, 1e300, {"float": "nan"}, {"float": "inf"}, "", "n", [], {}, [0], [-1], [1, 1], [2**62] * 2,
    {"dim": "n"}, {"dim": "n-9"}, {"dim": "n*n*n*n*n*n"}, {"dim": "n//0"}, "ij,jk->ik", "...", ".", "a" * 70 + "->",
)  # fmt: skip


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container inside a JSON value with each of the container's keys."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        yield data, key
        yield from places(value)


def change(document: Any, rng: random.Random) -> None:
    """Change a place of a document, more often than not an attribute or a size."""
    nodes = [node for function in document["functions"] for node in function["nodes"]]
    parts = [part for node in nodes for part in (node["attrs"], node["outputs"])]
    parts += [function["inputs"] for function in document["functions"]]
    found = list(places(rng.choice([*parts, parts]) if rng.random() < 0.7 else document))
    if not found:
        return
    container, key = rng.choice(found)
    value = container[key]
    kind = rng.random()
    if kind < 0.15 and isinstance(container, list):
        container.insert(key, copy.deepcopy(value))
    elif kind < 0.25:
        del container[key]
    elif key == "op" or (kind < 0.3 and isinstance(value, str)):
        container[key] = rng.choice(list(KERNELS))
    elif key == "dtype":
        container[key] = rng.choice([*all_dtypes(), "complex64", "complex128"])
    elif isinstance(value, int) and kind < 0.9:
        container[key] = rng.choice(NUMBERS) if rng.random() < 0.7 else value + rng.choice((-1, 1))
    elif kind < 0.95:
        container[key] = copy.deepcopy(rng.choice((*VALUES, rng.choice(NUMBERS))))
    else:
        other, name = rng.choice(list(places(document)))
        container[key] = copy.deepcopy(other[name])


def mutant(content: bytes, rng: random.Random) -> bytes:
    """Return an artifact with a changed document."""
    members = taken_apart(content)
    document = json.loads(members["modules/0/payload"])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        with contextlib.suppress(LookupError, TypeError, AttributeError):  # an earlier change has broken the form
            change(document, rng)
    return packed({**members, "modules/0/payload": json.dumps(document).encode()})


def main(library: str, folder: str, seed: str, first: str, last: str) -> None:
    """Try mutants from ``first`` up to ``last``."""
    faulthandler.enable()
    native = NativeLibrary(Path(library))
    corpus = [path.read_bytes() for path in sorted(Path(folder).glob("*.byoc"))]
    path = Path(folder) / f"mutant-{first}"
    if not hasattr(ctypes.CDLL(None), "__asan_init"):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        limit = pages * resource.getpagesize() + (1 << 31)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    np.seterr(all="ignore")
    for index in range(int(first), int(last)):
        rng = random.Random(f"{seed} {index}")
        path.write_bytes(mutant(corpus[index % len(corpus)], rng))
        print(f"begin {index}", flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        outcome = attempt(native, path)
        faulthandler.cancel_dump_traceback_later()
        print(f"end {index} {outcome}", flush=True)
    path.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
