"""Calls on non-finite numbers and on the smallest numbers: without error or warning.

The results are not judged here: level 2 judges numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from byoc_core.dtypes import dtype_name, is_float

from byoc_conformance.examples import Array, compile_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.running import is_computable, require_examples, run
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_VALUES: Mapping[str, tuple[float, ...]] = {
    "nan": (np.nan,),
    "infinite": (np.inf, -np.inf),
    "mixed": (1.0, np.nan, -np.inf, 0.0, np.inf, -0.0),
    "tiny": (1e-40, -1e-44),
}


def _check_any_number(subject: Subject, case: str) -> None:
    machine = compile_examples(subject).vm
    judged = 0
    for example in require_examples(subject):
        inputs = tuple(_filled(array, _VALUES[case]) for array in example.inputs)
        if not any(_has_floats(array) for array in inputs) or not is_computable(example, inputs):
            continue
        judged += 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(machine, example, inputs)
        if caught:
            raise FailedError(f"{example.name}: warns on inputs of kind {case}: {caught[0].message}")
    if not judged:
        raise NotCoveredError("no example has floating-point inputs")


def _filled(array: Array, values: tuple[float, ...]) -> Array:
    return np.resize(np.array(values).astype(array.dtype), array.shape) if _has_floats(array) else array.copy()


def _has_floats(array: Array) -> bool:
    return is_float(dtype_name(array.dtype))


PROMISES = (
    Promise(
        Level.L4,
        "any-number",
        "neither crashes, hangs, raises nor warns on non-finite or tiny numbers",
        _check_any_number,
        cases=lambda: tuple(_VALUES),
        deadline=30.0,
    ),
)
