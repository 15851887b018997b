"""Build and check a release: the program of ``nox -s release``.

::

    python -m release.run             # everything; fails while an obstacle forbids the upload
    python -m release.run --rehearse  # the same, but obstacles to the upload are only listed

The files for the index lie in ``out/release/files``, the results of the checks in ``out/release/report.txt``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from release.audits import audit_files
from release.building import Builder
from release.commands import ReleaseError
from release.emulation import check_aarch64
from release.installing import check_choices, check_installs
from release.project import ROOT
from release.readiness import find_obstacles

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m release.run", description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true", help="list the obstacles to the upload without failing")
    parser.add_argument("--check-only", action="store_true", help="check the files of the last build")
    options = parser.parse_args(arguments)
    files, scratch = ROOT / "out" / "release" / "files", ROOT / "out" / "release" / "scratch"
    checks: tuple[tuple[str, Callable[[], list[str]]], ...] = (
        ("files", lambda: audit_files(files, scratch)),
        ("choices", lambda: check_choices(files, scratch)),
        ("installs", lambda: check_installs(files, scratch)),
        ("AArch64", lambda: check_aarch64(files, scratch)),
    )
    lines, num_failures = [], 0
    start = time.monotonic()
    try:
        if not options.check_only:
            Builder(files, scratch).build_all()
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    # One check that fails does not hide the next.
    for name, check in checks:
        try:
            found = check()
        except ReleaseError as error:
            num_failures += 1
            found = [f"FAILED: {error}"]
        for line in found:
            lines.append(f"{name}: {line}")
            print(lines[-1], flush=True)
    for obstacle in find_obstacles():
        num_failures += not options.rehearse
        lines.append(f"not to be uploaded: {obstacle}")
        print(lines[-1], flush=True)
    listed = [f"{path.name} ({path.stat().st_size:,} bytes)" for path in sorted(files.iterdir())]
    (files.parent / "report.txt").write_text("\n".join([*listed, "", *lines, ""]), "utf-8")
    verdict = f"{num_failures} failed" if num_failures else "all passed"
    print(f"{len(listed)} files, {len(lines)} lines, {verdict}, {time.monotonic() - start:.0f} s: see {files.parent}")
    return 1 if num_failures else 0


if __name__ == "__main__":
    sys.exit(main())
