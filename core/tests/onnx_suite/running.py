"""A run of the suite's cases in processes of their own, with a deadline for each case."""

from __future__ import annotations

import signal
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import FrameType
from typing import Any

import onnx
from byoc_core.onnx_backend import OnnxBackend, PreparedModel
from byoc_core.opset.delegated import is_delegated
from onnx.backend.test import BackendTest

__all__ = ["CaseResult", "list_cases", "run_cases"]

_SECONDS = 120
_CASES_PER_CHUNK = 25


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The outcome of a case.

    Attributes:
        case: the name of the case.
        outcome: ``passed``, ``skipped`` or ``failed``.
        text: the error.
        tier: ``a``: a core op for each node; ``b``: several core ops; ``c``: delegated to the package ``onnx``; empty
            if nothing was compiled.
        shares: the share of the computing ops taken by each backend.
    """

    case: str
    outcome: str
    text: str
    tier: str
    shares: dict[str, float]


class _Recorder(OnnxBackend):
    """byoc on chosen backends; keeps the last model and its report."""

    backends: tuple[str, ...] = ()
    last: tuple[onnx.ModelProto, PreparedModel] | None = None

    @classmethod
    def recorded(cls) -> tuple[onnx.ModelProto, PreparedModel] | None:
        """Return the last model and its compiled form."""
        return cls.last

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        prepared = super().prepare(model, device, backends=list(cls.backends), **kwargs)
        cls.last = model, prepared
        return prepared


def _functions() -> dict[str, Callable[[Any], None]]:
    suite = BackendTest(_Recorder, __name__)
    return {
        name.removesuffix("_cpu"): item.func
        for category, items in suite._test_items.items()
        if category != "Real"  # of models in the network
        for name, item in items.items()
        if name.endswith("_cpu")
    }


def list_cases() -> list[str]:
    """Return the names of all cases, without models from the network."""
    return sorted(_functions())


def _stop(_: int, __: FrameType | None) -> None:
    raise TimeoutError(f"more than {_SECONDS} seconds")


def _run_chunk(cases: Sequence[str], backends: tuple[str, ...]) -> list[CaseResult]:
    warnings.simplefilter("ignore")
    _Recorder.backends = backends
    functions = _functions()
    return [_run_case(case, functions[case]) for case in cases]


def _run_case(case: str, function: Callable[[Any], None]) -> CaseResult:
    _Recorder.last = None
    outcome, text = "passed", ""
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(_SECONDS)
    try:
        function(None)
    except unittest.SkipTest as skip:
        outcome, text = "skipped", str(skip)
    except Exception as error:
        outcome, text = "failed", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    last = _Recorder.recorded()
    tier, shares = ("", {}) if last is None else _describe(*last)
    return CaseResult(case, outcome, text, tier, shares)


def _describe(model: onnx.ModelProto, prepared: PreparedModel) -> tuple[str, dict[str, float]]:
    rows = [row for row in prepared.executable.report_data["ops"] if row["outcome"] != "(view)"]
    takers = Counter(str(row["outcome"]) for row in rows)
    shares = {name: count / len(rows) for name, count in sorted(takers.items())}
    if any(is_delegated(str(row["op"])) for row in rows):
        return "c", shares
    return "a" if len(rows) <= len(model.graph.node) else "b", shares


def run_cases(cases: Sequence[str], backends: Sequence[str], jobs: int) -> Iterator[CaseResult]:
    """Run cases; yield the results in the order of the cases.

    Args:
        cases: names of cases.
        backends: the backends of the builds, in order; none for the host alone.
        jobs: the number of processes.
    """
    chunks = [cases[start : start + _CASES_PER_CHUNK] for start in range(0, len(cases), _CASES_PER_CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for results in pool.map(_run_chunk, chunks, [tuple(backends)] * len(chunks)):
            yield from results
