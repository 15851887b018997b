"""Microseconds that the VM adds to a call of a one-region module, over calling the region's function itself."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
from byoc_core import script as R

from benchmarks.pairing import Samples, measure, time_call

NUM_CALLS = 2_000
MODULE = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((10, 10), "float32"), y: R.Tensor((10, 10), "float32")):
        lv0 = R.add(x, y)
        return lv0
"""


def run(num_rounds: int) -> dict[str, Any]:
    """Gives microseconds per call of the VM by position, into given buffers, and of the bare function."""
    executable = byoc_core.build(R.parse(MODULE))
    vm = byoc_core.VirtualMachine(executable)
    (region,) = executable.modules
    function = region.get_function(region.function_names[0])
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 10, 10), np.float32)
    result = np.empty((10, 10), np.float32)
    main = vm["main"]
    contestants = {
        "vm call": time_call(lambda: main(left, right), num_calls=NUM_CALLS),
        "vm call into buffers": time_call(
            lambda: vm.run("main", {"x": left, "y": right}, out={"output0": result}), num_calls=NUM_CALLS
        ),
        "checked function": time_call(lambda: function(left, right, result), num_calls=NUM_CALLS),
        "bare function": time_call(lambda: function.impl(left, right, result), num_calls=NUM_CALLS),
    }
    seconds = measure(contestants, num_rounds=num_rounds)
    samples = {name: Samples(tuple(value * 1e6 for value in found.values)) for name, found in seconds.items()}
    pairs = zip(samples["vm call"].values, samples["bare function"].values, strict=True)
    samples["vm overhead"] = Samples(tuple(above - below for above, below in pairs))
    for name, found in samples.items():
        print(f"  {name}: {found} us")
    return {"unit": "us", **{name: found.to_json() for name, found in samples.items()}}
