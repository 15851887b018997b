"""``byoc new-backend``, called as a user does."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.cli.conftest import RunByoc

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

NEXT_STEPS = """\
Wrote 13 files into dsp. Next:

  cd dsp
  pip install -e ".[test]"                byoc finds the package by entry points
  pytest                                  the unchanged package passes the conformance kit
  byoc lint-backend mydsp --compile       finds faults not covered by tests

Then change src/byoc_mydsp/codegen.py first; README.md describes each file.
"""


def test_it_says_what_to_do_next(byoc: RunByoc) -> None:
    done = byoc("new-backend", "mydsp", "--kind", "csource", "-o", "dsp")
    assert (done.code, done.out, done.err) == (0, NEXT_STEPS, "")
    assert Path("dsp/src/byoc_mydsp/codegen.py").is_file()


def test_the_folder_is_called_after_the_package(byoc: RunByoc) -> None:
    assert byoc("new-backend", "mynpu").code == 0
    assert Path("byoc-mynpu/src/byoc_mynpu/engine.py").is_file()
    again = byoc("new-backend", "mynpu")
    assert (again.code, again.out) == (1, "")
    assert again.err == (
        "error: folder `byoc-mynpu`: holds files already. Name another folder with --output; nothing is overwritten.\n"
    )


def test_a_kind_that_does_not_exist_is_wrong_usage(byoc: RunByoc) -> None:
    done = byoc("new-backend", "mynpu", "--kind", "bytecode")
    assert done.code == 2
    assert "'bytecode' is not one of 'graph', 'engine', 'csource', 'lowering'" in " ".join(
        done.err.replace("│", " ").split()
    )
    assert not Path("byoc-mynpu").exists()
