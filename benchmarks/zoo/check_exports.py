"""Run models as users export them, and compare the results with ONNX Runtime.

    python -m benchmarks.zoo.check_exports                                  # every export, on the host and backends
    python -m benchmarks.zoo.check_exports whisper --on ccompiler           # exports by a part of the name
    python -m benchmarks.zoo.check_exports --ledger docs                    # also docs/exported-models.md
    python -m benchmarks.zoo.check_exports detr --keep /tmp/models          # keep the ONNX files

Each model is exported, imported, built once, saved, loaded, and run at several sizes of its dynamic dimensions, by the
rule of ``benchmarks.zoo.accuracy``. A line for each model and choice of backends shows the largest errors over all
sizes. Each model has a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from byoc_core.errors import ByocError

from benchmarks.zoo.export_check import CheckedExport, ExportCheck
from benchmarks.zoo.export_ledger import Line, write_ledger
from benchmarks.zoo.exports import list_exports

__all__ = ["main"]

ON = ("", "ccompiler", "dnnl", "dnnl,ccompiler")
"""The choices of backends by default; nothing stands for the host alone."""


def check_all(name: str, choices: Sequence[str], folder: str) -> list[Line]:
    """Return the outcomes of an export on choices of backends."""
    path = Path(folder) / name.replace("/", "-")
    path.mkdir(parents=True, exist_ok=True)
    try:
        check = ExportCheck(list_exports()[name], path)
    except Exception as error:  # noqa: BLE001 - an exporter raises anything
        traceback.print_exc()
        return [Line(name, choices[0], 0.0, f"export: {type(error).__name__}: {error}".splitlines()[0])]
    lines = []
    for choice in choices:
        start = time.perf_counter()
        outcome: CheckedExport | str
        try:
            outcome = check.check([backend for backend in choice.split(",") if backend])
        except ByocError as error:
            outcome = f"{type(error).__name__}: {error}"
        lines.append(Line(name, choice, time.perf_counter() - start, outcome))
    return lines


def _check_in_process(name: str, choices: Sequence[str], folder: str) -> list[Line]:
    """Return the outcomes of an export, checked in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(check_all, name, choices, folder).result()
        except BrokenProcessPool:
            return [Line(name, choices[0], 0.0, "the process ended")]


def main() -> None:
    """Read the command line, print a line for each export and choice of backends, and fail if a result is wrong."""
    doc = __doc__ or ""
    parser = argparse.ArgumentParser(
        description=doc.splitlines()[0],
        epilog=doc.split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help="a part of the names of exports; all by default")
    parser.add_argument(
        "--on", action="append", metavar="BACKENDS", help="backends, joined by commas; `host` for none; repeatable"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the ONNX files stay")
    parser.add_argument("--ledger", type=Path, metavar="FOLDER", help="where to write exported-models.md")
    parser.add_argument("--list", action="store_true", help="print the names of the exports, and stop")
    arguments = parser.parse_args()
    exports = list_exports()
    names = [name for name in exports if not arguments.names or any(part in name for part in arguments.names)]
    if not names:
        parser.error(f"no export is named like {' '.join(arguments.names)}; `--list` prints the names")
    if arguments.list:
        print("\n".join(names))
        return
    choices = ["" if choice == "host" else choice for choice in arguments.on or ON]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for line in _check_in_process(name, choices, str(arguments.keep or folder)):
                print(line, flush=True)
                lines.append(line)
            if arguments.ledger:  # after each export: an interrupted run loses nothing
                write_ledger(arguments.ledger, exports, lines)
    if not all(line.is_right for line in lines):
        sys.exit(f"{sum(not line.is_right for line in lines)} of {len(lines)} lines are wrong")


if __name__ == "__main__":
    main()
