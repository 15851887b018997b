"""Calibration: layers of all families of ops, measured on each backend, and kept in the database of measured ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Unpack

from byoc_core.backend import BackendHandle
from byoc_core.driver import Compiler, CompileRequest, RequestFields, gather_request
from byoc_core.driver.automatic import compiling_backends
from byoc_core.errors import ByocError, OptionsError
from byoc_core.ir import IRModule
from byoc_core.measurements import USER_DATABASE, Measurement, Measurements, merged
from byoc_core.measurements.predictions import FamilyPredictions, predict, table_of
from byoc_core.partitioning import GreedyByOrder
from byoc_core.partitioning.partition import partition
from byoc_core.runtime.threads import num_threads as process_threads
from byoc_core.tuning.layers import LAYER_GROUPS, Layer, LayerGroup, build_layers
from byoc_core.tuning.op_times import MeasuredOp, RecordingPolicy, measured_ops, measurements_of, repeated_profile

__all__ = ["CalibrationResult", "calibrate"]

_LAYER_S = 0.01
"""Seconds of the measurement of a layer, but at least six profiles."""


@dataclass(frozen=True)
class CalibrationResult:
    """The outcome of a calibration.

    Attributes:
        rows: the measured ops.
        predictions: predicted over measured seconds by backend, threads and family.
        is_complete: whether all layers were measured.
    """

    rows: tuple[Measurement, ...]
    predictions: tuple[FamilyPredictions, ...]
    is_complete: bool

    def __str__(self) -> str:
        return table_of(self.predictions)


def calibrate(
    backends: Sequence[str | object] | None = None,
    *,
    num_threads: int | Iterable[int] | None = None,
    seconds: float = 60.0,
    measurements: Measurements | None = USER_DATABASE,
    groups: Sequence[LayerGroup] = LAYER_GROUPS,
    request: CompileRequest | None = None,
    compiler: Compiler | None = None,
    progress: Callable[[str], object] | None = None,
    **fields: Unpack[RequestFields],
) -> CalibrationResult:
    """Measure layers of all families of ops on each backend, for placements by cost on this machine.

    The layers are compiled, and measured in place by profiles of real calls. The database keeps the times after each
    group of layers. ``KeyboardInterrupt`` ends the calibration and keeps the measured ops.

    Args:
        backends: names or plugin objects; by default all installed backends able to compile here.
        num_threads: the numbers of threads of the calls; by default 1 and the number of the process.
        seconds: the budget; the first group is measured in any case.
        measurements: the database, by default the user's; ``None``: nothing is kept.
        groups: the layers.
        request: further choices of the compilation; ``fields`` override its values.
        compiler: has the backends for names.
        progress: called with a line for each group and backend.
        fields: the fields of :class:`byoc_core.CompileRequest`, explained there.

    Raises:
        OptionsError: no backend is able to compile here, or a number is out of range.
        ArtifactError: the database is damaged, or cannot be written.
        ByocError: with strict backends, a layer cannot be compiled.
    """
    if seconds < 0:
        raise OptionsError("calibrate, seconds", "is negative", got=seconds)
    counts = [1, process_threads()] if num_threads is None else num_threads
    threads = sorted({counts} if isinstance(counts, int) else {*counts})
    if not threads or threads[0] < 1:
        raise OptionsError("calibrate, num_threads", "has a bad value", got=repr(num_threads), expected="1 or more")
    compiler = compiler or Compiler()
    base = gather_request(request, backends, fields)
    handles = compiling_backends(base, compiler.backends, "calibrate, backends")
    if measurements is not None:
        measurements.rows(backend="")  # a damaged file is an error before any measurement
    run = _Run(compiler, base, threads, monotonic() + seconds, progress or (lambda _line: None))
    try:
        is_complete = run.measure(handles, groups, measurements)
    except KeyboardInterrupt:
        is_complete = False
    rows = merged(run.rows)
    return CalibrationResult(tuple(rows), tuple(predict(rows)), is_complete)


class _Run:
    """A calibration in progress."""

    def __init__(
        self,
        compiler: Compiler,
        request: CompileRequest,
        threads: Sequence[int],
        deadline: float,
        say: Callable[[str], object],
    ) -> None:
        self._compiler = compiler
        self._request = request
        self._threads = threads
        self._deadline = deadline
        self._say = say
        self.rows: list[Measurement] = []

    def measure(
        self, handles: Sequence[BackendHandle], groups: Sequence[LayerGroup], measurements: Measurements | None
    ) -> bool:
        """Measure all groups on all backends until the deadline; return whether all were measured."""
        for number, group in enumerate(groups):
            for handle in handles:
                if number and monotonic() > self._deadline:
                    return False
                start = monotonic()
                rows = self._measure_group(handle, group)
                self.rows += rows
                if measurements is not None:
                    measurements.add(rows)
                self._say(f"{handle.name}: {group.name}, {len(rows)} measured ops, {monotonic() - start:.1f} s")
        return True

    def _measure_group(self, handle: BackendHandle, group: LayerGroup) -> list[Measurement]:
        """Return the measurements of the layers taken by a backend; nothing if the layers do not compile."""
        options = self._request.options.get(handle.name, {})
        try:
            layers = [layer for layer in group.layers if _is_taken(layer, handle, options)]
            return self._measure_model(handle, *build_layers(layers)) if layers else []
        except ByocError as error:
            if self._request.is_strict:
                raise
            self._say(f"{handle.name}: {group.name} left out: {error}")
            return []

    def _measure_model(
        self, handle: BackendHandle, module: IRModule, inputs: Mapping[str, Mapping[str, Any]]
    ) -> list[Measurement]:
        policy = RecordingPolicy(GreedyByOrder())
        request = self._request.updated(backends=[handle], policy=policy, placement=None)
        executable = self._compiler.build(module, request)
        rows: list[Measurement] = []
        for threads in self._threads:
            assert policy.module is not None
            ops: list[MeasuredOp] = []
            for function, arrays in inputs.items():
                found, samples = repeated_profile(executable, arrays, _LAYER_S, threads, function)
                ops += measured_ops(found, handle.name, policy.module, scale=False)
            options = self._request.options.get(handle.name, {})
            rows += measurements_of(ops, policy, handle, options, {}, threads, samples)
        return rows


def _is_taken(layer: Layer, handle: BackendHandle, options: Mapping[str, object]) -> bool:
    """Return whether a backend takes an op of a layer: other layers would run on the slow host."""
    module, _ = build_layers([layer])
    parted = partition(module, [handle], options={handle.name: options})
    return any("Codegen" in function.attrs for function in parted.functions.values())
