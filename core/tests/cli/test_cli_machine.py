"""``byoc inspect --machine`` and ``byoc explain --machine``: the machine that a session takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from byoc_core import Session

from core.tests.cli.conftest import RunByoc


@pytest.mark.parametrize("requested", ["", "python"])
def test_the_machine_is_that_of_a_session(
    byoc: RunByoc, model: Path, artifact: Path, monkeypatch: pytest.MonkeyPatch, requested: str
) -> None:
    monkeypatch.setenv("BYOC_MACHINE", requested)
    expected = Session(artifact).machine
    line = f"machine of function `main`: {expected}"
    assert (str(expected) == "python (as requested)") == (requested == "python")
    done = byoc("inspect", artifact, "--machine")
    assert (done.code, done.err, done.out.splitlines()[-1]) == (0, "", line)
    done = byoc("explain", artifact, "--machine")
    assert (done.code, done.out.splitlines()[-1]) == (0, line)
    for command in ("inspect", "explain"):
        data = json.loads(byoc(command, artifact, "--machine", "--json").out)
        assert data["machines"] == {"main": {"name": expected.name, "reason": expected.reason}}
        assert "machines" not in json.loads(byoc(command, artifact, "--json").out)
    done = byoc("explain", model, "--machine")
    assert (done.code, done.out.splitlines()[-1]) == (0, f"machine of function `main`: {Session(model, []).machine}")


def test_errors(byoc: RunByoc, model: Path) -> None:
    done = byoc("inspect", model, "--machine")
    assert done.code == 1
    assert "--machine: does not apply to the ONNX model `m.onnx`; expected an artifact" in done.err
    for flag in ("--ir", "--kernels"):
        done = byoc("explain", model, "--machine", flag)
        assert done.code == 1
        assert "--machine: does not go with --ir and --kernels" in done.err
