"""``byoc compile --print-after`` and ``--timing``."""

from __future__ import annotations

from pathlib import Path

import pytest
from byoc_core.driver import pass_names
from byoc_core.errors import OptionsError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.transform import PassRun, Sequential, default_passes

from core.tests.cli.conftest import RunByoc

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

NAMES = list(pass_names([]))


def _printed(err: str) -> dict[str, str]:
    parts = [part.partition("\n") for part in err.split("# after ")[1:]]
    return {name: text for name, _, text in parts}


def test_the_module_is_printed_after_the_passes_asked_for(byoc: RunByoc, model: Path) -> None:
    done = byoc("compile", model, "-o", "m.byoc", "--print-after", "RemoveDeadCode", "--print-after", "FoldConstants")
    assert done.code == 0
    assert Path("m.byoc").exists()
    printed = _printed(done.err)
    assert list(printed) == ["FoldConstants", "RemoveDeadCode"]
    runs: list[PassRun] = []
    Sequential(default_passes(), on_pass=runs.append)(from_onnx(model))
    wanted = {run.name: f"{run.module}\n" for run in runs}
    assert printed == {name: wanted[name] for name in printed}


def test_all_passes_in_order(byoc: RunByoc, model: Path) -> None:
    done = byoc("compile", model, "-o", "m.byoc", "--print-after", "all", "-q")
    assert (done.code, done.out) == (0, "")
    assert list(_printed(done.err)) == NAMES


def test_timing_is_a_table_of_all_passes(byoc: RunByoc, model: Path) -> None:
    done = byoc("compile", model, "-o", "m.byoc", "--timing")
    assert done.code == 0
    rows = [line.split() for line in done.err.splitlines()]
    assert rows[0] == ["passes"]
    assert ["pass", "ms", "share"] in rows
    times = {row[0]: float(row[1]) for row in rows if len(row) == 3 and row[2].endswith("%")}
    assert list(times) == [*NAMES, "total"]
    # Each of the summands is rounded to 0.01, and so is the total.
    assert abs(times.pop("total") - sum(times.values())) <= 0.005 * (len(NAMES) + 1) + 1e-9
    assert "# after" not in done.err


def test_an_unknown_pass_is_refused_before_anything_is_done(byoc: RunByoc, model: Path) -> None:
    done = byoc("compile", model, "-o", "m.byoc", "--print-after", "Simplifi")
    known = ", ".join([*NAMES, "all"])
    error = OptionsError("--print-after", "unknown pass `Simplifi`", expected=known, hint="Did you mean 'Simplify'?")
    assert (done.code, done.out, done.err) == (1, "", f"error: {error}\n")
    assert not Path("m.byoc").exists()
    assert str(error) == (f"--print-after: unknown pass `Simplifi`; expected {known}. Did you mean 'Simplify'?")
