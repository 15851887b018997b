"""The whole road, on real input: train, compile, save; then run in a second process without the compiler.

    python -m examples.digits.demo --out out/demo

Two networks trained on real handwritten digits, and light_squeezenet, are compiled with a generated-C backend and the
numpy host. ``examples.digits.deploy`` then runs the artifacts beside ONNX Runtime. Pictures are written beside.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx

from benchmarks.zoo.light import draw_inputs, load_light_model
from examples.digits.pictures import draw_graph, draw_predictions
from examples.digits.rounding import gamma, longest_sum
from examples.digits.train import write_models

BACKENDS = ["ccompiler"]
MODELS = ("digits_cnn", "digits_mlp", "light_squeezenet")


def write_squeezenet(out: Path) -> None:
    """Writes light_squeezenet with seeded weights, and two seeded inputs."""
    model = load_light_model("light_squeezenet")
    onnx.save(model, str(out / "light_squeezenet.onnx"))
    (name,) = (value.name for value in model.graph.input)
    np.savez(out / "light_squeezenet_inputs.npz", first=draw_inputs(model, 1)[name], second=draw_inputs(model, 2)[name])


def compile_model(out: Path, name: str) -> dict[str, Any]:
    """Compiles and saves one model, draws its partition, and gives what the second process must know."""
    start = time.perf_counter()
    module = byoc_core.from_onnx(out / f"{name}.onnx")
    imported = time.perf_counter()
    executable = byoc_core.build(module, backends=BACKENDS)
    built = time.perf_counter()
    executable.save(out / f"{name}.byoc")
    print(f"\n{name}: from_onnx {imported - start:.2f} s, build {built - imported:.2f} s", flush=True)
    print("\n".join(f"  {line}" for line in executable.report().splitlines()))
    if not executable.report_data["offloaded_share"]:
        raise SystemExit(f"FAILED: {name}: nothing was offloaded to {', '.join(BACKENDS)}")
    draw_graph(byoc_core.partition(module, backends=BACKENDS), out / f"{name}_graph.png")
    return {"gamma": gamma(longest_sum(onnx.load(str(out / f"{name}.onnx"))))}


def main() -> None:
    """Reads the command line and goes the whole road."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder to write into (%(default)s)")
    out = parser.parse_args().out
    write_models(out)
    write_squeezenet(out)
    compiled = {name: compile_model(out, name) for name in MODELS}
    (out / "compiled.json").write_text(json.dumps(compiled, indent=2) + "\n", encoding="utf-8")
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", "examples.digits.deploy", str(out)], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    predictions = np.load(out / "digits_cnn_predictions.npy")
    with np.load(out / "heldout.npz") as heldout:
        draw_predictions(heldout["images"], heldout["labels"], predictions, out / "digits.png")
    print(f"pictures: {', '.join(sorted(str(path) for path in out.glob('*.png')))}")


if __name__ == "__main__":
    main()
