"""``--policy``: the names for policies on the command line, and their effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from byoc_core.cli.request import PolicyName
from byoc_core.partitioning.policies import POLICIES

from core.tests.cli.conftest import RunByoc

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

FAR = """
from byoc_core.backend.hooks import BackendInfo, CodegenResult, Estimate, Rejection, Support, hookimpl

@hookimpl
def byoc_backend_info():
    return BackendInfo("far", dynamic_shapes=True)

@hookimpl
def byoc_supports(binding):
    return Support()

@hookimpl
def byoc_estimate(function):
    return Estimate(seconds=0, call_seconds=1)

@hookimpl
def byoc_codegen(functions):
    return CodegenResult(None, rejections={function.name: Rejection("asked", "it was asked") for function in functions})
"""


@pytest.fixture
def far_backend(install_backend: Callable[[str, str], Path]) -> None:
    """An installed backend with a high cost of transfers, refusing to compile."""
    install_backend("far", FAR)


def test_the_names_are_those_of_the_policies() -> None:
    assert get_args(PolicyName) == tuple(POLICIES)


@pytest.mark.usefixtures("far_backend")
@pytest.mark.parametrize("command", ["explain m.onnx --backend far", "compile m.onnx -o m.byoc --backend far"])
def test_the_policy_decides_who_is_asked(byoc: RunByoc, model: Path, command: str) -> None:
    dear, asked = "0 us on `far` plus 1e+06 us of transfers", "it was asked"
    for policy, there, absent in (("greedy", asked, dear), ("cost", dear, asked)):
        done = byoc(*command.split(), "--policy", policy)
        assert (done.code, done.err) == (0, "")
        assert there in " ".join(done.out.split())
        assert absent not in done.out
    assert asked in byoc(*command.split()).out


def test_an_unknown_policy_is_wrong_usage(byoc: RunByoc, model: Path) -> None:
    done = byoc("explain", model, "--policy", "chance")
    assert (done.code, done.out) == (2, "")
    assert "'chance' is not one of 'greedy', 'cost'" in done.err
