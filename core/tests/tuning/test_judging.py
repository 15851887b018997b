"""Judgements of results: by float64 where possible, else by the roundings of the model's ops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import BackendInfo
from byoc_core.debugging import Tolerance
from byoc_core.ir import IRModule
from byoc_core.runtime.module import NDArray
from byoc_core.transform import evaluate_function
from byoc_core.tuning import judging
from byoc_core.tuning.judging import Judge, agree, rounding_tolerance

K = 512
PRODUCT = R.parse(f"""
def main(x: R.Tensor(("n", {K}), "float32"), w: R.Tensor(({K}, 8), "float32")):
    y = R.matmul(x, w)
    z = R.tanh(y)
    return y, z
""")
INFOS = (BackendInfo("aone"), BackendInfo("btwo"))
COARSE = (*INFOS, BackendInfo("cthree", unit_roundoff={"float32": 2**-11}))


def draw(n: int = 4) -> list[NDArray]:
    generator = np.random.default_rng(3)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((n, K), (K, 8)))
    return [x, w / np.float32(math.sqrt(K))]


def backward_results(inputs: Sequence[NDArray]) -> list[NDArray]:
    """Return the results with the terms of sums in the opposite order, one by one."""
    x, w = inputs
    y = np.zeros((len(x), 8), np.float32)
    for k in reversed(range(K)):
        y += x[:, k : k + 1] * w[k]
    return [y, np.tanh(y)]


def make_judge(monkeypatch: pytest.MonkeyPatch, *, exact: bool, infos: Sequence[BackendInfo] = INFOS) -> Judge:
    if not exact:
        monkeypatch.setattr(judging, "_MAX_SECONDS", 0.0)
    return Judge(PRODUCT, "main", draw(), {"n": 4}, infos)


@pytest.mark.parametrize("exact", [True, False])
def test_another_order_of_additions_is_right_and_a_wrong_term_is_not(
    exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, inputs = make_judge(monkeypatch, exact=exact), draw()
    right = evaluate_function(PRODUCT, "main", inputs)
    assert judge.accepts(backward_results(inputs), right)
    y, z = backward_results(inputs)
    largest = np.abs(y).max()
    assert not judge.accepts([y, z + np.float32(1e-3)], right)
    y[2, 3] += np.float32(1e-3) * largest
    assert not judge.accepts([y, z], right)
    for value in (np.nan, np.inf):
        y[2, 3] = value
        assert not judge.accepts([y, z], right)
    assert not judge.accepts([y[:2], z[:2]], right)


@pytest.mark.parametrize("exact", [True, False])
def test_stated_roundings_of_a_backend_count(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = draw()
    right = evaluate_function(PRODUCT, "main", inputs)
    rounded = [array.view(np.uint32) & np.uint32(0xFFFFE000) for array in inputs]  # ten bits of fractions, as in TF32
    x, w = (array.view(np.float32) for array in rounded)
    coarse = [x @ w, np.tanh(x @ w)]
    assert not make_judge(monkeypatch, exact=exact).accepts(coarse, right)
    assert make_judge(monkeypatch, exact=exact, infos=COARSE).accepts(coarse, right)


def test_long_runs_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **named: object) -> None:
        raise AssertionError("the reference kernels run")

    inputs = draw()
    right = evaluate_function(PRODUCT, "main", inputs)
    monkeypatch.setattr(judging, "References", fail)
    with pytest.raises(AssertionError, match="kernels run"):
        Judge(PRODUCT, "main", inputs, {"n": 4}, INFOS)
    judge = Judge(PRODUCT, "main", inputs, {"n": 4}, INFOS, run_seconds=2.0)
    assert judge.accepts(backward_results(inputs), right)
    assert not judge.accepts([right[0], right[1] + 1], right)


def test_the_tolerance_follows_the_operations_of_all_ops() -> None:
    unit = 2.0**-24
    module = R.parse("""
def main(x: R.Tensor((2, 3), "float32")):
    a = R.add(x, x)
    b = R.add(a, x)
    c = R.add(b, x)
    d = R.add(c, x)
    return d
""")
    assert rounding_tolerance(module, {}, {}) == Tolerance().factor * math.sqrt(4) * 2 * unit
    assert rounding_tolerance(module, {}, {"float32": 2.0**-11}) == Tolerance().factor * math.sqrt(4) * 2 * 2.0**-11
    assert rounding_tolerance(module, {}, {"tanh:float32": 2.0**-11}) == rounding_tolerance(module, {}, {})
    by_size = [rounding_tolerance(PRODUCT, {"n": n}, {}) for n in (1, 4)]
    assert by_size[0] == pytest.approx(by_size[1])
    assert by_size[0] > Tolerance().factor * math.sqrt(K) * 2 * unit


def test_a_model_without_reference_kernels_is_judged_by_another_placement() -> None:
    module: IRModule = R.parse("""
def main(x: R.Tensor((4,), "float32")):
    y = R.call_packed("unknown", (x,), out_types=[R.Tensor((4,), "float32")])
    return y
""")
    x = np.ones(4, np.float32)
    judge = Judge(module, "main", [x], {}, INFOS)
    assert judge.accepts([x], [x])
    assert not judge.accepts([x + 1], [x])


def test_zeros_integers_and_empty_results_agree() -> None:
    zeros, tiny = np.zeros(3, np.float32), np.full(3, 1e-39, np.float32)
    assert agree([zeros], [tiny], 0.0)
    assert not agree([zeros], [np.full(3, 1e-37, np.float32)], 0.0)
    assert agree([np.array([1, 2])], [np.array([2, 1])], 0.0)
    assert agree([np.zeros((0, 2), np.float32)], [np.zeros((0, 2), np.float32)], 0.0)
    assert agree([np.array([np.nan], np.float32)], [np.array([np.nan], np.float32)], 0.0)
