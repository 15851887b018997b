"""The errors of estimates by family of ops, before and after calibration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from byoc_core.measurements.calibration import Calibration
from byoc_core.measurements.measurement import Measurement

__all__ = ["FamilyPredictions", "Ratio", "predict", "table_of"]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Predicted over measured seconds of several ops.

    Attributes:
        mean: the geometric mean.
        deviation: the factor of a standard deviation of the logarithms.
    """

    mean: float
    deviation: float

    @classmethod
    def of(cls, logs: Sequence[float]) -> Ratio:
        """Return the ratio of logarithms."""
        mean = math.fsum(logs) / len(logs)
        return cls(math.exp(mean), math.exp(math.sqrt(math.fsum((log - mean) ** 2 for log in logs) / len(logs))))


@dataclass(frozen=True, slots=True)
class FamilyPredictions:
    """The predictions for the measured ops of a family on a backend.

    Attributes:
        backend: the backend.
        threads: of the calls.
        family: see :func:`byoc_core.measurements.keys.op_family`.
        rows: the number of measured ops, without ops computed along with others.
        before: by the estimates of the backend.
        after: by the estimates and the factors learned from the other measured ops.
    """

    backend: str
    threads: int
    family: str
    rows: int
    before: Ratio
    after: Ratio


def predict(rows: Iterable[Measurement]) -> list[FamilyPredictions]:
    """Return the errors of predictions for measurements of one processor, by backend, threads and family.

    Each op is predicted from the other ops. The time of the op itself would predict all.

    Cost: quadratic in the measurements of a backend.
    """
    settings: dict[tuple[str, int, str, str], list[Measurement]] = {}
    for row in rows:
        if row.seconds and row.estimated and not row.schedule:
            settings.setdefault((row.backend, row.threads, row.version, row.options), []).append(row)
    found = []
    for (backend, threads, _, _), group in sorted(settings.items()):
        families: dict[str, list[tuple[float, float]]] = {}
        for index, row in enumerate(group):
            before = math.log(row.estimated) - math.log(row.seconds)
            calibration = Calibration.of([*group[:index], *group[index + 1 :]])
            after = before + math.log(calibration.factors.get(row.family, calibration.factor))
            families.setdefault(row.family, []).append((before, after))
        for family, logs in sorted(families.items()):
            before_ratio, after_ratio = (Ratio.of([pair[side] for pair in logs]) for side in (0, 1))
            found.append(FamilyPredictions(backend, threads, family, len(logs), before_ratio, after_ratio))
    return found


def table_of(predictions: Sequence[FamilyPredictions]) -> str:
    """Return the predictions as a table of text; empty without predictions."""
    if not predictions:
        return ""
    lines = [
        f"{'':<46}  {'':>4}  predicted/measured, mean and spread",
        f"{'backend':<12}  {'threads':>7}  {'ops':<23}  {'rows':>4}  {'estimated':>14}  {'calibrated':>14}",
    ]
    for row in predictions:
        ratios = [f"{ratio.mean:7.2f} x{ratio.deviation:5.2f}" for ratio in (row.before, row.after)]
        lines.append(f"{row.backend:<12}  {row.threads:>7}  {row.family:<23}  {row.rows:>4}  {'  '.join(ratios)}")
    return "\n".join(lines)
