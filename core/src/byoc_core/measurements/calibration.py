"""Estimates corrected by measurements: the time of an op if measured, else a factor of the op's family."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from byoc_core.ir import Function
from byoc_core.measurements.keys import op_family, op_key, structure_of
from byoc_core.measurements.measurement import Measurement

__all__ = ["Calibration"]

_PRIOR_ROWS = 1
"""The overall factor of a backend counts as this many measured ops of each family."""
_MAX_LOG = math.log(100.0)
_FASTER = 0.97
"""The ratio of seconds below which a schedule is faster beyond noise."""


@dataclass(frozen=True)
class Calibration:
    """What is known of a backend on this machine with a number of threads.

    Attributes:
        seconds: of measured ops, by :func:`byoc_core.measurements.keys.op_key`.
        ratios: measured over estimated seconds by structure, for an op beside other neighbours.
        factors: measured over estimated seconds by family.
        factor: of other families.
        schedules: the fastest measured schedule by key, if faster than the backend's own choice beyond noise.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    factor: float = 1.0
    schedules: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Measurement]) -> Calibration:
        """Return the calibration of a backend's measurements in one setting.

        A factor is the geometric mean over the ops of a family, drawn towards the mean of all families if the ops are
        few. Ops computed along with a neighbour do not count. An op with a faster schedule has the seconds of the
        schedule.
        """
        scheduled: dict[str, tuple[float, str]] = {}
        seconds: dict[str, float] = {}
        logs: dict[str, list[float]] = {}
        longest: dict[str, tuple[float, float]] = {}
        for row in rows:
            if row.schedule:
                fastest = (row.seconds, row.schedule)
                scheduled[row.key] = min(fastest, scheduled.get(row.key, fastest))
                continue
            seconds[row.key] = row.seconds
            if row.seconds and row.estimated:
                log = math.log(row.seconds) - math.log(row.estimated)
                bounded = max(-_MAX_LOG, min(_MAX_LOG, log))
                logs.setdefault(row.family, []).append(bounded)
                structure = structure_of(row.key)
                longest[structure] = max(longest.get(structure, (0.0, 0.0)), (row.seconds, bounded))
        sums = {family: (math.fsum(found), len(found)) for family, found in sorted(logs.items())}
        means = [total / count for total, count in sums.values()]
        overall = math.fsum(means) / len(means) if means else 0.0
        factors = {
            family: math.exp((total + _PRIOR_ROWS * overall) / (count + _PRIOR_ROWS))
            for family, (total, count) in sums.items()
        }
        ratios = {structure: math.exp(log) for structure, (_, log) in longest.items()}
        faster = {key: found for key, found in scheduled.items() if 0 < found[0] < _FASTER * seconds.get(key, 0.0)}
        seconds.update((key, value) for key, (value, _) in faster.items())
        return cls(seconds, ratios, factors, math.exp(overall), {key: name for key, (_, name) in faster.items()})

    def __bool__(self) -> bool:
        return bool(self.seconds)

    def schedule(self, function: Function) -> str:
        """Return the fastest measured schedule of a function of one op or composite; empty if none is faster."""
        return self.schedules.get(op_key(function), "")

    def corrected(self, function: Function, estimated: float) -> float:
        """Return the seconds of a function of one op or composite: measured, or estimated times a factor.

        The factor is of the same op beside other neighbours, if measured, else of the family.

        Args:
            function: with fixed sizes, as for ``byoc_estimate``.
            estimated: the estimate of the backend.
        """
        key = op_key(function)
        measured = self.seconds.get(key)
        if measured is not None:
            return measured
        ratio = self.ratios.get(structure_of(key))
        if ratio is not None:
            return estimated * ratio
        return estimated * self.factors.get(op_family(function), self.factor)
