"""Whole models compiled by one backend alone, beside ONNX Runtime, OpenVINO and PyTorch, with one and two threads.

Each contestant is a separate process. Outputs are compared before the measurement. Beside the times stand the share of
FLOPs taken by the backend, and the share of the multipliers' peak (of one core, times the number of threads) reached by
the backend. The peak is measured in the same rounds if there is a C compiler. Missing peers are left out, with a
message. All compute in float32 unless a figure states otherwise. ``benchmarks.models_process`` has the settings of the
contestants.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.errors import ToolchainError

from benchmarks.contests import Effort, compare_engines
from benchmarks.models_process import DISTRIBUTIONS, SETTINGS
from benchmarks.pairing import Samples, describe_machine, paired_ratio
from benchmarks.peak import UnknownPeakError, peak_contestant
from benchmarks.zoo.fixed_sizes import fix_sizes
from benchmarks.zoo.light import SEED, draw_inputs, list_light_models, load_light_model
from benchmarks.zoo.mobilenet import build_mobilenet_v2, build_mobilenet_v3, draw_image
from benchmarks.zoo.networks import NETWORKS
from benchmarks.zoo.quantised import build_quantised_convnet, build_quantised_mlp
from benchmarks.zoo.segformer import build_segformer
from benchmarks.zoo.small_networks import build_lenet, build_mlp, build_recurrent
from benchmarks.zoo.swin import SIZES as SWIN_SIZES
from benchmarks.zoo.swin import build_swin
from benchmarks.zoo.vit import build_vit

__all__ = [
    "BFLOAT16_MODELS",
    "DNNL_ALONE",
    "QUANTISED",
    "THREADS",
    "check_names",
    "installed_peers",
    "load_model",
    "run",
    "run_dnnl",
    "run_dnnl_bfloat16",
    "run_dnnl_quantised",
    "run_quantised",
]

MODELS = ("light_resnet50", "light_squeezenet", "light_densenet121", "mobilenet_v2", "bert")
DNNL_MODELS = (*MODELS, "light_shufflenet", "mlp_1", "mlp_64", "mlp_512", "lenet", "lstm", "lstm_stack", "gru")
QUANTISED = ("quantised_convnet", "quantised_mlp_1", "quantised_mlp_64")
"""The numbers in names are numbers of rows."""
BFLOAT16_MODELS = ("light_resnet50", "light_densenet121", "mobilenet_v2", "bert", "mlp_64", "mlp_512")
THREADS = (1, 2)
RECURRENT_SIZES = ((20, 1, 64, 64), (50, 1, 128, 128), (100, 1, 256, 256), (30, 8, 64, 128), (30, 32, 128, 256))
"""Steps, sequences, inputs and hidden units of layers in one direction and in both; the names have these numbers."""

_BUILDERS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "quantised_convnet": build_quantised_convnet,
    "quantised_mlp_1": lambda: build_quantised_mlp(1),
    "quantised_mlp_64": lambda: build_quantised_mlp(64),
    "mlp_1": lambda: build_mlp(1),
    "mlp_64": lambda: build_mlp(64),
    "mlp_512": lambda: build_mlp(512),
    "lenet": build_lenet,
    "mobilenet_v3": build_mobilenet_v3,
    "swin": lambda: build_swin(SWIN_SIZES["real"]),
    "segformer": build_segformer,
    "vit": build_vit,
    "lstm": lambda: build_recurrent("LSTM", 1, 64, 256, 256),
    "lstm_stack": lambda: build_recurrent("LSTM", 2, 32, 128, 256),
    "gru": lambda: build_recurrent("GRU", 1, 64, 256, 256),
    **{
        f"{kind.lower()}{'_both_ways' * (directions - 1)}_{steps}_{batch}_{inputs}_{hidden}": partial(
            build_recurrent, kind, 1, steps, inputs, hidden, batch=batch, directions=directions
        )
        for kind in ("GRU", "LSTM")
        for directions in (1, 2)
        for steps, batch, inputs, hidden in RECURRENT_SIZES
    },
}


_NETWORKS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "bert": ("bert", {"batch": 1, "sequence": 128}),
    "gpt2": ("gpt2", {"batch": 1, "sequence": 64, "past": 0}),
    "llama": ("llama", {"batch": 1, "sequence": 64, "past": 0}),
    "tagger": ("text_tagger", {}),
    "efficientnet_b0": ("efficientnet", {}),
    "convnext": ("convnext", {}),
    "regnet": ("regnet", {}),
    "resnext50": ("resnext", {}),
    "detector": ("detector", {}),
    "audio_encoder": ("audio_encoder", {}),
}
"""The networks of ``benchmarks.zoo.networks`` in their real size, and the values of dynamic sizes."""


def check_names(names: Sequence[str]) -> None:
    """Check that all names are names of models, before any measurement.

    Raises:
        SystemExit: some names are unknown.
    """
    all_names = sorted({"mobilenet_v2", *_BUILDERS, *_NETWORKS, *list_light_models()})
    unknown = [name for name in names if name not in all_names]
    if unknown:
        raise SystemExit(f"no models of these names: {', '.join(unknown)}; expected some of {', '.join(all_names)}")


def load_model(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of the zoo with fixed sizes, and inputs."""
    if name == "mobilenet_v2":
        return build_mobilenet_v2(), dict(draw_image(SEED))
    if name in _NETWORKS:
        network, sizes = _NETWORKS[name]
        return _build_network(name, "exported17"), NETWORKS[network].draw("real", sizes, SEED)
    model = _BUILDERS[name]() if name in _BUILDERS else load_light_model(name)
    return model, dict(draw_inputs(model, SEED))


def _build_network(name: str, style: str) -> onnx.ModelProto:
    network, sizes = _NETWORKS[name]
    return fix_sizes(NETWORKS[network].build("real", style), sizes)


@dataclass(frozen=True)
class _Contest:
    """The contestants.

    Attributes:
        backend: the backend of byoc.
        peers: the other engines; errors are relative to the first peer.
        options: options of the backend.
        environment: the environment of byoc's processes.
        dtype: the dtype of the factors of byoc's products; shares are of the peak of this dtype.
    """

    backend: str
    peers: tuple[str, ...] = ("onnxruntime", "openvino", "torch")
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    dtype: str = "float32"


DNNL_ALONE = {"GOMP_SPINCOUNT": "20000"}
"""The advice of docs/threads.md for processes without other work; each primitive of oneDNN is a parallel region."""


def run(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return milliseconds of a call of models by ccompiler and peers, and the peers' times over byoc's."""
    return _run_models(_Contest("ccompiler"), models or MODELS, num_rounds)


def run_quantised(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the same for quantised models."""
    contest = _Contest("ccompiler", ("onnxruntime", "openvino"), dtype="int8")
    return _run_models(contest, models or QUANTISED, num_rounds)


def run_dnnl(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the same for dnnl."""
    return _run_models(_Contest("dnnl", environment=DNNL_ALONE), models or DNNL_MODELS, num_rounds)


def run_dnnl_quantised(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the same for quantised models by dnnl."""
    contest = _Contest("dnnl", ("onnxruntime", "openvino"), environment=DNNL_ALONE, dtype="int8")
    return _run_models(contest, models or QUANTISED, num_rounds)


def run_dnnl_bfloat16(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the same for dnnl with ``precision="bfloat16"``, beside OpenVINO with OpenVINO's choice of precision."""
    peers = ("onnxruntime", "openvino as it comes")
    contest = _Contest("dnnl", peers, {"precision": "bfloat16"}, DNNL_ALONE, "bfloat16")
    return _run_models(contest, models or BFLOAT16_MODELS, num_rounds)


def installed_peers(peers: Sequence[str]) -> list[str]:
    """Return the installed peers; print the names of the others."""
    installed = [peer for peer in peers if find_spec(DISTRIBUTIONS[peer]) is not None]
    for peer in peers:
        if peer not in installed:
            print(f"  {peer}: not installed, left out (pip install {DISTRIBUTIONS[peer]})")
    return installed


def _run_models(contest: _Contest, names: Sequence[str], num_rounds: int) -> dict[str, Any]:
    check_names(names)
    peers = installed_peers(contest.peers)
    engines = ["byoc", *peers]
    distributions = dict.fromkeys(DISTRIBUTIONS[peer] for peer in peers)
    figures: dict[str, Any] = {
        "settings": {engine: SETTINGS[engine] for engine in engines},
        "options": dict(contest.options),
        "environment": dict(contest.environment),
        "versions": describe_machine(tuple(distributions))["versions"],
    }
    try:
        peak: Callable[[], float] | None = peak_contestant(contest.dtype)
    except (ToolchainError, UnknownPeakError) as error:
        peak = None
        print(f"  no share of the multipliers' peak: {error}")
    for name in names:
        figures[name] = _run_model(name, contest, engines, peak, num_rounds)
    return figures


def _run_model(
    name: str, contest: _Contest, engines: Sequence[str], peak: Callable[[], float] | None, num_rounds: int
) -> dict[str, Any]:
    model, inputs = load_model(name)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        onnx.save(model, str(folder / "model.onnx"))
        if "torch" in engines:  # users of PyTorch write GELU and attention as one function each
            onnx.save(_build_network(name, "modern") if name == "bert" else model, str(folder / "torch.onnx"))
        np.savez(folder / "inputs.npz", **inputs)
        executable = byoc_core.build(
            byoc_core.from_onnx(model), [contest.backend], options={contest.backend: dict(contest.options)}
        )
        executable.save(folder / "byoc.byoc")
        report = executable.report_data
        figures: dict[str, Any] = {"offloaded": report["offloaded_share"], "operations": report["total_flops"]}
        for num_threads in THREADS:
            found = _compare(folder, engines, num_threads, contest, report["total_flops"], peak, num_rounds)
            figures[f"{num_threads} threads"] = found
            _tell(f"{name}, {num_threads} threads", found, report["offloaded_share"])
    return figures


def _compare(
    folder: Path,
    engines: Sequence[str],
    num_threads: int,
    contest: _Contest,
    num_operations: int,
    peak: Callable[[], float] | None,
    num_rounds: int,
) -> dict[str, Any]:
    environments = {engine: contest.environment if engine == "byoc" else {} for engine in engines}
    contestants = {"peak": peak} if peak else {}
    comparison = compare_engines(
        folder, environments, num_threads, Effort(num_rounds), references=engines[1:2], contestants=contestants
    )
    for engine, reason in comparison.failures.items():
        raise RuntimeError(f"{engine}: {reason}")
    seconds = comparison.seconds
    ours = seconds["byoc"]
    found = {
        "ms": {engine: Samples(tuple(1e3 * s for s in seconds[engine].values)).to_json() for engine in engines},
        "peer / byoc": {peer: paired_ratio(seconds[peer], ours).to_json() for peer in engines if peer != "byoc"},
        "relative errors": comparison.errors,
        "starts": comparison.starts_to_json(),
    }
    if peak is not None:
        pairs = zip(ours.values, seconds["peak"].values, strict=True)
        shares = tuple(num_operations / value / (num_threads * top) for value, top in pairs)
        found["share of peak"] = Samples(shares).to_json()
    return found


def _tell(title: str, found: Mapping[str, Any], offloaded: float) -> None:
    share = f", {found['share of peak']['median']:.0%} of the peak" if "share of peak" in found else ""
    print(f"  {title}: {found['ms']['byoc']['median']:.3f} ms{share}, {offloaded:.1%} of the FLOPs offloaded")
    for engine, start in found["starts"].items():
        ms = found["ms"][engine]["median"]
        ratio = found["peer / byoc"].get(engine)
        times = "" if ratio is None else f", {ratio['median']:.2f} +- {ratio['spread']:.2f} times as long"
        error = f", error {found['relative errors'][engine]:.1e}" if engine in found["relative errors"] else ""
        print(
            f"    {engine:20} {ms:9.3f} ms{times}{error}; load {start['load_ms']['median']:.0f} ms, first call "
            f"{start['first_ms']['median']:.1f} ms, peak {start['peak_bytes']['median'] / 2**20:.0f} MiB",
            flush=True,
        )
