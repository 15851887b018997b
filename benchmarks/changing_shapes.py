"""Microseconds of a call with shapes changing from call to call: tiny models of any number of rows.

There is a single shape all the time, two in turn, or too many in turn for a cache of a few shapes. The inputs are made
beforehand. Picking the next inputs is part of every call, and has a separate row. With the buffers of ONNX Runtime
bound, each call binds the buffers anew.

The time is processor time of the calling thread, as in :mod:`benchmarks.call_overhead`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import byoc_core
import numpy as np
from byoc_core.artifact import Executable
from byoc_core.runtime.module import NDArray

from benchmarks.call_overhead import time_statement
from benchmarks.calls import NO_PEER, OUTPUT, Call, has_peer, peer_session, read_result
from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.tables import Table, show, table_to_json
from benchmarks.tiny_models import DYNAMIC, MODELS, TinyModel

PATTERNS: Mapping[str, Sequence[int]] = {"1": (10,), "2": (10, 11), "300": range(1, 301)}
"""Numbers of rows, by the number of shapes in turn."""
DYNAMIC_MODELS: Mapping[str, TinyModel] = {"chain": DYNAMIC, "mixed": replace(MODELS["mixed"], num_rows="n")}
RIVALS = {"byoc call": "ORT session.run", "byoc run into buffers": "ORT IO binding, bound anew"}

Feeds = Sequence[Mapping[str, NDArray]]


def run(num_rounds: int) -> dict[str, Any]:
    """Return microseconds per call of each model and pattern of shapes in each way, and the ratios to the peer."""
    if not has_peer():
        print(f"  {NO_PEER}")
    calls: dict[tuple[str, str], Call] = {}
    for name, model in DYNAMIC_MODELS.items():
        executable, data = model.build(), model.to_onnx()
        for pattern, rows in PATTERNS.items():
            feeds = [model.draw_inputs(num_rows) for num_rows in rows]
            variants = _byoc_calls(executable, feeds) | (_peer_calls(data, feeds) if has_peer() else {})
            _compare(model, f"{name}, {pattern}", variants, feeds)
            calls |= {(variant, f"{name}, {pattern}"): call for variant, call in variants.items()}
    seconds = measure({"/".join(key): time_statement(call) for key, call in calls.items()}, num_rounds=num_rounds)
    table: Table = {}
    for variant, column in calls:
        values = seconds[f"{variant}/{column}"].values
        table.setdefault(variant, {})[column] = Samples(tuple(value * 1e6 for value in values))
    ratios = {
        f"{rival} / {variant}": {
            column: paired_ratio(table[rival][column], ours) for column, ours in table[variant].items()
        }
        for variant, rival in RIVALS.items()
        if rival in table
    }
    show(f"microseconds of a call, medians of {num_rounds} rounds", table)
    show("times the peer takes longer, within rounds", ratios)
    return {"unit": "us", "microseconds": table_to_json(table), "ratios": table_to_json(ratios)}


def _byoc_calls(executable: Executable, feeds: Feeds) -> dict[str, Call]:
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    python = byoc_core.VirtualMachine(executable, num_threads=1, native=False)

    def names() -> dict[str, Any]:
        argument_lists = [tuple(feed.values()) for feed in feeds]
        pairs = [(feed, {OUTPUT: np.empty_like(next(iter(feed.values())))}) for feed in feeds]
        turn, into = itertools.cycle(argument_lists), itertools.cycle(pairs)
        return {"vm": machine, "python": python, "turn": turn, "into": into}

    return {
        "alone, the next inputs": Call("y = next(turn)", names(), ""),
        "byoc call": Call("y = vm['main'](*next(turn))", names(), "y"),
        "byoc run into buffers": Call(
            "feed, out = next(into); vm.run('main', feed, out=out)", names(), f"out[{OUTPUT!r}]"
        ),
        "byoc call, Python path": Call("y = python['main'](*next(turn))", names(), "y"),
    }


def _peer_calls(data: bytes, feeds: Feeds) -> dict[str, Call]:
    import onnxruntime

    session = peer_session(data, num_threads=1)
    binding = session.io_binding()
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    bound_values = [
        ([(name, value(array)) for name, array in feed.items()], value(np.empty_like(next(iter(feed.values())))))
        for feed in feeds
    ]
    bind = "values, out = next(into)\nfor name, value in values: binding.bind_ortvalue_input(name, value)"
    names = {"session": session, "binding": binding, "into": itertools.cycle(bound_values), "OUTPUT": OUTPUT}
    return {
        "ORT session.run": Call(
            "y = session.run(None, next(turn))", {"session": session, "turn": itertools.cycle(feeds)}, "y[0]"
        ),
        "ORT IO binding, bound anew": Call(
            f"{bind}\nbinding.bind_ortvalue_output(OUTPUT, out)\nsession.run_with_iobinding(binding)",
            names,
            "out.numpy()",
        ),
    }


def _compare(model: TinyModel, column: str, variants: Mapping[str, Call], feeds: Feeds) -> None:
    """Compare the results of each way over a turn of the inputs with numpy, to the last bit.

    After the turn, the next inputs of each way are the same as before.

    Raises:
        ValueError: a result differs from numpy's.
    """
    for feed in feeds:
        names: dict[str, Any] = dict(feed)
        exec(model.arithmetic, names)
        for variant, call in variants.items():
            if call.result and not np.array_equal(read_result(call), names[OUTPUT]):
                raise ValueError(f"{column}: {variant} gives another result than numpy")
