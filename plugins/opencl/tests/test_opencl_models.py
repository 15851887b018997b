"""Whole networks with companions in any order: light nets of the onnx package, and a transformer at many sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import byoc_core
import pytest
from byoc_core import VirtualMachine
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionOptions
from byoc_core.runtime.module import NDArray
from byoc_core.transform import evaluate_function

pytest.importorskip("onnxruntime")
from benchmarks.zoo import light
from benchmarks.zoo.accuracy import judge, open_session, run_peer
from benchmarks.zoo.built_model import BuiltModel
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.network_check import ModelCheck

pytestmark = pytest.mark.usefixtures("needs_device")

ORDERS: Mapping[str, tuple[Sequence[str], PartitionOptions]] = {
    "alone": (("opencl",), PartitionOptions()),
    "first": (
        ("opencl", "ccompiler"),
        PartitionOptions(allow={"opencl": ["nn.conv2d", "nn.dense", "matmul", "nn.attention", "add", "nn.bias_add"]}),
    ),
    "last": (
        ("ccompiler", "opencl"),
        PartitionOptions(allow={"ccompiler": ["*pool2d", "concat", "nn.gelu", "nn.layer_norm", "nn.lrn", "take"]}),
    ),
}
"""The backends in order, with limits for the backend asked first: the other backend has regions too."""
LEAST_SHARE = 0.95
"""The least share of floating-point operations on the device if no other backend is asked."""


def build(module: IRModule, order: str) -> VirtualMachine:
    """Return a machine for a module compiled for the backends of an order; each backend has regions."""
    backends, options = ORDERS[order]
    executable = byoc_core.build(module, backends=backends, partition_options=options)
    used = {found.type_key for found in executable.modules}
    assert "opencl" in used
    assert len(backends) == 1 or "csource" in used
    if order == "alone":
        assert float(executable.report_data["offloaded_share"]) >= LEAST_SHARE
    return VirtualMachine(executable)


def as_tuple(results: Any) -> Sequence[NDArray]:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_a_light_net_is_as_near_to_the_exact_result_as_onnx_runtime(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYOPENCL_BUILD_OPTIONS", raising=False)  # optimised, unlike in other tests
    model = light.load_light_model(f"light_{name}")
    first, second = (light.draw_inputs(model, seed) for seed in (1, 2))
    session = open_session(model.SerializeToString())
    peers, others = run_peer(session, first), run_peer(session, second)
    module = byoc_core.from_onnx(model)
    exacts = evaluate_function(module, "main", [first[key] for key in module["main"].input_names], exact=True)
    for order in ORDERS:
        results = as_tuple(build(module, order).run("main", first))
        accuracy = judge(results[:1], peers[:1], others[:1], exacts[:1])
        assert accuracy.is_right, f"{order}: {accuracy}"


@pytest.mark.parametrize("order", ORDERS)
def test_a_transformer_is_as_near_to_the_exact_result_at_all_sizes(order: str) -> None:
    check = ModelCheck("bert", "tiny", next(iter(STYLES)))
    machine = build(check.module, order)
    accuracies = check.compare_sizes(BuiltModel(lambda feeds: as_tuple(machine.run("main", feeds)), 0.0))
    assert len(accuracies) >= 6
    assert [f"{sizes}: {accuracy}" for sizes, accuracy in accuracies.items() if not accuracy.is_right] == []
