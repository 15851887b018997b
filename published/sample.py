"""Makes the sample artifact of a release: one region of each backend, and an op on the host.

Run it with the packages of that release: ``python published/sample.py published/0.1.0/sample.byoc``.
"""

from __future__ import annotations

import sys

import byoc_core
from byoc_core import script as R

MODULE = R.parse("""
@R.function
def main(a: R.Tensor((2, 3), "float32"), b: R.Tensor((2, 3), "float32")):
    total = R.add(a, b)
    positive = R.nn.relu(total)
    sorted = R.sort(positive)
    return sorted
""")
"""Gives, row by row, the positive part of ``a + b``, sorted."""


def main() -> None:
    """Compiles the module for any machine of this processor family, and writes it where the command line says."""
    options = {"ccompiler": {"march": "generic"}}
    executable = byoc_core.build(MODULE, ["examplejson", "ccompiler"], options=options)
    taken = {row["name"] for row in executable.report_data["backends"] if row["ops"]}
    if taken != {"examplejson", "ccompiler", "host"}:
        raise SystemExit(f"each of them should take something, not only {sorted(taken)}")
    executable.save(sys.argv[1])


if __name__ == "__main__":
    main()
