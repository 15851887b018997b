"""Calls of exported models with data-dependent sizes and control flow: both machines of a session, beside ONNX Runtime.

The models are exported by PyTorch (`benchmarks.zoo.exports`; needs torch and the packages of `nox -s exports`).
``--models`` names exports. The results of both machines are compared to the last bit before. All contestants run in one
process, in turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import byoc_core
import numpy as np

from benchmarks.calls import NO_PEER, has_peer, peer_session
from benchmarks.pairing import Samples, measure, paired_ratio, time_call
from benchmarks.tables import Table, show, table_to_json
from benchmarks.zoo.exports import list_exports

MODELS = (
    "selective-scan-loop/torchscript",
    "embedding-bag/dynamo",
    "wav2vec2/dynamo",
    "ssd/torchscript",
    "yolo/torchscript",
    "faster-rcnn/torchscript",
    "mask-rcnn/torchscript",
)
PYTHON: Literal["python"] = "python"
AUTO: Literal["auto"] = "auto"
PEER = "onnxruntime"
SAMPLE_S = 0.02
"""Approximate seconds of a sample."""


def run(num_rounds: int, models: Sequence[str] | None) -> dict[str, Any]:
    """Return the milliseconds of a call of each model by each contestant, on one and two threads, and the ratios."""
    if not has_peer():
        print(f"  {NO_PEER}")
    figure: dict[str, Any] = {"unit": "ms", "rows_are": "contestant"}
    for num_threads in (1, 2):
        table: Table = {}
        for name in models or MODELS:
            for contestant, samples in _measure(name, num_threads, num_rounds).items():
                table.setdefault(contestant, {})[name] = samples
        ratios = {
            f"{slower} / {AUTO}": {
                name: paired_ratio(table[slower][name], samples) for name, samples in table[AUTO].items()
            }
            for slower in (PYTHON, PEER)
            if slower in table
        }
        threads = f"{num_threads} thread{'s' if num_threads > 1 else ''}"
        show(f"milliseconds of a call, {threads}, medians of {num_rounds} rounds", table)
        show(f"times slower than `auto`, {threads}", ratios)
        figure |= {f"{threads}, milliseconds": table_to_json(table), f"{threads}, ratios": table_to_json(ratios)}
    return figure


def _measure(name: str, num_threads: int, num_rounds: int) -> dict[str, Samples]:
    export = list_exports()[name]
    feeds = dict(export.draw(np.random.default_rng(1), export.sizes[-1]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export.write(path)
        sessions: dict[str, Any] = {
            machine: byoc_core.Session(path, num_threads=num_threads, machine=machine) for machine in (PYTHON, AUTO)
        }
        if has_peer():
            sessions[PEER] = peer_session(str(path), num_threads=num_threads)
        print(f"  {name}: {sessions[AUTO].machine}")
        pairs = zip(sessions[PYTHON].run(None, feeds), sessions[AUTO].run(None, feeds), strict=True)
        if any(python.tobytes() != found.tobytes() for python, found in pairs):
            raise ValueError(f"{name}: the machines give different results")
        calls = {contestant: partial(session.run, None, feeds) for contestant, session in sessions.items()}
        seconds = max(time_call(call)() for call in calls.values())
        num_calls = max(1, int(SAMPLE_S / seconds))
        contestants = {contestant: time_call(call, num_calls=num_calls) for contestant, call in calls.items()}
        samples = measure(contestants, num_rounds=num_rounds)
    return {contestant: Samples(tuple(1e3 * value for value in found.values)) for contestant, found in samples.items()}
