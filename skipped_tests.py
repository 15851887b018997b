"""Why tests are skipped: a kind for each reason, and whether the machine has what a test lacked.

``conftest.py`` asks this module when a run of pytest ends; ``sessions/skips.py`` prints the counts of all runs.
A reason without a kind is an error, as is a skip for want of what is there: a test that nobody runs proves nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import machine_parts as here

__all__ = ["FOLDER", "KINDS", "OF_NOX", "Rule", "Skip", "find_faults", "read_counts", "show_counts", "write_counts"]

FOLDER = "BYOC_SKIPS"
"""The environment variable that names the folder of the counts; set, it makes a run fail where a skip is at fault."""
KINDS = ("hardware", "library", "compiler", "system", "design")
OF_NOX = {"interpreter": "sessions without an interpreter", "wheel": "packages without a wheel"}
"""What nox leaves out by itself, by the kind of what is missing."""


@dataclass(frozen=True)
class Rule:
    """One kind of skip.

    Attributes:
        kind: what is missing: one of ``KINDS`` or ``OF_NOX``; of ``"design"`` nothing is, the test belongs to another
            run.
        pattern: what is found in the reasons.
        is_present: the question, asked with the match, whether this machine or this environment has what is missing.
    """

    kind: str
    pattern: str
    is_present: here.Question


@dataclass(frozen=True, order=True)
class Skip:
    """Skips of one reason in one run."""

    session: str
    kind: str
    reason: str
    count: int


_LINUX = here.has_system("linux")
_POSIX = here.has_system("linux", "darwin")

RULES = (
    # Tests that belong to another run of nox, or to another environment.
    Rule("design", r"nox tests the installed wheel|the source tree", here.has_environment("BYOC_TEST_INSTALLED", "1")),
    Rule("design", r"`nox -s versions` says", here.has_environment("BYOC_WHEELS")),
    Rule("design", r"`nox -s thorough` makes", here.has_environment("BYOC_EXAMPLES", "thorough")),
    Rule("design", r"switches the C extension off", here.has_environment("BYOC_NATIVE", "0", but=True)),
    Rule("design", r"sanitizers put fences", here.has_sanitizers_off),
    Rule("design", r"the report is GCC's|those of GCC's assembler", here.has_gcc_for_c),
    Rule("design", r"no backend (\S+) here", here.has_distribution),
    Rule("design", r"got empty parameter set for \(backend", here.has_plugins),
    Rule("design", r"^L\d-\S+: declined: ", here.is_by_design),
    # What nox leaves out.
    Rule("interpreter", r"^Python interpreter (\S+) not found", here.has_interpreter),
    Rule("wheel", r" has no wheel for Python ", here.is_by_design),
    # Hardware.
    Rule("hardware", r"oneDNN has no instructions for (bfloat16|float16|bytes) here", here.has_instructions_of_onednn),
    Rule("hardware", r"oneDNN has no (AVX-512) here", here.has_instructions_of_onednn),
    Rule("hardware", r"this machine has no tiles", here.has_tiles),
    Rule("hardware", r"this machine does not run ([\w, ]+)$", here.has_instructions),
    Rule("hardware", r"CPU features that this machine lacks: ([\w, ]+?)(\.|$)", here.has_instructions),
    Rule("hardware", r"for x86-64 Linux", here.has_system("linux", machine="x86_64")),
    Rule("hardware", r"one processor", here.has_processors),
    Rule("hardware", r"no CUDA device", here.has_cuda_device),
    # Libraries.
    Rule("library", r"could not import '([\w.]+)'", here.has_module),
    Rule("library", r"libgomp|there is nothing to change", here.has_library("gomp")),
    Rule("library", r"no OpenMP", here.has_openmp),
    Rule("library", r"oneDNN|onednn|byoc-dnnl", here.has_onednn),
    # Compilers.
    Rule("compiler", r"no C compiler|^C compiler", here.has_compiler),
    Rule("compiler", r"no NVRTC", here.has_nvrtc),
    Rule("compiler", r"^(\S+) is not installed", here.has_program),
    Rule("compiler", r"this gcc knows no (\S+)", here.has_flag_of_gcc),
    Rule("compiler", r"C extension|the extension is not built", here.has_c_extension),
    # The system.
    Rule("system", r"without fork|no fork|^forks$", here.FORK),
    Rule("system", r"without affinities", here.AFFINITY),
    Rule("system", r"no named pipes", here.PIPES),
    Rule("system", r"without this timer", here.TIMER),
    Rule("system", r"takes no pages back", here.PAGES),
    Rule("system", r"no memory may be locked", here.has_lockable_memory),
    Rule("system", r"this user may read everything", here.has_plain_user),
    Rule("system", r"list a process's mappings|no system library", here.has_file("/proc/self/maps", "/libm")),
    Rule("system", r"the system does not tell", here.has_file("/proc/self/statm")),
    Rule("system", r"Linux|/proc|mathematics library|in which nobody may write", _LINUX),
    Rule("system", r"POSIX|a file that is mapped|sends SIGINT", _POSIX),
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


def write_counts(folder: Path, session: str, reasons: Iterable[str], part: str = "tests") -> None:
    """Write how often each reason was given in a run, or in another part of a session, into a folder."""
    counts = Counter(reasons)
    rows = []
    for reason, count in sorted(counts.items()):
        found = _rule_of(reason, RULES)
        rows.append([session, "unknown" if found is None else found[0].kind, reason, count])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{session}-{part}-{os.getpid()}-{len(list(folder.iterdir()))}.json").write_text(
        json.dumps(rows), "utf-8"
    )


def read_counts(folder: Path) -> list[Skip]:
    """Return the counts of all runs, by session, kind and reason."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for file in sorted(folder.glob("*.json")):
        for session, kind, reason, count in json.loads(file.read_text("utf-8")):
            counts[session, kind, reason] += count
    return sorted(Skip(*key, count) for key, count in counts.items())


def show_counts(skips: Iterable[Skip]) -> str:
    """Return a table of skips for people; skips by design only as a sum; what nox left out by itself comes last."""
    listed = list(skips)
    tests = [skip for skip in listed if skip.kind not in OF_NOX]
    lines = ["skipped tests: " + (", ".join(f"{count} for {kind}" for kind, count in _totals(tests)) or "none")]
    lines += [f"  {s.session:24} {s.kind:11} {s.count:5}  {s.reason}" for s in tests if s.kind != "design"]
    for kind, heading in OF_NOX.items():
        rows = [skip for skip in listed if skip.kind == kind]
        lines += [f"{heading}: {sum(row.count for row in rows)}"] if rows else []
        lines += [f"  {s.session:24} {s.kind:11} {s.count:5}  {s.reason}" for s in rows]
    return "\n".join(lines)


def _totals(skips: Iterable[Skip]) -> list[tuple[str, int]]:
    totals = Counter[str]()
    for skip in skips:
        totals[skip.kind] += skip.count
    return sorted(totals.items())
