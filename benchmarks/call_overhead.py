"""Microseconds of calls with next to no arithmetic: tiny models, in every way to call of byoc and ONNX Runtime.

The time is processor time of the calling thread. On an idle machine this equals the time of a clock, because nothing
here is large enough to be shared among threads. On a busy machine, the time of other processes is left out.

All ways of all models run in the same rounds, after a comparison of the results. Beside these stand the parts of a
call, each by itself: a Python function, a fresh array for the result, a foreign call through ``ctypes``. The model
with a region on the host also has this region, and the call of numpy for the same op.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from byoc_core.artifact import Executable
from byoc_core.runtime.module import NDArray

from benchmarks.calls import NO_PEER, Call, byoc_calls, has_peer, numpy_call, peer_calls, peer_session, read_result
from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.tables import SHORTEST, SLOPE, Table, add_slopes, show, table_to_json
from benchmarks.tiny_models import MODELS

SAMPLE_S = 3e-3
"""Approximate seconds of a sample of each way: a disturbance of the machine then disturbs all ways alike."""
NUM_WARM_CALLS = 200
PEERS: Mapping[str, Mapping[str, Any]] = {
    "1 thread": {"num_threads": 1},
    "2 threads": {"num_threads": 2},
    "2 threads, no spinning": {"num_threads": 2, "spinning": False},
}
RIVALS = {"byoc call": "ORT session.run", "byoc bound": "ORT IO binding"}
TWO_THREADS = ", 2 threads"
GOALS = {
    variant + threads: {"add": most, "chain": most, SLOPE: 0.2}
    for variant, most in {"byoc call": 3.0, "byoc bound": 1.5}.items()
    for threads in ("", TWO_THREADS)
}
"""Goals in microseconds, by way and model."""


def run(num_rounds: int) -> dict[str, Any]:
    """Return microseconds per call of each model in each way, the cost of a further region, and ratios to the peer."""
    if not has_peer():
        print(f"  {NO_PEER}")
    calls = {(variant, model): call for model in MODELS for variant, call in list_calls(model).items()}
    contestants = {"/".join(key): time_statement(call) for key, call in calls.items()}
    seconds = measure(contestants, num_rounds=num_rounds)
    table: Table = {}
    for variant, model in calls:
        values = seconds[f"{variant}/{model}"].values
        table.setdefault(variant, {})[model] = Samples(tuple(value * 1e6 for value in values))
    add_slopes(table)
    ratios = peer_ratios(table)
    show(f"microseconds of a call, medians of {num_rounds} rounds", table)
    show(
        "of the goal",
        {
            variant: {model: scaled(table[variant][model], goal) for model, goal in GOALS[variant].items()}
            for variant in GOALS
        },
    )
    show("times the peer takes longer, within rounds", ratios)
    return {
        "unit": "us",
        "goals": GOALS,
        "peer settings": PEERS,
        "microseconds": table_to_json(table),
        "ratios": table_to_json(ratios),
    }


def scaled(samples: Samples, unit: float) -> Samples:
    """Return samples in another unit."""
    return Samples(tuple(value / unit for value in samples.values))


def list_calls(name: str) -> dict[str, Call]:
    """Return all ways to call a model; for the shortest model also the parts of a call.

    Raises:
        ValueError: two ways have different results.
    """
    model = MODELS[name]
    executable, inputs = model.build(), model.draw_inputs()
    calls = byoc_calls(executable, inputs)
    shared = byoc_calls(executable, inputs, num_threads=2)
    calls |= {variant + TWO_THREADS: shared[variant] for variant in RIVALS}
    if has_peer():
        for label, settings in PEERS.items():
            session = peer_session(model.to_onnx(), **settings)
            calls |= {f"{variant}, {label}": call for variant, call in peer_calls(session, inputs).items()}
    calls["numpy"] = numpy_call(model.arithmetic, inputs)
    compare_results(name, calls)
    if name == SHORTEST:
        calls |= parts(executable, inputs)
    elif model.on_host:
        calls |= host_parts(executable, inputs)
    return calls


def compare_results(model: str, calls: Mapping[str, Call]) -> None:
    """Check that all ways of a model agree to the last bit: all compute the same float32 ops in the same order.

    Raises:
        ValueError: two ways differ.
    """
    first, *further = ((variant, read_result(call)) for variant, call in calls.items())
    for variant, result in further:
        if not np.array_equal(result, first[1]):
            raise ValueError(f"{model}: {variant} gives another result than {first[0]}")


def parts(executable: Executable, inputs: Mapping[str, NDArray]) -> dict[str, Call]:
    """Return the parts of a call, each by itself."""
    (region,) = executable.modules
    function = region.get_function(region.function_names[0])
    (shape,) = {array.shape for array in inputs.values()}
    names = {**inputs, "function": function.impl, "y": np.empty(shape, np.float32), "np": np, "nothing": lambda: None}
    return {
        "alone, a Python function that does nothing": Call("nothing()", names, ""),
        "alone, a fresh array": Call(f"np.empty({shape}, np.float32)", names, ""),
        "alone, the region's function through ctypes": Call(f"function({', '.join(inputs)}, y)", names, ""),
    }


def host_parts(executable: Executable, inputs: Mapping[str, NDArray]) -> dict[str, Call]:
    """Return the host's region of a single subtraction, and the subtraction in numpy into a separate buffer."""
    (region,) = (module for module in executable.modules if module.type_key == "graph")
    function = region.get_function(region.function_names[0])
    x, y, *_ = inputs.values()
    names = {"x": x, "y": y, "out": np.empty_like(x), "function": function.impl, "subtract": np.subtract}
    return {
        "alone, the host's region": Call("function(x, y, out)", names, ""),
        "alone, numpy's call for it": Call("subtract(x, y, out=out)", names, ""),
    }


def time_statement(call: Call) -> Callable[[], float]:
    """Return a contestant running a warm call in a bare loop and returning the mean seconds of this thread."""
    timer = timeit.Timer(call.statement, timer=time.thread_time, globals=dict(call.names))
    timer.timeit(NUM_WARM_CALLS)
    num_calls = max(1, round(SAMPLE_S * NUM_WARM_CALLS / min(timer.repeat(3, NUM_WARM_CALLS))))

    def contestant() -> float:
        timer.timeit(max(1, num_calls // 10))
        return timer.timeit(num_calls) / num_calls

    return contestant


def peer_ratios(table: Table) -> Table:
    """Return the time of the peer over the time of byoc in the corresponding way, round by round."""
    rivals = [
        (variant + (TWO_THREADS if settings["num_threads"] == 2 else ""), f"{rival}, {label}")
        for variant, rival in RIVALS.items()
        for label, settings in PEERS.items()
    ]
    return {
        f"{rival} / {variant.removeprefix('byoc ').removesuffix(TWO_THREADS)}": {
            model: paired_ratio(table[rival][model], ours) for model, ours in table[variant].items()
        }
        for variant, rival in rivals
        if rival in table
    }
