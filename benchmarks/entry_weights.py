"""Bytes of weights in artifacts of two entries, and in memory: a prompt by one entry, a step of a token by the other.

The entries ``prefill`` (any number of tokens) and ``decode`` (a token) are the decoders of :mod:`benchmarks.decoders`
over the same weights, without states; both continue a past. A fresh process loads the artifact, runs both entries, and
counts resident pages: pages of the artifact are weights read by calls; other pages are packed weights, intermediates
and objects. Further rows count machines for other numbers of threads, and a second load of the artifact. Swappable
weights take the place of constants in further rows, and in ratios of times. Linux only: pages are read from ``/proc``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.artifact import Executable
from byoc_core.ir import merge_modules
from byoc_core.partitioning import PartitionOptions
from byoc_core.runtime.module import NDArray
from onnx import numpy_helper

from benchmarks.decoders import Decoder, build_decoders
from benchmarks.memory import save_inputs, save_warm_up
from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.tables import Table, show, table_to_json
from benchmarks.zoo.fixed_sizes import fix_sizes

PROMPT = 64
ENTRIES = ("prefill", "decode")
KINDS = {"constants": False, "swappable": True}
VARIANTS: Mapping[str, tuple[list[str], dict[str, str]]] = {
    "ccompiler": (["ccompiler"], {}),
    "dnnl": (["dnnl", "ccompiler"], {}),
    "both": (["dnnl", "ccompiler"], {"decode/*": "ccompiler"}),
}
SCRIPT = """
import gc, json, sys, numpy as np, byoc_core

def anonymous():
    gc.collect()
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))

def mapped(path):
    # Pages of a file mapped twice count once: the proportional share of a process alone with the file.
    total, is_file = 0, False
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            is_file = words[-1] == path
        elif is_file and words[0] == "Pss:":
            total += int(words[1]) * 1024
    return total

def run(executable, calls, num_threads):
    machine = byoc_core.VirtualMachine(executable, num_threads=num_threads)
    for name, inputs in calls:
        machine.run(name, {name: np.load(file) for name, file in inputs.items()})
    return machine

warm_up, warm_up_inputs, artifact, calls = sys.argv[1:]
calls = json.loads(calls)
run(byoc_core.load(warm_up, allow_native=True), [("main", json.loads(warm_up_inputs))], 1)
before = anonymous()
first = byoc_core.load(artifact, allow_native=True)
found, machines = {}, []
for title, threads in (("one machine", 1), ("machines of 1 and 2 threads", 2), ("two loads", 1)):
    executable = byoc_core.load(artifact, allow_native=True) if title == "two loads" else first
    machines.append(run(executable, calls, threads))
    found[title] = [mapped(artifact), anonymous() - before]
print(json.dumps(found))
"""


def run(num_rounds: int) -> dict[str, Any]:
    """Return bytes of constants and of resident pages, and the times with swappable weights over those of constants."""
    table: Table = {}
    ratios: Table = {}
    for name, decoder in build_decoders().items():
        weights = sum(numpy_helper.to_array(weight).nbytes for weight in decoder.model.graph.initializer)
        table.setdefault("weights of the ONNX model", {})[name] = Samples((float(weights),))
        for title, (backends, force) in VARIANTS.items():
            found = {}
            for kind, is_swappable in KINDS.items():
                found[kind] = build_entries(decoder, backends, force, is_swappable=is_swappable)
                for row, nbytes in _count(decoder, found[kind]).items():
                    table.setdefault(f"{title}, {kind}: {row}", {})[name] = Samples((float(nbytes),))
            for entry, ratio in _compare(decoder, found, num_rounds).items():
                ratios.setdefault(f"{title}: {entry}", {})[name] = ratio
    show(f"bytes, prompt of {PROMPT} tokens and a step", table, ",.0f")
    show("processor time with swappable weights over constants", ratios, ".3f")
    return {"unit": "bytes", "bytes": table_to_json(table), "ratios": table_to_json(ratios)}


def _compare(decoder: Decoder, executables: Mapping[str, Executable], num_rounds: int) -> dict[str, Samples]:
    """Return the processor time of each entry with swappable weights over the time with constants, on one thread."""
    contestants = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, executable in executables.items():
            path = Path(folder) / f"{kind}.byoc"
            executable.save(path)
            machine = byoc_core.VirtualMachine(byoc_core.load(path, allow_native=True), num_threads=1)
            for entry, inputs in _calls(decoder).items():
                num_calls = 10 if entry == "decode" else 1
                contestants[f"{kind} {entry}"] = _timed(partial(machine.run, entry, inputs), num_calls)
        times = measure(contestants, num_rounds=num_rounds)
    constants, swappable = KINDS
    return {entry: paired_ratio(times[f"{swappable} {entry}"], times[f"{constants} {entry}"]) for entry in ENTRIES}


def _timed(call: Callable[[], object], num_calls: int) -> Callable[[], float]:
    def contestant() -> float:
        start = time.process_time()
        for _ in range(num_calls):
            call()
        return time.process_time() - start

    return contestant


def _calls(decoder: Decoder) -> dict[str, dict[str, NDArray]]:
    """Return the inputs of each entry."""
    caches = {
        name: np.zeros((*array.shape[:2], PROMPT, array.shape[3]), np.float32)
        for name, array in decoder.empty_caches().items()
    }
    prefill, decode = ENTRIES
    return {
        prefill: decoder.feeds(np.arange(1, 1 + PROMPT)[None], PROMPT) | caches,
        decode: decoder.feeds(np.array([[1]]), PROMPT) | caches,
    }


def build_entries(decoder: Decoder, backends: list[str], force: Mapping[str, str], *, is_swappable: bool) -> Executable:
    """Return a program with the entries ``prefill`` and ``decode`` of a decoder."""
    step = onnx.ModelProto()
    step.CopyFrom(decoder.model)
    models = {"prefill": decoder.model, "decode": fix_sizes(step, {"batch": 1, "sequence": 1, "past": PROMPT})}
    modules = {name: byoc_core.from_onnx(model, swappable_weights=is_swappable) for name, model in models.items()}
    options = PartitionOptions(force=force)
    return byoc_core.build(merge_modules(modules), backends, partition_options=options)


def _count(decoder: Decoder, executable: Executable) -> dict[str, int]:
    """Return the bytes of constants in the artifact, and of resident pages in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        save_warm_up(path, "ccompiler")
        executable.save(path / "decoder.byoc")
        ones = {name: np.ones(shape, np.float32) for name, shape in (("x", (1, 8, 32, 32)), ("w", (8, 8, 3, 3)))}
        saved = [(name, json.loads(save_inputs(path / name, inputs))) for name, inputs in _calls(decoder).items()]
        warm_up = [str(path / "warm_up.byoc"), save_inputs(path / "warm_up", ones)]
        command = [sys.executable, "-c", SCRIPT, *warm_up, str(path / "decoder.byoc"), json.dumps(saved)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        constants = {digest: array.nbytes for digest, array in executable.constants.items()}
    rows = {"in the artifact": sum(constants.values())}
    for title, (mapped, anonymous) in found.items():
        rows |= {f"{title}, pages of the artifact": mapped, f"{title}, other pages": anonymous}
    return rows
