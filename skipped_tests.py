"""Why tests are skipped: a kind for each reason, and whether the machine has what a test lacked.

``conftest.py`` asks this module when a run of pytest ends; ``noxfile.py`` prints the counts of all runs. A reason
without a kind is an error, as is a skip for want of what is there: a test that nobody runs proves nothing.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

__all__ = ["FOLDER", "KINDS", "Rule", "Skip", "find_faults", "read_counts", "show_counts", "write_counts"]

FOLDER = "BYOC_SKIPS"
"""The environment variable that names the folder of the counts; set, it makes a run fail where a skip is at fault."""
KINDS = ("hardware", "library", "compiler", "system", "design")

_REQUEST_XCOMP_PERMISSION, _TILE_DATA, _ARCH_PRCTL = 0x1023, 18, 158


@dataclass(frozen=True)
class Rule:
    """One kind of skip.

    Attributes:
        kind: what is missing: one of ``KINDS``; of ``"design"`` nothing is, the test belongs to another run.
        pattern: what is found in the reasons.
        is_present: asked with the match whether this machine, or this environment, has what is missing.
    """

    kind: str
    pattern: str
    is_present: Callable[[re.Match[str]], bool] = lambda _: False


@dataclass(frozen=True, order=True)
class Skip:
    """Skips of one reason in one run."""

    session: str
    kind: str
    reason: str
    count: int


@cache
def _flags() -> frozenset[str]:
    """Return the instruction sets of the processor, by their names in Linux."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return frozenset()
    return frozenset(word for line in text.splitlines() if line.startswith("flags") for word in line.split())


def _has(*flags: str) -> bool:
    return set(flags) <= _flags() and "ONEDNN_MAX_CPU_ISA" not in os.environ


_INSTRUCTIONS = {
    "bfloat16": ("avx512_bf16",),
    "float16": ("avx512_fp16",),
    "bytes": ("avx512_vnni",),
    "it": ("avx512_bf16", "avx512_fp16"),
}


_MACHINES = {"x86-64-v3": ("avx2", "fma"), "cooperlake": ("avx512_bf16", "avx512_vnni")}


def _has_tiles(_: re.Match[str]) -> bool:
    """Return whether the processor has tiles and the system lets this process use them."""
    if not _has("amx_bf16", "amx_tile"):
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_XCOMP_PERMISSION, _TILE_DATA) == 0)


def _has_processors(_: re.Match[str]) -> bool:
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1


def _has_compiler(_: re.Match[str]) -> bool:
    return any(map(shutil.which, ("cc", "gcc", "clang"))) and "BYOC_CC" not in os.environ


RULES = (
    Rule("design", r"nox tests the installed wheel|the source tree is under test|`nox -s versions` says"),
    Rule("design", r"no backend \S+ here|the report is GCC's|sanitizers put fences|switches the C extension off"),
    Rule("design", r"got empty parameter set for \(backend|^L\d-\S+: declined: "),
    Rule("hardware", r"oneDNN has no instructions for (\w+) here", lambda m: _has(*_INSTRUCTIONS.get(m[1], ("none",)))),
    Rule("hardware", r"oneDNN has no AVX-512", lambda _: _has("avx512f", "avx512bw", "avx512vl", "avx512dq")),
    Rule("hardware", r"this machine has no tiles", _has_tiles),
    Rule("hardware", r"this machine has no AVX2", lambda _: _has("avx2", "fma")),
    Rule("hardware", r"this machine does not run ([\w-]+)", lambda m: _has(*_MACHINES.get(m[1], ("none",)))),
    Rule("hardware", r"x86-64 Linux"),
    Rule("hardware", r"one processor", _has_processors),
    Rule("library", r"could not import '([\w.]+)'", lambda m: find_spec(m[1].partition(".")[0]) is not None),
    Rule("library", r"libgomp", lambda _: ctypes.util.find_library("gomp") is not None),
    Rule("compiler", r"no C compiler|C compiler", _has_compiler),
    Rule("compiler", r"^(\S+) is not installed", lambda m: shutil.which(m[1]) is not None),
    Rule("compiler", r"C extension|the extension is not built"),
    Rule("library", r"OpenMP|oneDNN|onednn|byoc-dnnl"),
    Rule("system", r"\bsystem\b|POSIX|Linux|/proc|^forks$|named pipes|SIGINT|permissions|a file that is mapped"),
    Rule("system", r"numpy 1 |no memory may be locked|there is nothing to change|a folder in which nobody may write"),
    Rule("system", r"this user may read everything"),
)
"""The first rule whose pattern is found is the one."""


def _rule_of(reason: str, rules: Iterable[Rule]) -> tuple[Rule, re.Match[str]] | None:
    for rule in rules:
        match = re.search(rule.pattern, reason)
        if match is not None:
            return rule, match
    return None


def find_faults(reasons: Iterable[str], rules: Iterable[Rule] = RULES) -> list[str]:
    """Return a line for each reason that has no kind, or for want of what is there."""
    faults = []
    table = tuple(rules)
    for reason in sorted(set(reasons)):
        found = _rule_of(reason, table)
        if found is None:
            faults.append(f"skipped for a reason of no kind (see skipped_tests.py): {reason}")
        elif found[0].is_present(found[1]):
            faults.append(f"skipped for want of {found[0].kind} that this machine has: {reason}")
    return faults


def write_counts(folder: Path, session: str, reasons: Iterable[str]) -> None:
    """Write how often each reason was given in a run into a folder."""
    counts = Counter(reasons)
    rows = []
    for reason, count in sorted(counts.items()):
        found = _rule_of(reason, RULES)
        rows.append([session, "unknown" if found is None else found[0].kind, reason, count])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{session}-{os.getpid()}.json").write_text(json.dumps(rows), "utf-8")


def read_counts(folder: Path) -> list[Skip]:
    """Return the counts of all runs, by session, kind and reason."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for file in sorted(folder.glob("*.json")):
        for session, kind, reason, count in json.loads(file.read_text("utf-8")):
            counts[session, kind, reason] += count
    return sorted(Skip(*key, count) for key, count in counts.items())


def show_counts(skips: Iterable[Skip]) -> str:
    """Return a table of skips for people; skips by design only as a sum."""
    listed = list(skips)
    if not listed:
        return "skipped tests: none"
    totals = Counter[str]()
    for skip in listed:
        totals[skip.kind] += skip.count
    lines = ["skipped tests: " + ", ".join(f"{count} for {kind}" for kind, count in sorted(totals.items()))]
    lines += [f"  {s.session:24} {s.kind:10} {s.count:5}  {s.reason}" for s in listed if s.kind != "design"]
    return "\n".join(lines)
