"""Run ONNX's backend test suite on the host and on backends, and write the ledger.

::

    python -m core.tests.onnx_suite                                  # the host alone
    python -m core.tests.onnx_suite --on ccompiler --on dnnl --on ccompiler,dnnl --ledger docs
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from core.tests.onnx_suite.exceptions import reason_of
from core.tests.onnx_suite.ledger import write_ledger
from core.tests.onnx_suite.running import CaseResult, list_cases, run_cases


def main() -> int:
    """Return 0 if every case passes or is listed as an exception."""
    parser = argparse.ArgumentParser(prog="python -m core.tests.onnx_suite", description=__doc__)
    parser.add_argument(
        "--on", action="append", default=[], metavar="BACKENDS", help="run on these backends too, joined by commas"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="run the cases with these names only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="the number of processes")
    parser.add_argument("--ledger", type=Path, help="write the ledger into this folder")
    arguments = parser.parse_args()
    cases = [case for case in list_cases() if re.search(arguments.only, case)]
    runs: dict[str, list[CaseResult]] = {}
    is_right = True
    for names in ("", *arguments.on):
        results = []
        for result in run_cases(cases, [name for name in names.split(",") if name], arguments.jobs):
            results.append(result)
            if result.outcome == "failed" and reason_of(result.case) is None:
                is_right = False
                print(f"{names or 'host'}: {result.case}: {result.text[:500]}", flush=True)
        passed = sum(result.outcome == "passed" for result in results)
        print(f"{names or 'host'}: {passed} of {len(results)} cases passed", flush=True)
        runs[names or "host"] = results
    if arguments.ledger is not None:
        write_ledger(arguments.ledger, runs)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
