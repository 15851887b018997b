"""Measured ops of models and single layers, from profiles of a backend alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import byoc_core
import onnx
from byoc_core.authoring.cost_table import CostRow
from byoc_core.ir import IRModule
from byoc_core.partitioning import GreedyByOrder
from byoc_core.profiling import Profile
from byoc_core.tuning.op_times import MeasuredOp, RecordingPolicy, measured_ops, repeated_profile

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
        "light_zfnet512",
        "light_vgg19",
    ),
    *("efficientnet_b0", "regnet", "resnext50", "convnext", "detector", "audio_encoder", "tagger"),
)

_SEED = 0
MODEL_S, LAYER_S = 1.0, 0.05
"""Seconds of the measurement of a model and of a layer."""
NOISE_S = 3e-7
"""Kernels below this time are mostly measurement: these count with this time as bound."""
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


def measure_module(
    module: IRModule,
    inputs: Mapping[str, Any],
    backend: str,
    seconds: float,
    *,
    scale: bool,
    num_threads: int = 1,
    options: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[MeasuredOp], Profile]:
    """Return the measured ops of a module on a backend alone, and the profile.

    Args:
        module: the model.
        inputs: of the calls.
        backend: the backend.
        seconds: of the measurement.
        scale: whether conversions inside of regions belong to the ops.
        num_threads: of a call.
        options: of the backend.
    """
    policy = RecordingPolicy(GreedyByOrder())
    executable = byoc_core.build(module, [backend], policy=policy, options={backend: dict(options)})
    found, _ = repeated_profile(executable, inputs, seconds, num_threads)
    assert policy.module is not None
    return list(measured_ops(found, backend, policy.module, scale=scale)), found
