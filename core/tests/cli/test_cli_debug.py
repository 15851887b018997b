"""``byoc debug``, seen by the user."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from core.tests.cli.conftest import RunByoc

pytestmark = pytest.mark.lowest

NOTHING_TO_COMPARE = (
    "error: debug: no backend claims a computing op, so nothing can be compared. `byoc explain` lists the reasons.\n"
)


@pytest.fixture
def faulty(byoc: RunByoc, install_faulty: Callable[[], str]) -> str:
    """The name of the faulty backend, installed for the commands and their child processes."""
    return install_faulty()


def test_nothing_diverges(byoc: RunByoc, faulty: str, model: Path) -> None:
    done = byoc("debug", model, "--dim", "n=3")
    assert (done.code, done.err) == (0, "")
    rows = [line.split() for line in done.out.splitlines()]
    (row,) = [row for row in rows if row[:1] == ["faulty_main_0"]]
    assert row[1:7] == ["faulty", "3:", "add,", "nn.relu,", "add", "1"]
    assert row[-1] == "right"
    assert "nothing diverges, with n=3\n" in done.out


def test_a_divergence_is_shown_saved_and_reproduced(byoc: RunByoc, faulty: str, model: Path, tmp_path: Path) -> None:
    arguments = ("debug", model, "--option", "faulty.fault=lane", "--option", "faulty.op=nn.relu", "--save", "out")
    done = byoc(*arguments)
    assert (done.code, done.err) == (1, "")
    assert "first and worst divergence: region `faulty_main_" in done.out
    assert "guilty: `nn.relu` (`" in done.out
    (script,) = Path("out").glob("*/repro.py")
    assert done.out.endswith(f"\nwrote {script}\n")
    monkeypatched_path = [str(tmp_path / "site"), *filter(None, sys.path)]
    code = (
        f"import runpy, sys; sys.path[:] = {monkeypatched_path!r}; runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (1, "")
    assert "wrong-values: output `" in again.stdout
    assert byoc(*arguments).code == 1, "an earlier reproducer is replaced"


def test_the_report_as_json(byoc: RunByoc, faulty: str, model: Path) -> None:
    done = byoc("debug", model, "--json", "--no-isolate", "--accumulate", "--option", "faulty.fault=raise")
    assert (done.code, done.err) == (1, "")
    report = json.loads(done.out)
    assert (report["right"], report["tested"], report["isolated"]) == (False, True, False)
    assert report["sizes"] == {"n": 1}
    assert report["saved"] == []
    assert {region["verdict"] for region in report["regions"]} == {"run-error"}
    assert report["first"]["findings"] == [{"code": "run-error", "text": "ValueError: no such kernel", "output": None}]
    assert [result["name"] for result in report["results"]] == ["y", "z"]
    right = byoc("debug", model, "--json")
    assert right.code == 0
    assert json.loads(right.out)["right"] is True


def test_a_crash_does_not_end_the_session(byoc: RunByoc, faulty: str, model: Path) -> None:
    done = byoc("debug", model, "--option", "faulty.fault=exit", "--option", "faulty.op=nn.relu")
    assert (done.code, done.err) == (1, "")
    assert "crash: the process ended with exit status 3\n" in done.out


def test_inputs_and_bounds_of_the_user(byoc: RunByoc, faulty: str, model: Path) -> None:
    np.savez("x.npz", x=np.zeros((2, 16), np.float32), m=np.zeros((2, 8), np.float32))
    fault = ("--option", "faulty.fault=half", "--option", "faulty.op=nn.relu")
    assert "with n" not in byoc("debug", model, "-i", "x.npz").out
    assert byoc("debug", model, *fault).code == 1
    assert byoc("debug", model, *fault, "--rtol", "1e-2").code == 0
    assert byoc("debug", model, *fault, "--factor", "1e6").code == 0


def test_where_nothing_can_be_tested(byoc: RunByoc, faulty: str, model: Path) -> None:
    done = byoc("debug", model, "--backend", "host")
    assert (done.code, done.out, done.err) == (1, "", NOTHING_TO_COMPARE)
    done = byoc("debug", model, "--option", "faulty.fault=refuse")
    assert done.code == 1
    assert "every region was refused, so nothing was tested" in done.out


def test_constraints_keep_the_suspect_away(byoc: RunByoc, faulty: str, model: Path) -> None:
    fault = ("--option", "faulty.fault=lane", "--option", "faulty.op=nn.relu", "--no-isolate")
    found = json.loads(byoc("debug", model, "--json", *fault).out)
    (guilt,) = [region["guilt"] for region in found["regions"] if region["guilt"] is not None]
    (value,) = guilt["values"]
    for constraint in (("--force", f"{value}=host"), ("--allow", "faulty=add,nn.dense")):
        done = byoc("debug", model, "--json", *fault, *constraint)
        assert (done.code, done.err) == (0, "")
        report = json.loads(done.out)
        assert (report["right"], report["tested"]) == (True, True)
        assert not any("nn.relu" in op for region in report["regions"] for op in region["ops"])
    done = byoc("debug", model, *fault, "--min-ops", "50")
    assert (done.code, done.err) == (1, NOTHING_TO_COMPARE)


def test_json_has_no_nan(byoc: RunByoc, faulty: str, model: Path) -> None:
    np.savez("x.npz", x=np.full((2, 16), np.nan, np.float32), m=np.zeros((2, 8), np.float32))
    for fault in ("none", "nan", "half"):
        done = byoc("debug", model, "--json", "--no-isolate", "-i", "x.npz", "--accumulate", "--option",
                    f"faulty.fault={fault}", "--option", "faulty.op=nn.relu")  # fmt: skip
        assert (done.code, done.err) == (0, ""), done.err

        def refuse(text: str) -> None:
            raise AssertionError(text)

        assert json.loads(done.out, parse_constant=refuse)["right"] is True


def test_a_folder_that_cannot_be_written(byoc: RunByoc, faulty: str, model: Path) -> None:
    Path("taken").write_text("")
    fault = ("--option", "faulty.fault=lane", "--option", "faulty.op=nn.relu", "--no-isolate", "--no-narrow")
    done = byoc("debug", model, *fault, "--save", "taken")
    assert done.code == 1
    assert done.err.startswith("error: taken")
    assert "1 region diverges" in done.out, "the report is there all the same"


def test_what_it_does_not_take(byoc: RunByoc, artifact: Path) -> None:
    done = byoc("debug", artifact)
    expected = f"error: file `{artifact}`: is compiled already; expected an ONNX model\n"
    assert (done.code, done.out, done.err) == (1, "", expected)
    done = byoc("debug", "m.onnx", "--function", "mane")
    expected = "error: function `mane`: is not in the module; expected main. Did you mean 'main'?\n"
    assert (done.code, done.out, done.err) == (1, "", expected)
