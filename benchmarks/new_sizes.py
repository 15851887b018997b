"""The first call of a size over the following calls: an encoder and ResNet-18 at fresh sizes, beside ONNX Runtime.

Sizes are drawn once, and come in the same random order for all engines. Each size gets a first call and five steady
calls. A ratio is the time of the first call over the median of the steady calls of the same size. Ratios are taken by
the clock and by processor time of the process: others on the machine disturb the second less. With spinning threads,
processor time counts the spinning too.

Each engine runs in a fresh process, in which two calls of another size come first. Outputs at the first sizes are
compared with ONNX Runtime's before the figures are shown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calls import NO_PEER, has_peer
from benchmarks.new_sizes_process import ENGINES, HOST, MODELS, PEER
from benchmarks.pairing import Samples, paired_ratio
from benchmarks.tables import Table, show, table_to_json
from benchmarks.zoo.accuracy import relative_error

__all__ = ["run"]

THREADS = (1, 2)
LARGEST_ERROR = 1e-3
"""The largest permitted difference from ONNX Runtime's outputs, over the largest magnitude of an output."""


def run(num_sizes: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return milliseconds of first and steady calls, and ratios, by engine with threads and by model.

    Args:
        num_sizes: fresh sizes of each model.
        models: names of models; ``host`` among the names adds the host's kernels without a backend.

    Raises:
        ValueError: a model is unknown, or an engine's outputs differ from ONNX Runtime's.
    """
    model_names = [name for name in models or MODELS if name != HOST] or list(MODELS)
    if unknown := set(model_names) - set(MODELS):
        raise ValueError(f"no model {min(unknown)!r}; expected {HOST!r} or one of {', '.join(map(repr, MODELS))}")
    engines = [engine for engine in ENGINES if engine != HOST or HOST in (models or ())]
    if has_peer():
        engines = [PEER, *engines]
    else:
        print(f"  {NO_PEER}")
    tables: dict[str, Table] = {}
    for name in model_names:
        for num_threads in THREADS:
            expected: Mapping[str, Any] = {}
            for engine in engines:
                found, outputs = _measure(name, engine, num_threads, num_sizes)
                expected = outputs if engine == PEER else expected
                _compare(f"{name}, {engine}", outputs, expected)
                row = f"{engine}, {num_threads} thread{'s' if num_threads > 1 else ''}"
                for title, samples in _figures(found).items():
                    tables.setdefault(title, {}).setdefault(row, {})[name] = samples
        for title, table in tables.items():
            show(title, {row: {name: cells[name]} for row, cells in table.items() if name in cells})
    return {"unit": "ms", **{title: table_to_json(table) for title, table in tables.items()}}


def _measure(name: str, engine: str, num_threads: int, num_sizes: int) -> tuple[dict[str, Samples], Mapping[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outputs.npz"
        arguments = [name, engine, str(num_threads), str(num_sizes), str(path)]
        command = [sys.executable, "-m", "benchmarks.new_sizes_process", *arguments]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(num_threads)}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        values = json.loads(done.stdout.splitlines()[-1])
        return {key: Samples(tuple(found)) for key, found in values.items()}, dict(np.load(path))


def _compare(label: str, outputs: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for key, array in expected.items():
        error = relative_error(outputs[key], array)
        if not error <= LARGEST_ERROR:
            raise ValueError(f"{label}, output {key}: differs from {PEER}'s by {error:.2g} of the largest magnitude")


def _figures(found: Mapping[str, Samples]) -> dict[str, Samples]:
    """Return the figures of an engine by title."""
    figures: dict[str, Samples] = {}
    for kind, unit in (("wall", "clock"), ("processor", "processor")):
        ratios = paired_ratio(found[f"first {kind}"], found[f"steady {kind}"])
        figures[f"first over steady calls, {unit}, ratios"] = ratios
        percentile = float(np.percentile(ratios.values, 90))
        figures[f"ninetieth percentile, {unit}, ratios"] = Samples((percentile,))
    for call in ("first", "steady"):
        milliseconds = tuple(1e3 * value for value in found[f"{call} processor"].values)
        figures[f"{call} calls, processor time in ms"] = Samples(milliseconds)
    return figures
