"""The zoo's networks in their small sizes: each spelling on each backend, at all sizes, from one build."""

from __future__ import annotations

from functools import cache

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.ir import tensor
from onnx import TensorProto, helper

onnxruntime = pytest.importorskip("onnxruntime")

from benchmarks.zoo.accuracy import judge  # noqa: E402
from benchmarks.zoo.check_networks import BACKENDS  # noqa: E402
from benchmarks.zoo.graph_builder import STYLES  # noqa: E402
from benchmarks.zoo.network_check import ModelCheck, check_symbolic  # noqa: E402
from benchmarks.zoo.networks import NETWORKS  # noqa: E402

_DECODERS = [name for name, network in NETWORKS.items() if network.has_cache]


@cache
def _check(name: str, style: str) -> ModelCheck:
    return ModelCheck(name, "tiny", style)


def _skip_unless_it_compiles(backend: str) -> None:
    status = byoc_core.backends.get(backend).compile_status()
    if not status.ok:
        pytest.skip(f"{backend}: {status}")


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("style", list(STYLES))
@pytest.mark.parametrize("name", list(NETWORKS))
def test_network_equals_onnx_runtime_at_all_sizes(name: str, style: str, backend: str) -> None:
    _skip_unless_it_compiles(backend)
    check = _check(name, style)
    built = check.build(BACKENDS[backend])
    found = dict(check.compare_sizes(built))
    assert len(found) == len(NETWORKS[name].list_sizes())
    assert {where: str(accuracy) for where, accuracy in found.items() if not accuracy.is_right} == {}
    assert (built.offloaded_share > 0) == (backend != "host")


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("style", list(STYLES))
@pytest.mark.parametrize("name", _DECODERS)
def test_decoding_with_a_cache_equals_one_run_over_all_tokens(name: str, style: str, backend: str) -> None:
    _skip_unless_it_compiles(backend)
    check = _check(name, style)
    accuracy = check.compare_decoding(check.build(BACKENDS[backend]))
    assert accuracy is not None
    assert accuracy.is_right, str(accuracy)


def test_results_are_judged_both_ways() -> None:
    exact = np.random.default_rng(1).standard_normal((3, 40))
    right = exact.astype(np.float32)
    other, wrong = right[::-1], right * np.float32(1.001)
    assert judge([right], [right], [other], [exact]).is_right
    assert not judge([wrong], [right], [other], [exact]).is_right
    assert not judge([right], [wrong], [other], [exact]).is_right  # the oracle is of another network than the peer
    assert not judge([right], [right], [right], [exact]).is_right  # the network does not depend on its input
    assert not judge([right, wrong], [right] * 2, [other] * 2, [exact] * 2).is_right


def test_a_lost_size_is_named() -> None:
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    check_symbolic(declared, tensor(("n", 4)))
    with pytest.raises(ValueError, match=r"`x` lost its dynamic sizes: .*, expected \(batch, 4\)"):
        check_symbolic(declared, tensor((2, 4)))


@pytest.mark.parametrize("style", list(STYLES))
@pytest.mark.parametrize("name", list(NETWORKS))
def test_models_are_the_same_each_time_and_valid(name: str, style: str) -> None:
    model, again = (NETWORKS[name].build("tiny", style) for _ in range(2))
    assert model.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    onnx.checker.check_model(model, full_check=True)
