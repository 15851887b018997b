"""Measured ops of models and single layers, from profiles of a backend alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import byoc_core
import onnx
from byoc_core.artifact import Executable
from byoc_core.authoring.cost_table import CostRow
from byoc_core.ir import Binding, IRModule
from byoc_core.partitioning import GreedyByOrder, PartitionRequest
from byoc_core.partitioning.op_sites import OpKey, bodies_of, members_of, op_key
from byoc_core.partitioning.policies.neighbours import Neighbours, Site, neighbours_of
from byoc_core.profiling import Peaks, Profile, RegionProfile, profile
from byoc_core.reporting.shares import items_of

from benchmarks.models import load_model
from benchmarks.zoo.bert import SIZES as BERT_SIZES
from benchmarks.zoo.bert import build_bert, draw_bert_inputs
from benchmarks.zoo.fixed_sizes import fix_sizes
from benchmarks.zoo.gpt2 import Gpt2Config, build_gpt2, draw_gpt2_inputs
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.llama import LlamaConfig, build_llama, draw_llama_inputs

__all__ = [
    "CALL_S",
    "LAYER_S",
    "MODELS",
    "MODEL_S",
    "NOISE_S",
    "Findings",
    "MeasuredOp",
    "load_sized",
    "measure_module",
]

MODELS = (
    *("lenet", "mlp_1", "mlp_64", "mlp_512", "lstm", "lstm_stack", "gru", "lstm_20_1_64_64", "gru_30_8_64_128"),
    *("quantised_convnet", "quantised_mlp_1", "quantised_mlp_64"),
    *(
        "mobilenet_v2",
        "mobilenet_v3",
        "segformer",
        "vit",
        "swin",
        "bert",
        "bert_tiny",
        "gpt2",
        "gpt2_step",
        "llama",
        "llama_step",
    ),
    *(
        "light_squeezenet",
        "light_shufflenet",
        "light_resnet50",
        "light_densenet121",
        "light_inception_v1",
        "light_inception_v2",
        "light_bvlc_alexnet",
    ),
)

_SEED = 0
MODEL_S, LAYER_S = 1.0, 0.05
"""Seconds of the measurement of a model and of a layer."""
_SAMPLE_S = 2e-3
"""Seconds of a profile among others."""
_MIN_PROFILES = 6
NOISE_S = 3e-7
"""Kernels below this time are mostly measurement: these count with this time as bound."""
_LONGEST_CHAIN = 8
"""Ops between an op replaced by a backend, and the op with a name in profiles."""
CALL_S = 1e-6
"""A call of a region from the machine."""
_GPT2 = Gpt2Config(num_layers=2, hidden=768, num_heads=12, vocabulary=5000, positions=256)
_LLAMA = LlamaConfig(num_layers=2, hidden=768, num_heads=12, cache_heads=4, inner=2048, vocabulary=5000, positions=256)


def load_sized(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of this benchmark, with inputs."""
    style = STYLES["exported17"]
    if name == "bert_tiny":
        sizes = {"batch": 1, "sequence": 16}
        return fix_sizes(build_bert(BERT_SIZES["tiny"], style), sizes), dict(
            draw_bert_inputs(BERT_SIZES["tiny"], sizes, _SEED)
        )
    sizes = (
        {"batch": 1, "sequence": 1, "past": 63} if name.endswith("_step") else {"batch": 1, "sequence": 64, "past": 0}
    )
    if name.startswith("gpt2"):
        return fix_sizes(build_gpt2(_GPT2, style), sizes), draw_gpt2_inputs(_GPT2, sizes, _SEED)
    if name.startswith("llama"):
        return fix_sizes(build_llama(_LLAMA, style), sizes), draw_llama_inputs(_LLAMA, sizes, _SEED)
    return load_model(name)


@dataclass
class _Greedy:
    """A greedy policy remembering the module."""

    module: IRModule | None = None

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        self.module = module
        return GreedyByOrder()(module, request)


@dataclass
class Findings:
    """Measured ops of a backend.

    Attributes:
        rows: ops with kernels.
        shares: kernels and ops by op and setting.
        borders: op of a region, bytes crossing the borders, and seconds of the region outside of the op.
    """

    rows: list[CostRow] = field(default_factory=list)
    shares: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    borders: list[tuple[str, float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class MeasuredOp:
    """An op of a profiled model.

    Attributes:
        key: function and name.
        binding: the op.
        neighbours: in the model.
        seconds: of the kernel of the op; ``None`` if computed along with another op.
        followers: the number of further ops of the kernel.
    """

    key: OpKey
    binding: Binding
    neighbours: Neighbours
    seconds: float | None
    followers: int = 0


def measure_module(
    module: IRModule, inputs: Mapping[str, Any], backend: str, seconds: float, *, scale: bool
) -> tuple[list[MeasuredOp], Profile]:
    """Return the measured ops of a module on a backend alone, and the profile.

    Args:
        module: the model.
        inputs: of the calls.
        backend: the backend.
        seconds: of the measurement.
        scale: whether conversions inside of regions belong to the ops.
    """
    policy = _Greedy()
    executable = byoc_core.build(module, [backend], policy=policy)
    found = _profile_often(executable, inputs, seconds)
    assert policy.module is not None
    neighbours = neighbours_of(policy.module)
    bindings = {
        op_key(source, op): op
        for source, body in bodies_of(policy.module)
        for binding in body.bindings
        for op in members_of(binding)
    }
    return list(_measured_ops(found, backend, bindings, neighbours, scale=scale)), found


def _profile_often(executable: Executable, inputs: Mapping[str, Any], seconds: float) -> Profile:
    """Return a profile with the least seconds of each part and region in many short profiles.

    Other processes interrupt long calls, but seldom the same kernel each time.
    """

    def once(num_calls: int, warm_up: int) -> Profile:
        return profile(executable, inputs, num_calls=num_calls, warm_up=warm_up, num_threads=1, peaks=Peaks(0.0, 0.0))

    stop = time.perf_counter() + seconds
    least = once(5, 2)
    num_calls = max(2, round(_SAMPLE_S / max(least.seconds, 1e-6)))
    count = 0
    while count < _MIN_PROFILES or time.perf_counter() < stop:
        following = once(num_calls, 0)
        pairs = zip(least.regions, following.regions, strict=True)
        least = replace(least, regions=tuple(_least(*pair) for pair in pairs))
        count += 1
    return least


def _least(first: RegionProfile, other: RegionProfile) -> RegionProfile:
    """Return a region with the least seconds of each part, and the least rest."""
    parts = tuple(
        replace(part, seconds=min(part.seconds, second.seconds))
        for part, second in zip(first.parts, other.parts, strict=True)
    )
    rest = min(region.seconds - sum(part.seconds for part in region.parts) for region in (first, other))
    return replace(first, parts=parts, seconds=rest + sum(part.seconds for part in parts))


def _measured_ops(
    found: Profile,
    backend: str,
    bindings: Mapping[OpKey, Binding],
    neighbours: Mapping[OpKey, Site],
    *,
    scale: bool,
) -> Iterator[MeasuredOp]:
    sites: dict[str, list[OpKey]] = {}
    for row in items_of(found.report.get("ops")):
        if row.get("region"):
            sites.setdefault(str(row["region"]), []).append((str(row["function"]), str(row["name"])))
    for region in found.regions:
        if region.backend != backend:
            continue
        keys = {key[1]: key for key in sites.get(region.name, ()) if key in bindings}
        heads: dict[OpKey, float] = {}
        followers: Counter[OpKey] = Counter()
        if not any(part.ops for part in region.parts):
            continue
        hidden = _hidden_ops(region, keys, neighbours)
        for part in region.parts:
            listed = [keys[op.value] for op in part.ops if op.value in keys]
            ops = [*listed, *(key for reader in listed for key in hidden.get(reader, ()))]
            if not ops:
                continue
            head = max(ops, key=lambda key: _work(bindings[key]))
            if not part.calls:
                continue
            heads[head] = heads.get(head, 0.0) + part.seconds / max(1.0, region.calls)
            followers[head] = max(followers[head], len(ops) - 1)
        own, total = sum(heads.values()), region.seconds / max(1.0, region.calls)
        factor = min(total / own, 3.0) if scale and own else 1.0
        for key in keys.values():
            time_of_op = heads.get(key)
            yield MeasuredOp(
                key,
                bindings[key],
                neighbours.get(key, Site()).neighbours,
                None if time_of_op is None else time_of_op * factor,
                followers[key],
            )


def _hidden_ops(
    region: RegionProfile, keys: Mapping[str, OpKey], neighbours: Mapping[OpKey, Site]
) -> dict[OpKey, list[OpKey]]:
    """Return the ops named by no part, by the first op named by a part in the chain of readers.

    A backend may replace an op together with the ops around by another op, and name the last op only.
    """
    named = {op.value for part in region.parts for op in part.ops}
    found: dict[OpKey, list[OpKey]] = {}
    for name, key in keys.items():
        reader = name
        for _ in range(_LONGEST_CHAIN):
            if reader not in keys or reader in named:
                break
            reader = neighbours.get(keys[reader], Site()).reader
        if name not in named and reader in named and reader in keys:
            found.setdefault(keys[reader], []).append(key)
    return found


def _work(binding: Binding) -> tuple[float, float]:
    row = CostRow.of(binding)
    return (0.0, 0.0) if row is None else (row.flops, row.nbytes)
