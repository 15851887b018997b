"""Comparisons of outputs: the tolerance follows from the model, and the wrong engine is named."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import BackendInfo
from byoc_core.benchmarking.comparing import OutputComparison, reported_backends
from byoc_core.debugging import signature_of
from byoc_core.runtime.module import NDArray
from byoc_core.transform import evaluate_function

PRODUCT = R.parse("""
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 8), "float32")):
    y = R.matmul(x, w)
    z = R.greater(y, R.const(0.0, "float32"))
    return y, z
""")
X = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((64, 8)).astype(np.float32)
OURS = list(evaluate_function(PRODUCT, "main", [X, W]))
SCALE = float(np.abs(OURS[0]).max())


def comparison(infos: Sequence[BackendInfo] = (), run_seconds: float = 0.0) -> OutputComparison:
    return OutputComparison(PRODUCT, "main", signature_of(PRODUCT["main"]), {"x": X, "w": W}, infos, run_seconds)


def off_by(share: float) -> list[NDArray]:
    """Return outputs off by a share of the largest element."""
    return [OURS[0] + np.float32(share * SCALE), OURS[1]]


def test_roundings_agree() -> None:
    found = comparison().check("peer", off_by(2**-22), OURS)
    assert found.agrees
    assert found.max_error == pytest.approx(2**-22, rel=0.5)
    assert found.problem == ""


def test_errors_beyond_roundings_differ_and_the_wrong_engine_is_named() -> None:
    found = comparison().check("peer", off_by(1e-3), OURS)
    assert not found.agrees
    assert found.problem.startswith("wrong compared with the model in float64; peer: output `output0`: error ")
    found = comparison().check("peer", OURS, off_by(1e-3))
    assert found.problem.startswith("wrong compared with the model in float64; byoc: output `output0`: error ")


def test_coarse_backends_of_the_report_widen_the_tolerance() -> None:
    report = {"backends": [{"name": "coarse", "unit_roundoff": {"float32": 2**-11}}, {"name": "fine"}]}
    infos = reported_backends(report)
    assert [(info.name, dict(info.unit_roundoff)) for info in infos] == [("coarse", {"float32": 2**-11})]
    assert comparison(infos).check("peer", off_by(1e-3), OURS).agrees


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"backends": 3},
        {"backends": ["a", {"name": "b", "unit_roundoff": 1}, {"unit_roundoff": {}}]},
        {"backends": [{"name": "b", "unit_roundoff": {"float32": math.inf, "float16": "x", "float64": -1.0}}]},
    ],
)
def test_reports_of_strangers_state_nothing(report: dict[str, object]) -> None:
    assert reported_backends(report) == []


def test_without_float64_the_engines_are_compared_with_each_other() -> None:
    slow = comparison(run_seconds=1e6)
    assert slow.check("peer", off_by(2**-22), OURS).agrees
    assert slow.check("peer", off_by(1e-3), OURS).problem.startswith("floats differ by more than ")
    flipped = [OURS[0], ~OURS[1]]
    assert slow.check("peer", flipped, OURS).problem == (
        "output `output1`: 24 of 24 elements differ, but without rounding all must be equal"
    )


def test_integers_near_a_rounding_may_differ() -> None:
    """The reference kernels in float64 decide: a sum of rounding errors only has any sign."""
    x = np.zeros((1, 64), np.float32)
    x[0, :3] = (1e8, 1.0, -1e8)
    w = np.ones((64, 8), np.float32)
    near = OutputComparison(PRODUCT, "main", signature_of(PRODUCT["main"]), {"x": x, "w": w}, (), 0.0)
    ours = [np.zeros((1, 8), np.float32), np.zeros((1, 8), bool)]
    theirs = [np.ones((1, 8), np.float32), np.ones((1, 8), bool)]
    assert near.check("peer", theirs, ours).agrees


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([OURS[0]], "peer returns 1 outputs, byoc 2"),
        ([OURS[0][:1], OURS[1]], "output `output0` is float32 [1, 8] in peer, float32 [3, 8] in byoc"),
        ([OURS[0], OURS[1].astype("int8")], "output `output1` is int8 [3, 8] in peer, bool [3, 8] in byoc"),
    ],
)
def test_other_layouts_differ(found: Sequence[NDArray], problem: str) -> None:
    check = comparison().check("peer", found, OURS)
    assert (check.agrees, check.max_error, check.problem) == (False, None, problem)


def test_nan_is_no_number() -> None:
    broken = [np.where(OURS[0] == OURS[0].max(), np.float32(np.nan), OURS[0]), OURS[1]]
    found = comparison().check("peer", broken, OURS)
    assert not found.agrees
    assert "peer: output `output0`: 1 of 24 elements" in found.problem
