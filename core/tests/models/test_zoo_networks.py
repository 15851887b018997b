"""The zoo's own networks in their small sizes: each style on the host, each network on each backend, at all sizes."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from byoc_core.ir import tensor
from onnx import TensorProto, helper

from benchmarks.zoo.accuracy import Accuracy, judge, with_usual_error
from benchmarks.zoo.built_model import BuiltModel
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.network_check import ModelCheck, check_symbolic
from benchmarks.zoo.networks import NETWORKS
from core.tests.models.zoo_backends import HOST, OPTIMISED, choose_trials, list_backends, result_options

_MODELS = [(name, style) for name in NETWORKS for style in STYLES]
_TRIALS = choose_trials(list(NETWORKS))


@cache
def _check(name: str, style: str) -> ModelCheck:
    return ModelCheck(name, "tiny", style)


@cache
def _build(name: str, style: str, backend: str) -> BuiltModel:
    options = None if (name, style) in OPTIMISED else result_options(backend)
    return _check(name, style).build(list_backends(backend), options)


@pytest.mark.parametrize(("name", "style", "backend"), _TRIALS)
def test_network_equals_onnx_runtime_at_all_sizes(name: str, style: str, backend: str) -> None:
    built = _build(name, style, backend)
    found = _check(name, style).compare_sizes(built)
    assert len(found) == len(NETWORKS[name].list_sizes())
    assert {where: str(accuracy) for where, accuracy in found.items() if not accuracy.is_right} == {}
    assert (built.offloaded_share > 0) == (backend != HOST)


@pytest.mark.parametrize(("name", "style", "backend"), [trial for trial in _TRIALS if NETWORKS[trial[0]].has_cache])
def test_decoding_with_a_cache_equals_one_run_over_all_tokens(name: str, style: str, backend: str) -> None:
    accuracy = _check(name, style).compare_decoding(_build(name, style, backend))
    assert accuracy is not None
    assert accuracy.is_right, str(accuracy)


@pytest.mark.parametrize(("name", "style"), _MODELS)
def test_models_are_valid_and_the_same_each_time(name: str, style: str) -> None:
    model, again = (NETWORKS[name].build("tiny", style) for _ in range(2))
    assert model.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    onnx.checker.check_model(model, full_check=True)


def test_results_are_judged_both_ways() -> None:
    exact = np.random.default_rng(1).standard_normal((3, 40))
    right = exact.astype(np.float32)
    other, wrong = right[::-1], right * np.float32(1.001)
    assert judge([right], [right], [other], [exact]).is_right
    assert not judge([wrong], [right], [other], [exact]).is_right
    assert not judge([right], [wrong], [other], [exact]).is_right  # the oracle is of another network than the peer
    assert not judge([right], [right], [right], [exact]).is_right  # the network does not depend on its input
    assert not judge([right, wrong], [right] * 2, [other] * 2, [exact] * 2).is_right
    with pytest.raises(ValueError, match=r"a result has the shape \(3, 39\), expected \(3, 40\)"):
        judge([right[:, 1:]], [right], [other], [exact])


def test_a_small_run_that_is_exact_by_chance_is_judged_beside_the_others() -> None:
    """Measured errors: in the first run the error of byoc was small by luck, the error of ONNX Runtime typical."""
    figures = [(1.4e-7, 5.7e-7), (3.5e-7, 3.3e-7), (3e-7, 4e-7)]
    runs = [Accuracy(error, peer_error, 6e-7, 0.65) for error, peer_error in figures]
    assert [accuracy.is_right for accuracy in runs] == [False, True, True]
    assert all(accuracy.is_right for accuracy in with_usual_error(runs))
    for error, peer_error, difference in ((3e-6, 4e-7, 0.65), (3e-7, 2.4e-6, 0.65), (3e-7, 4e-7, 0.0)):
        judged = with_usual_error([*runs, Accuracy(error, peer_error, 3e-6, difference)])
        assert [accuracy.is_right for accuracy in judged] == [True, True, True, False]


def test_a_lost_size_is_named() -> None:
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    check_symbolic(declared, tensor(("n", 4)))
    with pytest.raises(ValueError, match=r"`x` lost its dynamic sizes: .*, expected \(batch, 4\)"):
        check_symbolic(declared, tensor((2, 4)))
