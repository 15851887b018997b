"""The whole road, on real input: train, compile, save; then run in a second process without the compiler.

    python -m examples.digits.demo --out out/demo

Two networks trained on real handwritten digits, and light_squeezenet, are compiled by each backend alone; the numpy
host takes what it declines. ``examples.digits.deploy`` then runs the artifacts beside ONNX Runtime. Pictures are
written beside.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import byoc_core
import numpy as np
import onnx

from benchmarks.zoo.light import draw_inputs, load_light_model
from examples.digits.pictures import draw_graph, draw_predictions
from examples.digits.rounding import gamma, longest_sum
from examples.digits.train import write_models

BACKENDS = ("ccompiler", "dnnl")
MODELS = ("digits_cnn", "digits_mlp", "light_squeezenet")


def write_squeezenet(out: Path) -> None:
    """Writes light_squeezenet with seeded weights, and two seeded inputs."""
    model = load_light_model("light_squeezenet")
    onnx.save(model, str(out / "light_squeezenet.onnx"))
    (name,) = (value.name for value in model.graph.input)
    np.savez(out / "light_squeezenet_inputs.npz", first=draw_inputs(model, 1)[name], second=draw_inputs(model, 2)[name])


def usable_backends() -> list[str]:
    """Gives the backends that can compile on this machine; the last ones may lack a library for its platform."""
    statuses = {name: byoc_core.backends.get(name).compile_status() for name in BACKENDS}
    for name, status in statuses.items():
        if not status.ok:
            print(f"{name} is left out: {status.reason}. {status.remedy}")
    usable = [name for name, status in statuses.items() if status.ok]
    if not usable:
        raise SystemExit("FAILED: no backend can compile on this machine")
    return usable


def compile_model(out: Path, name: str, backend: str) -> None:
    """Compiles one model by a backend, saves it, and draws its partition."""
    start = time.perf_counter()
    module = byoc_core.from_onnx(out / f"{name}.onnx")
    imported = time.perf_counter()
    executable = byoc_core.build(module, backends=[backend])
    built = time.perf_counter()
    executable.save(out / f"{name}.{backend}.byoc")
    print(f"\n{name} by {backend}: from_onnx {imported - start:.2f} s, build {built - imported:.2f} s", flush=True)
    print("\n".join(f"  {line}" for line in executable.report().splitlines()))
    if not executable.report_data["offloaded_share"]:
        raise SystemExit(f"FAILED: {name}: nothing was offloaded to {backend}")
    draw_graph(byoc_core.partition(module, backends=[backend]), out / f"{name}.{backend}_graph.png")


def main() -> None:
    """Reads the command line and goes the whole road."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder to write into (%(default)s)")
    out = parser.parse_args().out
    write_models(out)
    write_squeezenet(out)
    backends = usable_backends()
    for name in MODELS:
        for backend in backends:
            compile_model(out, name, backend)
    bounds = {name: gamma(longest_sum(onnx.load(str(out / f"{name}.onnx")))) for name in MODELS}
    compiled = {"backends": backends, "gamma": bounds}
    (out / "compiled.json").write_text(json.dumps(compiled, indent=2) + "\n", encoding="utf-8")
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", "examples.digits.deploy", str(out)], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    predictions = np.load(out / f"digits_cnn.{backends[0]}_predictions.npy")
    with np.load(out / "heldout.npz") as heldout:
        draw_predictions(heldout["images"], heldout["labels"], predictions, out / "digits.png")
    print(f"pictures: {', '.join(sorted(str(path) for path in out.glob('*.png')))}")


if __name__ == "__main__":
    main()
