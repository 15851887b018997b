"""The time of ``import byoc_core`` on top of ``import numpy``, in milliseconds, each in fresh processes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks.pairing import Samples, measure

SCRIPT = "import time; start = time.perf_counter(); import {modules}; print((time.perf_counter() - start) * 1e3)"


def import_ms(modules: str) -> float:
    """Return the milliseconds of importing some modules in a fresh process."""
    script = SCRIPT.format(modules=modules)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(done.stdout)


def run(num_rounds: int) -> dict[str, Any]:
    """Return the time of numpy, of numpy and byoc_core, and the difference, round by round."""
    alone, both = "numpy", "numpy, byoc_core"
    samples = measure({alone: lambda: import_ms(alone), both: lambda: import_ms(both)}, num_rounds=num_rounds)
    pairs = zip(samples[both].values, samples[alone].values, strict=True)
    samples["added by byoc_core"] = Samples(tuple(more - less for more, less in pairs))
    for name, found in samples.items():
        print(f"  {name}: {found} ms")
    return {"unit": "ms", **{name: found.to_json() for name, found in samples.items()}}
