"""The ledger: a table of all cases, and a page with the counts and the exceptions."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from core.tests.onnx_suite.exceptions import reason_of
from core.tests.onnx_suite.running import CaseResult

__all__ = ["write_ledger"]

_TIERS = {
    "a": "a core op for each node",
    "b": "several core ops for a node",
    "c": "delegated by the host to the package `onnx`",
    "": "not compiled",
}


_INTRODUCTION = """\
This page is for users with the question whether an operator runs. Afterwards you know the outcome of byoc in the test
suite of the package `onnx` {version}: {count} cases, without models from the network. `nox -s onnx-suite` runs them by
`byoc_core.onnx_backend`, on the host and on backends, and writes this page and the table of all cases,
`onnx-suite.csv`.
"""


def write_ledger(folder: Path, runs: Mapping[str, Sequence[CaseResult]]) -> None:
    """Write ``onnx-suite.csv`` and ``onnx-suite.md`` into a folder.

    Args:
        folder: the folder.
        runs: the results by the names of the backends; the host's first.
    """
    host = next(iter(runs.values()))
    with io.StringIO() as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", "tier", *runs, "exception"])
        for index, result in enumerate(host):
            cells = [_cell(run[index], name) for name, run in runs.items()]
            writer.writerow([result.case, result.tier, *cells, reason_of(result.case) or ""])
        (folder / "onnx-suite.csv").write_text(file.getvalue(), "utf-8")
    (folder / "onnx-suite.md").write_text(_page(runs), "utf-8")


def _cell(result: CaseResult, names: str) -> str:
    shares = [f"{name} {result.shares.get(name, 0):.0%}" for name in names.split(",") if name != "host"]
    return " ".join([result.outcome, *shares])


def _page(runs: Mapping[str, Sequence[CaseResult]]) -> str:
    host = next(iter(runs.values()))
    lines = [
        "# ONNX's test suite",
        "",
        *_INTRODUCTION.format(version=onnx.__version__, count=len(host)).splitlines(),
        "",
        "| backends | passed | skipped | failed | mean share of ops taken |",
        "|---|---|---|---|---|",
    ]
    for names, results in runs.items():
        outcomes = Counter(result.outcome for result in results)
        compiled = [result for result in results if result.tier]
        taken = sum(1 - result.shares.get("host", 0.0) for result in compiled) / max(len(compiled), 1)
        share = "" if names == "host" else f"{taken:.0%}"
        cells = [names.replace(",", ", "), *(str(outcomes[name]) for name in ("passed", "skipped", "failed")), share]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Tiers", "", "| tier | cases | meaning |", "|---|---|---|"]
    tiers = Counter(result.tier for result in host)
    lines += [f"| {tier} | {tiers[tier]} | {_TIERS[tier]} |" for tier in sorted(tiers)]
    lines += ["", "## Exceptions", "", "Cases that cannot pass, with the reason:", ""]
    lines += [
        f"- `{result.case}`: {reason}."
        for result in host
        if result.outcome != "passed" and (reason := reason_of(result.case)) is not None
    ]
    unexplained = [result.case for result in host if result.outcome != "passed" and reason_of(result.case) is None]
    lines += [f"- `{case}`: not explained." for case in unexplained]
    return "\n".join(lines) + "\n"
