"""The zoo's transformers yield exactly the number of ops spelled out, and keep their results at every size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import byoc_core
import pytest
from byoc_core.runtime.module import NDArray
from byoc_core.transform import MoveTransposes, RecogniseComposites, Sequential, default_passes
from byoc_core.transform.recognise_composites import RECOGNISED_OPS

from benchmarks.zoo.built_model import BuiltModel
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.network_check import ModelCheck

_BLOCKS = 2  # of a tiny network: each has an attention, two norms and an activation
_EXPECTED = {
    "bert": {"nn.layer_norm": 2 * _BLOCKS + 1, "nn.attention": _BLOCKS, "nn.gelu": _BLOCKS},
    "gpt2": {"nn.layer_norm": 2 * _BLOCKS + 1, "nn.attention": _BLOCKS, "nn.gelu": _BLOCKS},
    "llama": {"nn.rms_norm": 2 * _BLOCKS + 1, "nn.attention": _BLOCKS, "nn.swish": _BLOCKS},
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", _EXPECTED)
def test_what_a_transformer_spells_out_is_found(name: str, style: str) -> None:
    check = ModelCheck(name, "tiny", style)
    passes = [*default_passes(), RecogniseComposites(), MoveTransposes(), *default_passes()]
    module = Sequential(passes)(check.module)
    found = Counter(binding.op.name for binding in module["main"].walk())
    assert {op: count for op, count in found.items() if op in RECOGNISED_OPS} == _EXPECTED[name]
    assert [result.type for result in module["main"].results] == [r.type for r in check.module["main"].results]
    machine = byoc_core.VirtualMachine(byoc_core.build(module, backends=[]))

    def run(feeds: Mapping[str, NDArray]) -> Sequence[Any]:
        results = machine.run("main", feeds)
        return results if isinstance(results, tuple) else (results,)

    accuracies = check.compare_sizes(BuiltModel(run, 0.0))
    assert len(accuracies) >= 6
    assert [f"{sizes}: {accuracy}" for sizes, accuracy in accuracies.items() if not accuracy.is_right] == []
