"""The precision declared by a backend, within the kit's limits."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.dtypes import float_limits

from byoc_conformance.outcome import FailedError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Subject

__all__ = ["CEILINGS", "PROMISES"]

CEILINGS: Mapping[str, float] = {
    "float64": 2.0**-24,  # float32
    "float32": 2.0**-8,  # bfloat16, used by matrix engines instead; TF32 has 2**-11
    "float16": 2.0**-8,  # bfloat16
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}
"""The coarsest unit roundoff allowed for a dtype: the unit roundoff of the coarsest arithmetic in use for the dtype."""


def _check_stated_precision(subject: Subject, case: str) -> None:
    problems = []
    for key, roundoff in subject.info.unit_roundoff.items():
        dtype = key.rpartition(":")[-1]
        own, ceiling = float_limits(dtype).unit_roundoff, CEILINGS[dtype]
        if not own <= roundoff <= ceiling:
            problems.append(f"`unit_roundoff` of {key} is {roundoff:.3g}, expected {own:.3g} to {ceiling:.3g}")
    if problems:
        raise FailedError("\n".join(problems))


PROMISES = (
    Promise(
        Level.L2,
        "stated-precision",
        "states unit roundoffs no coarser than allowed by the kit, and no finer than the dtype's own",
        _check_stated_precision,
    ),
)
