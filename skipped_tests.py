"""Reasons of skipped tests: the kind of each reason, and the presence of the missing part on this machine.

``conftest.py`` calls this module at the end of a run of pytest; ``sessions/skips.py`` prints the counts of all runs.
A reason without a rule is an error, as is a skip although nothing is missing: a test run nowhere proves nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import machine_parts

__all__ = ["FOLDER", "KINDS", "NOX_KINDS", "Rule", "Skip", "find_faults", "read_counts", "show_counts", "write_counts"]

FOLDER = "BYOC_SKIPS"
"""The environment variable with the folder of the counts; if set, a run with a faulty skip fails."""
KINDS = ("hardware", "library", "compiler", "system", "design")
NOX_KINDS = {"interpreter": "sessions without an interpreter", "wheel": "packages without a wheel"}
"""The parts left out by nox, by the kind of the missing part."""


@dataclass(frozen=True)
class Rule:
    """A rule for reasons of skips.

    Attributes:
        kind: the kind of the missing part, in ``KINDS`` or ``NOX_KINDS``; ``"design"`` if nothing is missing, because
            the test belongs to another run.
        pattern: a pattern of the reasons.
        is_present: returns, for the match, whether this machine or this environment has the missing part.
    """

    kind: str
    pattern: str
    is_present: machine_parts.Question


@dataclass(frozen=True, order=True)
class Skip:
    """The skips with a common reason in a run."""

    session: str
    kind: str
    reason: str
    count: int


_LINUX = machine_parts.has_system("linux")
_POSIX = machine_parts.has_system("linux", "darwin")

RULES = (
    # Tests of another run of nox, or of another environment.
    Rule(
        "design",
        r"nox tests the installed wheel|the source tree",
        machine_parts.has_environment("BYOC_TEST_INSTALLED", "1"),
    ),
    Rule("design", r"`nox -s versions` says", machine_parts.has_environment("BYOC_WHEELS")),
    Rule("design", r"`nox -s thorough` makes", machine_parts.has_environment("BYOC_EXAMPLES", "thorough")),
    Rule("design", r"switches the C extension off", machine_parts.has_environment("BYOC_NATIVE", "0", is_negated=True)),
    Rule("design", r"sanitizers put fences", machine_parts.has_sanitizers_off),
    Rule("design", r"the report is GCC's|those of GCC's assembler", machine_parts.has_gcc_for_c),
    Rule("design", r"no backend (\S+) here", machine_parts.has_distribution),
    Rule("design", r"got empty parameter set for \(backend", machine_parts.has_plugins),
    Rule("design", r"^L\d-\S+: declined: ", machine_parts.is_by_design),
    # Sessions and packages left out by nox.
    Rule("interpreter", r"^Python interpreter (\S+) not found", machine_parts.has_interpreter),
    Rule("wheel", r" has no wheel for Python ", machine_parts.is_by_design),
    # Hardware.
    Rule(
        "hardware",
        r"oneDNN has no instructions for (bfloat16|float16|bytes) here",
        machine_parts.has_instructions_of_onednn,
    ),
    Rule("hardware", r"oneDNN has no (AVX-512) here", machine_parts.has_instructions_of_onednn),
    Rule("hardware", r"this machine has no tiles", machine_parts.has_tiles),
    Rule("hardware", r"this machine does not run ([\w, ]+)$", machine_parts.has_instructions),
    Rule("hardware", r"CPU features missing on this machine: ([\w, ]+?)(\.|$)", machine_parts.has_instructions),
    Rule("hardware", r"for x86-64 Linux", machine_parts.has_system("linux", machine="x86_64")),
    Rule("hardware", r"one processor", machine_parts.has_processors),
    Rule("hardware", r"no CUDA device", machine_parts.has_cuda_device),
    # Libraries.
    Rule("library", r"could not import '([\w.]+)'", machine_parts.has_module),
    Rule("library", r"libgomp|there is nothing to change", machine_parts.has_library("gomp")),
    Rule("library", r"no OpenMP", machine_parts.has_openmp),
    Rule("library", r"oneDNN|onednn|byoc-dnnl", machine_parts.has_onednn),
    Rule("library", r"no OpenCL device", machine_parts.has_opencl_processor),
    Rule("library", r"no BLAS|no library `scipy-openblas`", machine_parts.has_distribution_of_openblas),
    # Compilers.
    Rule("compiler", r"no C compiler|^C compiler", machine_parts.has_compiler),
    Rule("compiler", r"no NVRTC", machine_parts.has_nvrtc),
    Rule("compiler", r"^(\S+) is not installed", machine_parts.has_program),
    Rule("compiler", r"this gcc knows no (\S+)", machine_parts.has_flag_of_gcc),
    Rule("compiler", r"gcc has no AddressSanitizer", machine_parts.has_sanitizers_of_gcc),
    Rule("compiler", r"C extension|the extension is not built", machine_parts.has_c_extension),
    # The system.
    Rule("system", r"without fork|no fork|^forks$", machine_parts.FORK),
    Rule("system", r"without affinities", machine_parts.AFFINITY),
    Rule("system", r"no named pipes", machine_parts.PIPES),
    Rule("system", r"without this timer", machine_parts.TIMER),
    Rule("system", r"takes no pages back", machine_parts.PAGES),
    Rule("system", r"no memory may be locked", machine_parts.has_lockable_memory),
    Rule("system", r"this user may read everything", machine_parts.has_plain_user),
    Rule("system", r"list a process's mappings|no system library", machine_parts.has_file("/proc/self/maps", "/libm")),
    Rule("system", r"the system does not tell", machine_parts.has_file("/proc/self/statm")),
    Rule("system", r"Linux|/proc|mathematics library|in which nobody may write", _LINUX),
    Rule("system", r"POSIX|a file that is mapped|sends SIGINT", _POSIX),
)
"""The rules; the first rule with a matching pattern applies."""


def _rule_of(reason: str, rules: Iterable[Rule]) -> tuple[Rule, re.Match[str]] | None:
    for rule in rules:
        match = re.search(rule.pattern, reason)
        if match is not None:
            return rule, match
    return None


def find_faults(reasons: Iterable[str], rules: Iterable[Rule] = RULES) -> list[str]:
    """Return a line for each reason without a rule, or with a missing part present on this machine."""
    faults = []
    table = tuple(rules)
    for reason in sorted(set(reasons)):
        found = _rule_of(reason, table)
        if found is None:
            faults.append(f"skipped for a reason without a rule in skipped_tests.py: {reason}")
        elif found[0].is_present(found[1]):
            faults.append(f"skipped although nothing is missing ({found[0].kind}): {reason}")
    return faults


def write_counts(folder: Path, session: str, reasons: Iterable[str], part: str = "tests") -> None:
    """Write the count of each reason in a run, or in another part of a session, into a folder."""
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
    """Return a table of skips for people; skips by design only as a sum; omissions of nox come last."""
    listed = list(skips)
    tests = [skip for skip in listed if skip.kind not in NOX_KINDS]
    lines = ["skipped tests: " + (", ".join(f"{count} for {kind}" for kind, count in _totals(tests)) or "none")]
    lines += [f"  {s.session:24} {s.kind:11} {s.count:5}  {s.reason}" for s in tests if s.kind != "design"]
    for kind, heading in NOX_KINDS.items():
        rows = [skip for skip in listed if skip.kind == kind]
        lines += [f"{heading}: {sum(row.count for row in rows)}"] if rows else []
        lines += [f"  {s.session:24} {s.kind:11} {s.count:5}  {s.reason}" for s in rows]
    return "\n".join(lines)


def _totals(skips: Iterable[Skip]) -> list[tuple[str, int]]:
    totals = Counter[str]()
    for skip in skips:
        totals[skip.kind] += skip.count
    return sorted(totals.items())
