"""Times of a step of decoders with states on both machines of a session: Python's machine and the native machine.

The decoders are those of :mod:`benchmarks.decoders`, and a GPT-2-style decoder of six narrow layers, whose step mostly
is the cost of the call. Each sample makes 32 steps behind a prompt of 64 tokens, on one thread. The results of both
machines are compared to the last bit before.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import byoc_core
import numpy as np
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable

from benchmarks.decoders import BACKENDS, NUM_STEPS, STYLE, Decoder, build_decoders
from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.tables import Table, show, table_to_json
from benchmarks.zoo.gpt2 import Gpt2Config, build_gpt2
from benchmarks.zoo.graph_builder import STYLES

MACHINES: tuple[Literal["python", "native"], ...] = ("python", "native")
PROMPT = 64
NARROW = Gpt2Config(num_layers=6, hidden=24, num_heads=2, vocabulary=128, positions=PROMPT + NUM_STEPS)


def run(num_rounds: int) -> dict[str, Any]:
    """Return the microseconds of a step of each decoder on each machine, and the ratios."""
    decoders = {"narrow": Decoder(build_gpt2(NARROW, STYLES[STYLE]), has_positions=False), **build_decoders()}
    table: Table = {}
    for name, decoder in decoders.items():
        module = byoc_core.from_onnx(decoder.model, states=decoder.caches)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "decoder.byoc"
            byoc_core.build(module, BACKENDS).save(path)
            steps = {machine: _Steps(decoder, byoc_core.load(path, allow_native=True), machine) for machine in MACHINES}
            if len({each.run() for each in steps.values()}) != 1:
                raise ValueError(f"{name}: the machines give different results")
            samples = measure({machine: each.seconds for machine, each in steps.items()}, num_rounds=num_rounds)
        for machine, found in samples.items():
            table.setdefault(machine, {})[name] = Samples(tuple(1e6 * value / NUM_STEPS for value in found.values))
    ratios = {
        "python / native": {name: paired_ratio(table["python"][name], table["native"][name]) for name in decoders}
    }
    show("microseconds of a step", table)
    show("times slower on Python's machine", ratios)
    return {"unit": "us", "microseconds": table_to_json(table), "ratios": table_to_json(ratios)}


class _Steps:
    """Steps of a decoder on a machine, behind a prompt."""

    def __init__(self, decoder: Decoder, executable: Executable, machine: Literal["python", "native"]) -> None:
        self._machine = VirtualMachine(executable, machine=machine, num_threads=1)
        self._feeds = [decoder.feeds(np.array([[1 + step]]), PROMPT + step) for step in range(NUM_STEPS)]
        self._prompt = self._machine.new_state(capacity=PROMPT + NUM_STEPS)
        self._current = self._machine.new_state(capacity=PROMPT + NUM_STEPS)
        self._machine.run("main", decoder.prompt(PROMPT), state=self._prompt)

    def run(self) -> bytes:
        """Return the bytes of the results of all steps."""
        self._current.restart(self._prompt)
        return b"".join(self._machine.run("main", feeds, state=self._current).tobytes() for feeds in self._feeds)

    def seconds(self) -> float:
        """Return the seconds of all steps."""
        self._current.restart(self._prompt)
        start = time.perf_counter()
        for feeds in self._feeds:
            self._machine.run("main", feeds, state=self._current)
        return time.perf_counter() - start
