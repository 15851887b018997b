"""The whole workflow on real input: train, compile, save; then run in a second process without the compiler.

    python -m examples.digits.demo --out out/demo

Two networks trained on real handwritten digits, and light_squeezenet, are compiled by each backend alone, by both
together, and by all installed backends with each op placed where it is expected to be fast (``auto``). The numpy host
takes the declined ops. ``examples.digits.deploy`` then runs the artifacts beside ONNX
Runtime. The demo also writes pictures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import byoc_core
import numpy as np
import onnx
from byoc_core.partitioning import PartitionOptions

from benchmarks.zoo.light import draw_inputs, load_light_model
from examples.digits.pictures import draw_graph, draw_predictions
from examples.digits.rounding import gamma, longest_sum
from examples.digits.train import write_models

BACKENDS = ("ccompiler", "dnnl")
PRODUCTS = ("nn.conv2d", "nn.dense", "nn.bias_add", "nn.relu")
"""The ops for oneDNN in a network shared by both; the ops between are generated C. Each alone would take all ops."""
MODELS = ("digits_cnn", "digits_mlp", "light_squeezenet")


@dataclass(frozen=True)
class Configuration:
    """A choice of backends for the networks.

    Attributes:
        name: of the artifacts.
        backends: from the first asked to the last; ``"auto"``: all installed, by expected time.
        allow: by backend, the permitted ops; an unlisted backend may take all.
    """

    name: str
    backends: tuple[str, ...] | Literal["auto"]
    allow: Mapping[str, Sequence[str]] = field(default_factory=dict)


def write_squeezenet(out: Path) -> None:
    """Write light_squeezenet with seeded weights, and two seeded inputs."""
    model = load_light_model("light_squeezenet")
    onnx.save(model, str(out / "light_squeezenet.onnx"))
    (name,) = (value.name for value in model.graph.input)
    np.savez(out / "light_squeezenet_inputs.npz", first=draw_inputs(model, 1)[name], second=draw_inputs(model, 2)[name])


def usable_configurations() -> list[Configuration]:
    """Return each backend able to compile on this machine alone, and both together in two ways if both are able."""
    statuses = {name: byoc_core.backends.get(name).compile_status() for name in BACKENDS}
    for name, status in statuses.items():
        if not status.ok:
            print(f"{name} is left out: {status.reason}. {status.remedy}")
    usable = [name for name, status in statuses.items() if status.ok]
    if not usable:
        raise SystemExit("FAILED: no backend can compile on this machine")
    single_backends = [Configuration(name, (name,)) for name in usable]
    if len(single_backends) < len(BACKENDS):
        return single_backends
    shared = Configuration("both", ("dnnl", "ccompiler"), {"dnnl": PRODUCTS})
    return [*single_backends, shared, Configuration("auto", "auto")]


def compile_model(out: Path, name: str, configuration: Configuration) -> None:
    """Compile a model in a way, save the artifact, and draw the partition by named backends."""
    start = time.perf_counter()
    module = byoc_core.from_onnx(out / f"{name}.onnx")
    imported = time.perf_counter()
    options = PartitionOptions(allow=configuration.allow)
    executable = byoc_core.build(module, backends=configuration.backends, partition_options=options)
    built = time.perf_counter()
    executable.save(out / f"{name}.{configuration.name}.byoc")
    print(
        f"\n{name} by {configuration.name}: from_onnx {imported - start:.2f} s, build {built - imported:.2f} s",
        flush=True,
    )
    print("\n".join(f"  {line}" for line in executable.report().splitlines()))
    shares = {item["name"]: item["share"] for item in executable.report_data["backends"]}
    if configuration.backends == "auto":
        executable.require_offload(0.99)
        return
    for backend in configuration.backends:
        if not shares[backend]:
            raise SystemExit(f"FAILED: {name} by {configuration.name}: nothing was offloaded to {backend}")
    partitioned = byoc_core.partition(module, backends=configuration.backends, partition_options=options)
    draw_graph(partitioned, out / f"{name}.{configuration.name}_graph.png")


def main() -> None:
    """Read the command line and run the whole workflow."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder to write into (%(default)s)")
    out = parser.parse_args().out
    write_models(out)
    write_squeezenet(out)
    configurations = usable_configurations()
    for name in MODELS:
        for configuration in configurations:
            compile_model(out, name, configuration)
    bounds = {name: gamma(longest_sum(onnx.load(str(out / f"{name}.onnx")))) for name in MODELS}
    compiled = {"configurations": [configuration.name for configuration in configurations], "gamma": bounds}
    (out / "compiled.json").write_text(json.dumps(compiled, indent=2) + "\n", encoding="utf-8")
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", "examples.digits.deploy", str(out)], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    predictions = np.load(out / f"digits_cnn.{configurations[0].name}_predictions.npy")
    with np.load(out / "heldout.npz") as heldout:
        draw_predictions(heldout["images"], heldout["labels"], predictions, out / "digits.png")
    print(f"pictures: {', '.join(sorted(str(path) for path in out.glob('*.png')))}")


if __name__ == "__main__":
    main()
