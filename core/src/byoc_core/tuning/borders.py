"""The cost of borders, learned from measured placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from byoc_core.dims import evaluate, read_dim
from byoc_core.errors import IRTypeError
from byoc_core.partitioning.policies import placement_key
from byoc_core.reporting.shares import items_of

__all__ = ["Border", "Crossing", "count_crossings", "learn_border", "sized_count", "summed_seconds"]

Border = tuple[float, float]
"""Seconds of a value crossing a border: constant, and for each byte."""


class Crossing(NamedTuple):
    """The values crossing borders of a placement: their number, and their bytes."""

    values: int
    nbytes: int


def count_crossings(report: Mapping[str, Any], placement: Mapping[str, str], sizes: Mapping[str, int]) -> Crossing:
    """Return the values read by a backend other than the maker's, once for each such backend.

    Args:
        report: an offload report with the ops of the model.
        placement: the backend of each op.
        sizes: the sizes of symbols.
    """
    makers: dict[tuple[str, str], tuple[str, int]] = {}
    crossed: set[tuple[str, str, str]] = set()
    total = 0
    for row in items_of(report.get("ops")):
        function, name = str(row["function"]), str(row["name"])
        backend = placement.get(placement_key((function, name)), "")
        for source in row.get("inputs") or ():
            maker = makers.get((function, source))
            key = function, source, backend
            if maker is not None and maker[0] != backend and key not in crossed:
                crossed.add(key)
                total += maker[1]
        outputs = row.get("outputs") or [name]
        nbytes = sized_count(row.get("nbytes_written"), sizes) // len(outputs)
        for output in outputs:
            makers[function, output] = backend, nbytes
    return Crossing(len(crossed), total)


def summed_seconds(placement: Mapping[str, str], measured: Mapping[str, Mapping[str, float]]) -> float:
    """Return the measured seconds of the ops of a placement, borders left out."""
    return sum(measured.get(backend, {}).get(op, 0.0) for op, backend in placement.items())


def learn_border(excesses: Sequence[tuple[Crossing, float]]) -> Border | None:
    """Return the border costs explaining best by how much placements took longer than their ops.

    Args:
        excesses: the crossings of measured placements, and the seconds beyond the summed seconds of the ops.

    Returns:
        The least-squares solution without negative costs; ``None`` without any crossing.
    """
    rows = [(crossing.values, crossing.nbytes, excess) for crossing, excess in excesses if crossing.values]
    if not rows:
        return None
    counts, nbytes, seconds = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    seconds = np.maximum(seconds, 0.0)
    # Two unknowns: the solution without bounds if both are positive, else the better of the solutions with one.
    matrix = np.stack([counts, nbytes], axis=1)
    solution, _, rank, _ = np.linalg.lstsq(matrix, seconds, rcond=None)
    if rank == 2 and (solution >= 0).all():
        return float(solution[0]), float(solution[1])
    alone = [float(column @ seconds) / max(float(column @ column), 1e-300) for column in (counts, nbytes)]
    errors = [
        float(((column * value - seconds) ** 2).sum()) for column, value in zip((counts, nbytes), alone, strict=True)
    ]
    return (alone[0], 0.0) if errors[0] <= errors[1] else (0.0, alone[1])


def sized_count(nbytes: object, sizes: Mapping[str, int]) -> int:
    """Return a number of a report, symbols replaced by sizes; 0 if the number is unknown."""
    if isinstance(nbytes, str):
        try:
            return evaluate(read_dim(nbytes), sizes)
        except IRTypeError:
            return 0
    return nbytes if isinstance(nbytes, int) else 0
