"""Instructions of a call, counted by callgrind: a figure untouched by noise.

Each round starts fresh Python processes under ``valgrind --tool=callgrind``, a process for each engine;
:mod:`benchmarks.counted_process` describes the counting. Only the calling thread counts: the other threads of ONNX
Runtime work at arbitrary times. valgrind 3.19 does not support AVX-512 and reports this to programs: numpy and ONNX
Runtime then choose AVX2, and byoc compiles for ``x86-64-v3``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calls import NO_PEER, has_peer
from benchmarks.counted_process import BYOC, DUMPS_PER_CALL, MARK, NUM_CALLS, PEER
from benchmarks.pairing import Samples
from benchmarks.tables import Table, add_slopes, show, table_to_json
from benchmarks.tiny_models import MODELS

COUNTED = ("add", "chain", "mixed", "regions-50")
MARCH = "x86-64-v3"
NO_VALGRIND = "valgrind is not installed: no instructions are counted (apt-get install valgrind)"
TIMEOUT_S = 1800


def run(num_rounds: int) -> dict[str, Any]:
    """Return the instructions of a call of each model in each way, over rounds of fresh processes."""
    if shutil.which("valgrind") is None:
        print(f"  {NO_VALGRIND}")
        return {"left out": NO_VALGRIND}
    if not has_peer():
        print(f"  {NO_PEER}")
    engines = (BYOC, *([PEER] if has_peer() else []))
    with tempfile.TemporaryDirectory() as folder:
        save_models(Path(folder))
        rounds = [
            {key: n for name in engines for key, n in count(name, Path(folder)).items()} for _ in range(num_rounds)
        ]
    table: Table = {}
    for variant, model in rounds[0]:
        table.setdefault(variant, {})[model] = Samples(tuple(found[variant, model] for found in rounds))
    add_slopes(table)
    show(f"instructions of a call, median of {num_rounds}", table, ",.0f")
    apart = {
        variant: {model: Samples((max(found.values) - min(found.values),)) for model, found in row.items()}
        for variant, row in table.items()
    }
    show("most less least", apart, ",.0f")
    return {"unit": "instructions", "calls": table_to_json(table)}


def save_models(folder: Path) -> None:
    """Write each model as an artifact, as ONNX and as statements; write the inputs of the model."""
    for name in COUNTED:
        model = MODELS[name]
        model.build(march=MARCH).save(folder / f"{name}.byoc")
        (folder / f"{name}.onnx").write_bytes(model.to_onnx())
        (folder / f"{name}.numpy").write_text(model.arithmetic, encoding="utf-8")
        np.savez(folder / f"{name}.npz", **model.draw_inputs())  # type: ignore[arg-type]  # none is `allow_pickle`


def count(engine: str, folder: Path) -> dict[tuple[str, str], float]:
    """Return the instructions of a call, by way and model, counted in a fresh process.

    Raises:
        RuntimeError: the process failed, or a dump of callgrind has no total.
    """
    with tempfile.TemporaryDirectory() as dumps:
        target = Path(dumps) / "callgrind.out"
        valgrind = [
            "valgrind",
            "--tool=callgrind",
            "--separate-threads=yes",
            f"--dump-before={MARK}",
            f"--callgrind-out-file={target}",
        ]
        command = [*valgrind, sys.executable, "-m", "benchmarks.counted_process", engine, str(folder), *COUNTED]
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
        keys = [tuple(line.split("\t")) for line in done.stdout.splitlines()]
        totals = [read_total(Path(f"{target}.{number}-01")) for number in range(1, DUMPS_PER_CALL * len(keys) + 1)]
    return {
        (variant, model): (twice - once) / NUM_CALLS
        for (variant, model), once, twice in zip(
            keys, totals[1::DUMPS_PER_CALL], totals[2::DUMPS_PER_CALL], strict=True
        )
    }


def read_total(path: Path) -> int:
    """Return the total instructions of a dump of callgrind."""
    found = re.search(r"^totals: (\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{path.name} has no total")
    return int(found[1])
