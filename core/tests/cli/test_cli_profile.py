"""``byoc profile``: tables, JSON, trace and page of a model or an artifact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from core.tests.cli.conftest import RunByoc
from core.tests.cli.test_cli_explain import PLUGIN

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]


@pytest.fixture
def part(install_backend: Callable[[str, str], Path]) -> str:
    """The name of an installed backend claiming ``matmul`` and ``add``."""
    install_backend("part", PLUGIN)
    return "part"


def test_profile_of_a_model_and_of_an_artifact(byoc: RunByoc, model: Path, part: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    for file in (model, "m.byoc"):
        done = byoc("profile", file, "--dim", "n=8", "--calls", "12", "--threads", "1", "--json")
        assert done.code == 0, done.err
        data = json.loads(done.out)
        assert data["sizes"] == {"n": 8}
        assert (data["num_calls"], data["num_threads"]) == (12, 1)
        assert {region["backend"] for region in data["regions"]} == {part, "host"}
        assert data["peaks"]["bandwidth"] > 0
        total = sum(region["seconds"] for region in data["regions"]) + data["machine_seconds"]
        assert total == pytest.approx(data["seconds"])
        text = byoc("profile", file, "--dim", "n=8", "--calls", "10", "--threads", "1")
        assert text.code == 0
        assert "on 1 thread, n = 8" in text.out
        assert all(region["name"] in text.out for region in data["regions"])


def test_trace_and_page_are_written(byoc: RunByoc, model: Path) -> None:
    done = byoc("profile", model, "--calls", "10", "--trace", "t.json", "--html", "p.html", "--parts", "0")
    assert done.code == 0, done.err
    assert "wrote t.json" in done.err
    trace = json.loads(Path("t.json").read_text())
    calls = [event for event in trace["traceEvents"] if event.get("cat") == "call"]
    assert calls
    assert all(event["ph"] == "X" and event["dur"] > 0 for event in calls)
    assert "<html" in Path("p.html").read_text()


def test_impossible_requests_end_before_the_measurement(byoc: RunByoc, model: Path) -> None:
    for arguments, text in (
        (("--trace", "missing/t.json"), "the folder `missing` does not exist"),
        (("--html", str(model)), "model"),
        (("--function", "mian"), "main"),
        (("--dim", "k=3"), "k"),
    ):
        done = byoc("profile", model, *arguments)
        assert done.code == 1
        assert text in done.err
    assert byoc("profile", model, "--calls", "0").code == 2
