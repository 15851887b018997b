"""Single ops beside ONNX Runtime: by cost, and by each backend alone, to find slow kernels and wrong choices.

Calls of a model are interleaved with the peer's calls. Outputs are compared first. The list at the end has the ops
slower than the peer, and the ops with a choice slower than the better backend. Random ops are other ops than the random
ops in tables of costs: the loss by wrong choices there is the loss expected of unknown networks.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
from byoc_core.errors import ByocError
from byoc_core.runtime.module import NDArray

from benchmarks.calls import has_peer
from benchmarks.pairing import Samples, measure, paired_ratio, time_call
from benchmarks.random_ops import list_random_ops
from benchmarks.single_ops import SingleOp, list_single_ops

__all__ = ["run", "run_random"]

BY_COST, PEER = "by cost", "onnxruntime"
_BACKENDS = ("ccompiler", "dnnl")
_SLOW, _MISPLACED = 0.9, 0.85
_BUDGET_S, _MOST_CALLS = 0.03, 1000
_SEED = 1000
"""The seed of random ops; tables of costs have ops of other seeds."""
_TOLERANCE = 1e-3
"""The largest distance of finite outputs over the largest: beyond, ops are not the same."""

Call = Callable[[], Sequence[NDArray]]


def run(num_rounds: int, models: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Return the seconds of each op by contestant, and the ratios to the peer.

    Args:
        num_rounds: the number of rounds of each op.
        models: words of the names of the ops; ``None`` for all.
    """
    cases = list_single_ops()
    return _run([case for case in cases if models is None or any(word in case.name for word in models)], num_rounds)


def run_random(num_rounds: int, sizes: Sequence[int]) -> Mapping[str, Any]:
    """Return the figures of random ops; print the share of the better backend's speed reached by cost.

    Args:
        num_rounds: the number of rounds of each op.
        sizes: numbers of ops; the ops of each number are drawn by a seed of their own.
    """
    figures = {}
    for index, count in enumerate(sizes):
        found = _run(list_random_ops(count, _SEED + index), num_rounds)
        _print_choices(found["ops"])
        figures[str(count)] = found
    return figures


def _run(cases: Iterable[SingleOp], num_rounds: int) -> Mapping[str, Any]:
    figures: dict[str, Any] = {}
    slow, misplaced = [], []
    print(f"  {'op':{_NAME_WIDTH}}{'by cost':>12}{'ccompiler':>12}{'dnnl':>12}{'onnxruntime':>12}{'ratio':>8}")
    for case in cases:
        samples = _measure(case, num_rounds)
        if BY_COST not in samples:
            continue
        figures[case.name] = {name: found.to_json() for name, found in samples.items()}
        cells = [f"{samples[name].best * 1e6:12.1f}" if name in samples else " " * 12 for name in _CONTESTANTS]
        alone = [samples[name].best for name in _BACKENDS if name in samples]
        if alone:
            figures[case.name]["choice"] = choice = min(alone) / samples[BY_COST].best
            if choice < _MISPLACED:
                misplaced.append(case.name)
        ratio = ""
        if PEER in samples:
            share = paired_ratio(samples[PEER], samples[BY_COST]).median
            figures[case.name]["ratio"] = share
            ratio = f"{share:8.2f}"
            if share < _SLOW:
                slow.append(f"{case.name} ({share:.2f})")
        print(f"  {case.name:{_NAME_WIDTH}}{''.join(cells)}{ratio}  us", flush=True)
    print(f"  slower than the peer: {', '.join(slow) or 'none'}")
    print(f"  not on the better backend: {', '.join(misplaced) or 'none'}")
    return {"ops": figures, "slow": slow, "misplaced": misplaced}


_CONTESTANTS = (BY_COST, *_BACKENDS, PEER)
_NAME_WIDTH = 50


def _print_choices(figures: Mapping[str, Any]) -> None:
    """Print geometric means by op: the speed by cost over the better backend's, and over the peer's."""
    by_op: dict[str, list[Mapping[str, Any]]] = {}
    for name, figure in figures.items():
        by_op.setdefault(name.split()[0], []).append(figure)
    for op, found in (*sorted(by_op.items()), ("all", list(figures.values()))):
        means = (_mean([figure[key] for figure in found if key in figure]) for key in ("choice", "ratio"))
        print("  {:24} {:4} ops: {:5.2f} of the better backend, {:6.2f} of the peer".format(op, len(found), *means))


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def _measure(case: SingleOp, num_rounds: int) -> dict[str, Samples]:
    model, inputs = case.to_onnx(), case.draw()
    calls: dict[str, Call] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        for name, backends in ((BY_COST, "auto"), *((name, [name]) for name in _BACKENDS)):
            try:
                calls[name] = _session_call(path, backends, inputs)
            except ByocError as error:
                print(f"  {case.name}: {name}: {str(error)[:150]}", flush=True)
        if has_peer():
            peer = _peer_call(path, inputs)
            if peer is not None:
                calls[PEER] = peer
    results = {}
    for name in list(calls):
        try:
            results[name] = calls[name]()
        except ByocError as error:
            print(f"  {case.name}: {name}: {str(error)[:150]}", flush=True)
            del calls[name]
    expected = results.get(PEER, next(iter(results.values()), []))
    for name in [name for name in results if not _are_equal(results[name], expected)]:
        print(f"  {case.name}: {name}: the outputs differ: no figure", flush=True)
        del calls[name]
    contestants = {}
    for name, call in calls.items():
        seconds = time_call(call)()
        count = max(1, min(_MOST_CALLS, int(_BUDGET_S / max(seconds, 1e-7))))
        contestants[name] = time_call(call, num_calls=count)
    return measure(contestants, num_rounds=num_rounds)


def _session_call(path: Path, backends: str | Sequence[str], inputs: Mapping[str, NDArray]) -> Call:
    session = byoc_core.Session(path, backends=backends, num_threads=1)
    return lambda: list(session.run(None, inputs))


def _peer_call(path: Path, inputs: Mapping[str, NDArray]) -> Call | None:
    """Return a call of ONNX Runtime on one thread; ``None`` if the peer lacks the op."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
    return lambda: session.run(None, dict(inputs))


def _are_equal(results: Sequence[NDArray], expected: Sequence[NDArray]) -> bool:
    """Return whether outputs are equal: integers and booleans exactly, floats to a share of the largest number."""
    for result, answer in zip(results, expected, strict=True):
        if result.shape != answer.shape or result.dtype != answer.dtype:
            return False
        finite = np.isfinite(answer) if answer.dtype.kind == "f" else np.zeros(answer.shape, bool)
        if not np.array_equal(result[~finite], answer[~finite], equal_nan=answer.dtype.kind == "f"):
            return False
        if finite.any():
            near = np.abs(answer[finite].astype("float64"))
            distance = np.abs(result[finite].astype("float64") - answer[finite])
            if not distance.max() <= _TOLERANCE * (near.max() or 1.0):
                return False
    return True
