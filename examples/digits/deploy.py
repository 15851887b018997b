"""The second process of the demo: run saved artifacts without a compiler, and compare with ONNX Runtime.

    python -m examples.digits.deploy out/demo

The compile side of byoc and of backends, and every C compiler, are out of reach here. The core's run side remains, and
the run half of a backend with artifacts other than C. Exits with 1 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import importlib.abc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import byoc_core
import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from byoc_core.runtime.extension import extension_status

from benchmarks.pairing import measure, paired_ratio, time_call

Array = npt.NDArray[np.float32]

RUN_SIDE = {
    *("errors", "printable", "version", "dtypes", "dims", "digest", "file_replacement", "lazy_names"),
    *("plugin", "kernels", "native", "_native", "opset", "runtime", "vm", "artifact", "session"),
}
COMPILE_HALVES = ("byoc_ccompiler", "byoc_examplejson", "byoc_conformance", "byoc_dnnl.backend")
BATCH_SIZES = (1, 7, 64, 128, 250)
_REST_S = 0.05


class CompileSideBlocker(importlib.abc.MetaPathFinder):
    """An import finder refusing modules absent from a machine that only runs artifacts."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Raise for the compile sides of byoc_core and of backends, and for onnx; leave the rest to other finders."""
        package, _, rest = fullname.partition(".")
        compile_side = package == "byoc_core" and rest and rest.split(".")[0] not in RUN_SIDE
        if compile_side or package == "onnx" or fullname in COMPILE_HALVES:
            raise ImportError(f"{fullname}: blocked, since this process only runs artifacts")


def block_compiler() -> None:
    """Take the compile side and every C compiler out of this process's reach."""
    sys.meta_path.insert(0, CompileSideBlocker())
    os.environ["PATH"] = ""
    for name in ("CC", "BYOC_CC"):
        os.environ.pop(name, None)


@dataclass(frozen=True)
class Pair:
    """A model compiled in one way and saved, and the same model opened by ONNX Runtime."""

    name: str
    executable: Any
    vm: Any
    session: Any
    tolerance: float

    @staticmethod
    def open(out: Path, name: str, configuration: str) -> Pair:
        """Open a saved artifact and its ONNX model; this user compiled the artifact, so the code is trusted."""
        executable = byoc_core.load(out / f"{name}.{configuration}.byoc", allow_native=True)
        session = ort.InferenceSession(str(out / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        gamma = json.loads((out / "compiled.json").read_text(encoding="utf-8"))["gamma"][name]
        return Pair(f"{name} by {configuration}", executable, byoc_core.VirtualMachine(executable), session, gamma)

    def run_ours(self, x: Array) -> Array:
        """Return the first output by byoc."""
        result: Array = self.vm["main"](x)[0]
        return result

    def run_theirs(self, x: Array) -> Array:
        """Return the first output by ONNX Runtime."""
        result: Array = self.session.run(None, {self.session.get_inputs()[0].name: x})[0]
        return result

    def compare(self, ours: Array, theirs: Array) -> None:
        """Print the largest error; exit if the error exceeds the rounding of both programs.

        Each program rounds sums of up to K terms along the longest path, an error of at most gamma_K in relation to the
        absolute terms (Higham, Accuracy and Stability, ch. 3); the largest output stands for the absolute terms.
        """
        error, scale = float(np.abs(ours - theirs).max()), float(np.abs(theirs).max())
        bound = 2.0 * self.tolerance * scale
        print(f"  largest error {error:.2g} where the largest output is {scale:.3g} (bound {bound:.2g})")
        if not error <= bound:
            fail(f"{self.name}: the largest error is {error:.3g}; expected at most {bound:.3g}")

    def time(self, x: Array, num_rounds: int, num_calls: int) -> None:
        """Print the medians of both, run in turns beginning when the other's threads sleep, and the ratio of pairs."""
        samples = measure(
            {
                "byoc": time_call(lambda: self.run_ours(x), num_calls=num_calls, rest_s=_REST_S),
                "ONNX Runtime": time_call(lambda: self.run_theirs(x), num_calls=num_calls, rest_s=_REST_S),
            },
            num_rounds=num_rounds,
        )
        ours, theirs = samples["byoc"], samples["ONNX Runtime"]
        ratio = paired_ratio(theirs, ours)
        print(
            f"  batch {len(x):3}: byoc {ours.median * 1e3:8.3f} ms, ONNX Runtime {theirs.median * 1e3:8.3f} ms, "
            f"ratio {ratio.median:.2f} +- {ratio.quartile_deviation:.2f}"
        )


def fail(problem: str) -> NoReturn:
    """End the process with a problem."""
    print(f"FAILED: {problem}", file=sys.stderr)
    raise SystemExit(1)


def run_in_batches(pair: Pair, images: Array) -> tuple[Array, Array]:
    """Return the outputs of byoc and of ONNX Runtime over images cut into batches of several sizes."""
    stops = np.cumsum(BATCH_SIZES)
    batches = [np.ascontiguousarray(batch) for batch in np.split(images, stops[stops < len(images)])]
    ours = np.concatenate([pair.run_ours(batch) for batch in batches])
    theirs = np.concatenate([pair.run_theirs(batch) for batch in batches])
    print(f"  {len(images)} held-out digits in batches of {', '.join(str(len(batch)) for batch in batches)}")
    return ours, theirs


def check_digits(out: Path, name: str, configuration: str) -> npt.NDArray[np.int64]:
    """Run a digit classifier over the held-out digits and return the predictions."""
    print(f"\n{name} by {configuration}")
    pair = Pair.open(out, name, configuration)
    with np.load(out / "heldout.npz") as heldout:
        images, labels = heldout["images"], heldout["labels"]
    trained = json.loads((out / "trainer.json").read_text(encoding="utf-8"))[name]
    ours, theirs = run_in_batches(pair, images)
    predictions: npt.NDArray[np.int64] = ours.argmax(axis=1)
    accuracy = float((predictions == labels).mean())
    num_equal = int((predictions == theirs.argmax(axis=1)).sum())
    print(f"  accuracy {accuracy:.4f}, the trainer's own {trained:.4f}")
    print(f"  {num_equal} of {len(labels)} predictions equal ONNX Runtime's")
    pair.compare(ours, theirs)
    if num_equal != len(labels):
        fail(f"{pair.name}: predictions differ from ONNX Runtime's")
    for size in (1, 64, 450):
        pair.time(np.ascontiguousarray(images[:size]), num_rounds=7, num_calls=max(5, 200 // size))
    return predictions


def check_squeezenet(out: Path, configuration: str) -> None:
    """Run light_squeezenet on two seeded images and compare the inputs of the softmax."""
    name = "light_squeezenet"
    print(f"\n{name} by {configuration}")
    pair = Pair.open(out, name, configuration)
    with np.load(out / f"{name}_inputs.npz") as stored:
        images = [stored["first"], stored["second"]]
    ours = [pair.run_ours(image) for image in images]
    theirs = [pair.run_theirs(image) for image in images]
    difference = float((theirs[0] - theirs[1]).std() / theirs[0].std())
    print(f"  the outputs of two inputs differ by {difference:.2f} of the standard deviation")
    if difference <= 1e-2:
        fail(f"{pair.name}: the output does not depend on the input")
    pair.compare(np.concatenate(ours), np.concatenate(theirs))
    if any(int(mine.argmax()) != int(other.argmax()) for mine, other in zip(ours, theirs, strict=True)):
        fail(f"{pair.name}: the top class differs from ONNX Runtime's")
    pair.time(images[0], num_rounds=7, num_calls=5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and check every model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder written by the demo's first process")
    out = parser.parse_args(arguments).out
    block_compiler()
    print("\nsecond process: the compile side is blocked, and no C compiler can be found")
    print("times are medians, ONNX Runtime with its own choice of threads; byoc is faster at ratios above 1")
    is_native, reason = extension_status()
    print(f"native calls: {'yes' if is_native else reason}")
    for configuration in json.loads((out / "compiled.json").read_text(encoding="utf-8"))["configurations"]:
        for name in ("digits_cnn", "digits_mlp"):
            np.save(out / f"{name}.{configuration}_predictions.npy", check_digits(out, name, configuration))
        check_squeezenet(out, configuration)
    loaded = {name.split(".")[1] for name in sys.modules if name.startswith("byoc_core.")}
    print(f"\nparts of byoc_core in this process: {', '.join(sorted(loaded))}")
    if loaded - RUN_SIDE:
        fail(f"parts of the compile side were loaded: {', '.join(sorted(loaded - RUN_SIDE))}")


if __name__ == "__main__":
    main()
